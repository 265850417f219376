"""Times of the week: `22:00-06:00`, `mon-fri 09:00-17:30`, `sat,sun 00:00-24:00`.

A window is open while the clock on the wall shows a time inside it, and that is all there is to
know about days on which clocks are set: what they pass over is left out, what they show twice
counts twice. What the clock on the wall shows at a moment is a function that the caller brings, so
that nothing here asks for a time zone, or for the time.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN = 24 * 60
DAY_S = DAY_MIN * 60
# Every window opens and closes once a week, unless clocks that are set pass over it; once.
HORIZON_S = 15 * DAY_S

# From Unix time in whole seconds to the local time without a zone, as `datetime.fromtimestamp`.
Wall = Callable[[int], datetime]

_FORM = re.compile(r"(?:(\S+)\s+)?([0-9]{1,2}):([0-9]{2})-([0-9]{1,2}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Window:
    """Minutes of the day from `start_min` to before `end_min`, on `days` (0 is Monday).

    An `end_min` below `start_min` is on the day after. `days` are those of the start.
    """

    days: frozenset[int]
    start_min: int
    end_min: int

    def shows(self, wall: datetime) -> bool:
        """Is that local time inside?"""
        day, at_min = wall.weekday(), wall.hour * 60 + wall.minute
        if self.start_min < self.end_min:
            return day in self.days and self.start_min <= at_min < self.end_min
        evening = day in self.days and at_min >= self.start_min
        return evening or ((day - 1) % 7 in self.days and at_min < self.end_min)


def parse(text: str) -> Window:
    """The window that `text` describes. Raises ValueError with a sentence for people."""
    form = _FORM.fullmatch(text.strip().lower())
    if form is None:
        raise ValueError('expected a time such as "22:00-06:00" or "sat,sun 00:00-24:00"')
    start_min = _minutes(form[2], form[3], DAY_MIN - 1)
    end_min = _minutes(form[4], form[5], DAY_MIN)
    if start_min == end_min:
        raise ValueError("it begins when it ends; the whole day is 00:00-24:00")
    days = _days(form[1]) if form[1] else frozenset(range(7))
    return Window(days, start_min, end_min)


def _minutes(hour: str, minute: str, most: int) -> int:
    at_min = int(hour) * 60 + int(minute)
    if int(minute) > 59 or at_min > most:
        last = "24:00" if most == DAY_MIN else "23:59"
        raise ValueError(f"{hour}:{minute} is no time of the day up to {last}")
    return at_min


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for entry in text.split(","):
        first, dash, last = entry.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise ValueError(f"{entry[:40]!a} is no day; days are {', '.join(DAYS)}, or mon-fri")
        begin = DAYS.index(first)
        n_days = (DAYS.index(last) - begin) % 7 + 1 if dash else 1
        found.update((begin + i) % 7 for i in range(n_days))
    return frozenset(found)


def is_open(windows: Sequence[Window], wall: datetime) -> bool:
    """Is any of them open at that local time? No window at all is always open."""
    return not windows or any(window.shows(wall) for window in windows)


def next_change(windows: Sequence[Window], wall: Wall, now_s: int) -> int | None:
    """When they next open, if they are closed now, or close; None: not within `HORIZON_S`."""
    now_open = is_open(windows, wall(now_s))
    at_s = now_s
    while windows and at_s < now_s + HORIZON_S:
        at_s = _next_edge(windows, wall, at_s)
        if is_open(windows, wall(at_s)) != now_open:
            return at_s
    return None


def _next_edge(windows: Sequence[Window], wall: Wall, at_s: int) -> int:
    """The next moment at which a window begins or ends on some day, or the clocks are set."""
    shown = wall(at_s)
    shown_s = (shown.hour * 60 + shown.minute) * 60 + shown.second
    edges = {edge * 60 for window in windows for edge in (window.start_min, window.end_min)}
    step_s = min((edge_s - shown_s - 1) % DAY_S + 1 for edge_s in edges)

    def runs_on(passed_s: int) -> bool:
        return wall(at_s + passed_s) - shown == timedelta(seconds=passed_s)

    if runs_on(step_s):
        return at_s + step_s
    # Somewhere in between they are set: the first second that is not as expected. Nobody sets them
    # twice within a day.
    before_s = 0
    while step_s - before_s > 1:
        middle_s = (before_s + step_s) // 2
        if runs_on(middle_s):
            before_s = middle_s
        else:
            step_s = middle_s
    return at_s + step_s
