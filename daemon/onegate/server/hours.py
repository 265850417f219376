"""When classes are open: by hand, and by the times of the configuration (`run_window`).

A class starts nothing while it is paused by hand or outside its times; it opens when neither keeps
it closed any longer, so the longer of the two holds. Opened by hand outside its times it stays open
until it would have opened by itself, and follows its times from there on. The last word by hand
holds. A pause outlives the daemon where closures are kept on disk, until its time is over; a class
opened by hand does not stay open over a restart. A reload changes the times, and nothing said by
hand.

The core is told of each change at its moment, and that moment in its own clock. That clock stands
still while the machine sleeps, and the one on the wall is set; so all of it is looked at anew every
minute at the latest.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from onegate import clock
from onegate.config import ClassConfig
from onegate.config.window import HORIZON_S, Window, is_open, next_change, parse
from onegate.server.closures import Closure, Closures
from onegate.server.gate import Gate
from onegate.server.log import Event, Log
from onegate.server.term import LOOK_S, NS_PER_MS, Term

# The core is told again where what it knows is off by more: the clock on the wall was set.
DRIFT_NS = 1_000_000_000

ClassesNow = Callable[[], tuple[ClassConfig, ...]]


class Hours:
    """Closes and opens classes. `classes` gives those of now; what was paused by hand is kept in
    `closures` until it is over."""

    def __init__(self, *, gate: Gate, closures: Closures, classes: ClassesNow, log: Log) -> None:
        self._gate = gate
        self._closures = closures
        self._classes = classes
        self._log = log
        # Said by hand, by class: for how long it is paused; open whatever the times say until.
        self._paused: dict[str, Term] = {}
        self._open_ms: dict[str, int] = {}
        # What the core knows: the closed classes, and when each opens.
        self._told_ns: dict[str, int | None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def pause(self, closure: Closure, state: str | None = None) -> None:
        """Close a class by hand; with `state`, it `still` is: an earlier daemon was told so."""
        class_ = closure.class_
        assert class_ is not None
        self._paused[class_] = Term(closure)
        self._open_ms.pop(class_, None)
        self._closures.close(closure)
        self._log.event(
            Event.CLASS_PAUSED,
            class_=class_,
            principal=closure.principal,
            until_ms=closure.until_ms,
            state=state,
        )
        self._look(by_hand=class_)

    def unpause(self, class_: str, principal: str) -> bool:
        """Open a class by hand; false where it was open."""
        self._look()
        closed = class_ in self._told_ns
        self._paused.pop(class_, None)
        self._closures.open(class_)
        now_ms = clock.wall_ms()
        windows = _windows(next(cls for cls in self._classes() if cls.name == class_))
        if not is_open(windows, _wall(now_ms // 1000)):
            opens_ms = _opens_ms(windows, now_ms)
            self._open_ms[class_] = now_ms + HORIZON_S * 1000 if opens_ms is None else opens_ms
        self._log.event(Event.CLASS_UNPAUSED, class_=class_, principal=principal)
        self._look(by_hand=class_)
        return closed

    def review(self) -> None:
        """Begin, or take up what a reload has changed."""
        self._look()

    def close(self) -> None:
        """Look at the time no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, by_hand: str | None = None) -> None:
        """What holds now, and when to look again. What was done by hand is in the journal."""
        self.close()
        now_ms, now_ns = clock.wall_ms(), clock.monotonic_ns()
        look_ms = now_ms + round(LOOK_S * 1000)
        for cls in self._classes():
            windows = _windows(cls)
            closed, until_ms = self._closed(cls.name, windows, now_ms)
            changes_s = next_change(windows, _wall, now_ms // 1000)
            for at_ms in (until_ms, None if changes_s is None else changes_s * 1000):
                if at_ms is not None:
                    look_ms = min(look_ms, at_ms)
            until_ns = None
            if until_ms is not None:
                until_ns = now_ns + (until_ms - now_ms) * NS_PER_MS
            self._tell(cls.name, closed, until_ns, until_ms, said=cls.name == by_hand)
        # A moment late rather than early, which would only mean to look once more.
        delay_s = (look_ms - now_ms + 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _closed(
        self, class_: str, windows: tuple[Window, ...], now_ms: int
    ) -> tuple[bool, int | None]:
        """Is it closed now, and until when: None is until somebody opens it."""
        if (term := self._paused.get(class_)) is not None:
            left_ms = term.left_ms()
            if left_ms is None:
                return True, None
            if left_ms > 0:
                return True, _opens_ms(windows, now_ms + left_ms)
            # Once it is over it stays over, whatever a clock says a moment later.
            del self._paused[class_]
            self._closures.open(class_)
        if self._open_ms.get(class_, now_ms) > now_ms:
            return False, None
        self._open_ms.pop(class_, None)
        if is_open(windows, _wall(now_ms // 1000)):
            return False, None
        return True, _opens_ms(windows, now_ms)

    def _tell(
        self, class_: str, closed: bool, until_ns: int | None, until_ms: int | None, *, said: bool
    ) -> None:
        known = class_ in self._told_ns
        if not closed:
            # The core opens it by itself, at about the same moment.
            if known:
                del self._told_ns[class_]
                self._gate.open_class(class_)
                if not said:
                    self._log.event(Event.CLASS_UNPAUSED, class_=class_, detail="its time has come")
            return
        told_ns = self._told_ns.get(class_)
        if known and not _differ(told_ns, until_ns):
            return
        self._told_ns[class_] = until_ns
        self._gate.close_class(class_, until_ns)
        if not known and not said:
            self._log.event(
                Event.CLASS_PAUSED, class_=class_, until_ms=until_ms, detail="by its run_window"
            )


def _differ(one_ns: int | None, other_ns: int | None) -> bool:
    if one_ns is None or other_ns is None:
        return one_ns is not other_ns
    return abs(one_ns - other_ns) > DRIFT_NS


def _windows(cls: ClassConfig) -> tuple[Window, ...]:
    return tuple(map(parse, cls.run_window))


def _wall(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s)


def _opens_ms(windows: tuple[Window, ...], from_ms: int) -> int | None:
    """The first moment from then on at which the times are open; None if nobody can say."""
    if not windows or is_open(windows, _wall(from_ms // 1000)):
        return from_ms
    opens_s = next_change(windows, _wall, from_ms // 1000)
    return None if opens_s is None else opens_s * 1000
