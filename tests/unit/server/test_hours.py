"""When classes are open: by hand, by their times, and by both."""

import asyncio
import io
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from onegate import clock
from onegate.config import check
from onegate.config.window import HORIZON_S
from onegate.protocol.requests import MAX_CLOSED_MS
from onegate.server.closures import Closure, Closures
from onegate.server.hours import LOOK_S, Hours
from onegate.server.log import Log
from onegate.server.term import SLACK_MS

S = 1_000_000_000
NIGHT = '[[class]]\nname = "batch"\nrun_window = ["22:00-06:00"]\n'
# A Monday.
NOON = "2026-03-02T12:00"


def ms(local: str) -> int:
    return round(datetime.fromisoformat(local).timestamp() * 1000)


class Timer:
    def __init__(self, at_ns: int, call: Callable[[], None], waiting: "list[Timer]") -> None:
        self.at_ns = at_ns
        self.call = call
        self._waiting = waiting
        waiting.append(self)

    def cancel(self) -> None:
        if self in self._waiting:
            self._waiting.remove(self)


class Played:
    """The clocks, the loop and a gate that keeps of the core what matters here.

    `closed` is the core's: it opens a class by itself when it is told the time in its own clock.
    """

    def __init__(self, text: str, local: str) -> None:
        self.wall_ms = ms(local)
        self.mono_ns = 500 * S
        self.closed: dict[str, int | None] = {}
        self.calls: list[str] = []
        self.waiting: list[Timer] = []
        self.n_timers = 0
        self.journal = io.StringIO()
        self.classes = check(text).classes
        log = Log(self.journal, journal=True)
        closures = Closures(None, log=log, notice=lambda _: None, damaged=lambda _: None)
        self.hours = Hours(
            gate=self,  # type: ignore[arg-type]
            closures=closures,
            classes=lambda: self.classes,
            log=log,
        )

    def pause(self, class_: str, until_ms: int | None) -> None:
        """By hand."""
        self.hours.pause(
            Closure(class_=class_, principal="uid:0", since_ms=self.wall_ms, until_ms=until_ms)
        )

    # the loop

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.n_timers += 1
        return Timer(self.mono_ns + round(delay_s * S), call, self.waiting)

    # the gate

    def close_class(self, class_: str, until_ns: int | None) -> None:
        self.calls.append(f"close {class_}")
        self.closed[class_] = until_ns

    def open_class(self, class_: str) -> None:
        self.calls.append(f"open {class_}")
        self.closed.pop(class_, None)

    # time

    def run_to(self, local: str) -> None:
        """Time goes on, each timer at its moment."""
        end_ns = self.mono_ns + (ms(local) - self.wall_ms) * 1_000_000
        while due := [timer for timer in self.waiting if timer.at_ns <= end_ns]:
            timer = min(due, key=lambda timer: timer.at_ns)
            self._to(timer.at_ns)
            timer.cancel()
            timer.call()
        self._to(end_ns)

    def _to(self, at_ns: int) -> None:
        self.wall_ms += (at_ns - self.mono_ns) // 1_000_000
        self.mono_ns = at_ns
        for class_, until_ns in tuple(self.closed.items()):
            if until_ns is not None and until_ns <= at_ns:
                del self.closed[class_]

    def opens(self, class_: str = "batch") -> str | None:
        """The local time at which the core will open a closed class."""
        until_ns = self.closed[class_]
        if until_ns is None:
            return None
        at_ms = self.wall_ms + (until_ns - self.mono_ns) // 1_000_000
        return datetime.fromtimestamp(at_ms / 1000).isoformat(timespec="minutes")


Make = Callable[..., Played]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    played: list[Played] = []

    def make(text: str = NIGHT, local: str = NOON) -> Played:
        played.append(Played(text, local))
        monkeypatch.setattr(clock, "wall_ms", lambda: played[-1].wall_ms)
        monkeypatch.setattr(clock, "monotonic_ns", lambda: played[-1].mono_ns)
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: played[-1])
        played[-1].hours.review()
        return played[-1]

    yield make
    monkeypatch.undo()
    time.tzset()


def test_a_class_is_open_within_its_times_alone(play: Make) -> None:
    played = play()
    assert played.opens() == "2026-03-02T22:00"
    played.run_to("2026-03-02T21:59:59")
    assert "batch" in played.closed
    played.run_to("2026-03-02T22:00:01")
    assert played.closed == {}
    played.run_to("2026-03-03T05:59:59")
    assert played.closed == {}
    played.run_to("2026-03-03T06:00:01")
    assert played.opens() == "2026-03-03T22:00"
    assert played.calls == ["close batch", "open batch", "close batch"]
    lines = played.journal.getvalue().splitlines()
    closed, opened = "<5>class_paused", "<5>class_unpaused"
    assert [line.split()[0] for line in lines] == [closed, opened, closed]
    assert "by its run_window" in lines[0]


def test_classes_without_times_are_left_alone(play: Make) -> None:
    played = play("")
    played.run_to("2026-03-09T12:00")
    assert played.calls == []


def test_paused_by_hand_until_then_or_for_ever(play: Make) -> None:
    played = play("")
    played.pause("loop", ms("2026-03-02T13:00"))
    assert played.opens("loop") == "2026-03-02T13:00"
    played.pause("loop", None)
    assert played.opens("loop") is None
    played.run_to("2026-03-05T12:00")
    assert "loop" in played.closed
    assert played.hours.unpause("loop", "uid:0") is True
    assert played.closed == {}
    assert played.hours.unpause("loop", "uid:0") is False


