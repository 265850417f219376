"""How long something stays closed, by two clocks: the wall's, which people mean and which may be
set, and the one that is never set but stands still while the machine sleeps.

The wall's clock decides. Set forward, or after a sleep of the machine, it opens what is over; set
back, it keeps nothing closed for longer than was asked for.
"""

from onegate import clock
from onegate.server.closures import Closure

NS_PER_MS = 1_000_000
# How often both clocks are compared: no timer of the loop notices that one was set.
LOOK_S = 60.0
# So that of two clocks that agree the wall's decides.
SLACK_MS = 1000


class Term:
    """The time of one closure, from now on."""

    def __init__(self, closure: Closure) -> None:
        self._until_ms = closure.until_ms
        left_ms = closure.left_ms(clock.wall_ms())
        self._latest_ns: int | None = None
        if left_ms is not None:
            self._latest_ns = clock.monotonic_ns() + (left_ms + SLACK_MS) * NS_PER_MS

    def left_ms(self) -> int | None:
        """How long it goes on, not above 0 once it is over; None: until somebody ends it."""
        if self._until_ms is None or self._latest_ns is None:
            return None
        latest_ms = (self._latest_ns - clock.monotonic_ns()) // NS_PER_MS
        return min(self._until_ms - clock.wall_ms(), latest_ms)
