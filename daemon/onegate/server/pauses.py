"""Classes that administrators have closed: told to the core, kept on disk, opened in time."""

import asyncio

from onegate import clock
from onegate.server.closures import Closure, Closures
from onegate.server.gate import Gate
from onegate.server.log import Event, Log
from onegate.server.term import LOOK_S, NS_PER_MS, Term


class Pauses:
    """Every closed class and its time. The core opens a class by its own clock, which does not know
    that the wall's was set; it is told anew at least every `LOOK_S`."""

    def __init__(self, gate: Gate, closures: Closures, log: Log) -> None:
        self._gate = gate
        self._closures = closures
        self._log = log
        self._terms: dict[str, tuple[Closure, Term]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, closure: Closure, state: str | None = None) -> None:
        """A class is closed, or, with `state`, `still` is: an earlier daemon was told so."""
        class_ = closure.class_
        assert class_ is not None
        self._terms[class_] = (closure, Term(closure))
        self._closures.close(closure)
        self._log.event(
            Event.CLASS_PAUSED,
            class_=class_,
            principal=closure.principal,
            until_ms=closure.until_ms,
            state=state,
        )
        self._tell(class_)
        self._arm()

    def end(self, class_: str, principal: str) -> bool:
        """An administrator opens it; false where it was not closed."""
        was_closed = self._is_closed(class_)
        self._open(class_)
        self._log.event(Event.CLASS_UNPAUSED, class_=class_, principal=principal)
        self._arm()
        return was_closed

    def close(self) -> None:
        """Look at the time no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open(self, class_: str) -> None:
        self._terms.pop(class_, None)
        self._gate.open_class(class_)
        self._closures.open(class_)

    def _is_closed(self, class_: str) -> bool:
        return any(view.name == class_ and view.closed for view in self._gate.view().classes)

    def _tell(self, class_: str) -> None:
        left_ms = self._terms[class_][1].left_ms()
        until_ns = None if left_ms is None else clock.monotonic_ns() + left_ms * NS_PER_MS
        self._gate.close_class(class_, until_ns)

    def _arm(self) -> None:
        self.close()
        lefts = [term.left_ms() for _, term in self._terms.values()]
        if ends := [left_ms for left_ms in lefts if left_ms is not None]:
            delay_s = min(max(0, min(ends)) / 1000, LOOK_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        for class_, (closure, term) in list(self._terms.items()):
            left_ms = term.left_ms()
            # Once it was open it stays open, whatever a clock says a moment later.
            if (left_ms is not None and left_ms <= 0) or not self._is_closed(class_):
                self._open(class_)
                self._log.event(Event.CLASS_UNPAUSED, class_=class_, until_ms=closure.until_ms)
            elif left_ms is not None:
                self._tell(class_)
        self._arm()