def test_what_was_paused_opens_at_its_time(play: Make) -> None:
    played = play("")
    played.pause("loop", ms("2026-03-02T13:00"))
    played.run_to("2026-03-02T13:00:01")
    assert played.closed == {}
    assert played.hours.unpause("loop", "uid:0") is False
    assert played.hours.unpause("interactive", "uid:0") is False


def test_a_pause_that_is_over_is_none(play: Make) -> None:
    played = play("")
    played.pause("loop", ms("2026-03-02T11:00"))
    assert played.closed == {}


@pytest.mark.parametrize(
    ("now", "until", "opens"),
    [
        # Until within the times, outside of them, and beyond the next ones.
        ("2026-03-02T12:00", "2026-03-02T23:00", "2026-03-02T23:00"),
        ("2026-03-02T12:00", "2026-03-02T13:00", "2026-03-02T22:00"),
        ("2026-03-02T12:00", "2026-03-03T07:00", "2026-03-03T22:00"),
        ("2026-03-02T23:00", "2026-03-03T01:00", "2026-03-03T01:00"),
        ("2026-03-02T23:00", "2026-03-03T06:00", "2026-03-03T22:00"),
    ],
)
def test_of_both_the_longer_one_holds(play: Make, now: str, until: str, opens: str) -> None:
    played = play(local=now)
    played.pause("batch", ms(until))
    assert played.opens() == opens
    minute_before = datetime.fromtimestamp(ms(opens) / 1000 - 60).isoformat()
    played.run_to(minute_before)
    assert "batch" in played.closed
    played.run_to(f"{opens}:01")
    assert played.closed == {}


def test_opened_by_hand_it_is_open_until_its_next_closing(play: Make) -> None:
    played = play()
    assert played.hours.unpause("batch", "uid:0") is True
    assert played.closed == {}
    played.run_to("2026-03-02T22:00:01")
    assert played.closed == {}
    played.run_to("2026-03-03T06:00:01")
    assert played.opens() == "2026-03-03T22:00"


def test_opened_by_hand_within_its_times_it_closes_as_ever(play: Make) -> None:
    played = play(local="2026-03-02T23:00")
    played.pause("batch", None)
    played.hours.unpause("batch", "uid:0")
    assert played.closed == {}
    played.run_to("2026-03-03T06:00:01")
    assert "batch" in played.closed


def test_the_last_word_by_hand_holds(play: Make) -> None:
    played = play()
    played.hours.unpause("batch", "uid:0")
    played.pause("batch", ms("2026-03-02T13:00"))
    assert played.opens() == "2026-03-02T22:00"


def test_a_reload_changes_the_times_and_nothing_said_by_hand(play: Make) -> None:
    played = play()
    played.pause("loop", None)
    played.classes = check('[[class]]\nname = "batch"\nrun_window = ["13:00-14:00"]\n').classes
    played.hours.review()
    assert played.opens() == "2026-03-02T13:00"
    assert played.opens("loop") is None
    played.classes = check("").classes
    played.hours.review()
    assert set(played.closed) == {"loop"}


def test_a_clock_that_is_set_is_noticed_within_a_minute(play: Make) -> None:
    played = play()
    played.wall_ms = ms("2026-03-02T21:00")
    moment = datetime.fromtimestamp(played.wall_ms / 1000 + LOOK_S + 1).isoformat()
    played.run_to(moment)
    assert played.opens() == "2026-03-02T22:00"
    played.wall_ms = ms("2026-03-02T22:30")
    played.run_to("2026-03-02T22:31:01")
    assert played.closed == {}
    assert len(played.waiting) == 1


def test_a_clock_that_is_set_back_closes_what_the_core_has_opened(play: Make) -> None:
    played = play(local="2026-03-02T21:59:30")
    played.wall_ms -= 10_000
    played.run_to("2026-03-02T21:59:59")
    assert played.opens() == "2026-03-02T22:00"
    played.run_to("2026-03-02T22:00:01")
    assert played.closed == {}


def test_the_core_is_not_told_again_what_it_knows(play: Make) -> None:
    played = play()
    played.run_to("2026-03-02T18:00")
    assert played.calls == ["close batch"]
    # Six hours, once a minute.
    assert 350 < played.n_timers < 370


def test_times_that_never_come_close_for_ever_until_opened(
    play: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onegate.server.hours.next_change", lambda windows, wall, now_s: None)
    played = play()
    assert played.opens() is None
    played.hours.unpause("batch", "uid:0")
    end_s = ms(NOON) / 1000 + HORIZON_S
    played.run_to(datetime.fromtimestamp(end_s - 1).isoformat())
    assert played.closed == {}
    played.run_to(datetime.fromtimestamp(end_s + 61).isoformat())
    assert "batch" in played.closed


def test_a_time_beyond_the_calendar_is_as_long_as_it_may_be(play: Make) -> None:
    played = play()
    played.pause("loop", 2**53 - 1)
    until_ns = played.closed["loop"]
    assert until_ns is not None
    assert (until_ns - played.mono_ns) // 10**9 == MAX_CLOSED_MS // 1000 + SLACK_MS // 1000


def test_what_the_clocks_pass_over_closes_when_they_are_set(play: Make) -> None:
    text = '[[class]]\nname = "batch"\nrun_window = ["22:00-02:30"]\n'
    played = play(text, "2026-03-29T01:00")
    played.run_to("2026-03-29T03:00:01")
    assert played.opens() == "2026-03-29T22:00"


def test_closed_for_good_it_looks_no_more(play: Make) -> None:
    played = play()
    played.hours.close()
    assert played.waiting == []
