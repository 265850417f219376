"""Telling those who wait how they stand, without keeping those who run waiting for it."""

import asyncio
from collections import deque
from collections.abc import Callable

from onegate import clock

# How long each waits for its next word.
PERIOD_S = 1.0
# Many came in the same moment, so many are due in the same moment: a few in each pass of the loop.
AT_A_TIME = 16


class Progress:
    """Calls back everybody who waits, each about every `PERIOD_S`, with one timer for all."""

    def __init__(self) -> None:
        self._tell: dict[int, Callable[[], None]] = {}
        # As all have the same period they are due in the order in which they were told last. Who
        # waits no more is passed over when it comes up, and comes up once.
        self._due: deque[tuple[int, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many are called back."""
        return len(self._tell)

    def add(self, rid: int, tell: Callable[[], None]) -> None:
        """Call `tell`, which raises nothing, from the next period on. No rid comes twice."""
        self._tell[rid] = tell
        self._next(rid)
        self._arm()

    def remove(self, rid: int) -> None:
        """It waits no more, if it did."""
        self._tell.pop(rid, None)
        if not self._tell:
            self.close()

    def close(self) -> None:
        """Call nobody back any more."""
        self._tell.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self, rid: int) -> None:
        self._due.append((clock.monotonic_ns() + round(PERIOD_S * 1e9), rid))

    def _arm(self) -> None:
        if self._due and self._timer is None:
            delay_s = max(0, self._due[0][0] - clock.monotonic_ns()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ns = clock.monotonic_ns()
        for _ in range(min(AT_A_TIME, len(self._due))):
            due_ns, rid = self._due[0]
            if due_ns > now_ns:
                break
            self._due.popleft()
            tell = self._tell.get(rid)
            if tell is not None:
                self._next(rid)
                tell()
        self._arm()
