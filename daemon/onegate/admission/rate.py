"""How fast a queue drains, measured only while there is something to drain.

A rate over idle time would say how little was asked for, not how much can be done.
"""

from collections import deque

WINDOW_NS = 10_000_000_000
# Below this much backlogged time a rate would be noise: unknown stays unknown.
LEAST_NS = 1_000_000_000
BUCKET_NS = 250_000_000


class WindowSum:
    """The sum of what was added within the last `window_ns`, in buckets of bounded number."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self._buckets: deque[tuple[int, int]] = deque()
        self._sum = 0

    def add(self, amount: int, now_ns: int) -> None:
        """Add at `now_ns`; times never go back."""
        bucket = now_ns - now_ns % BUCKET_NS
        if self._buckets and self._buckets[-1][0] == bucket:
            self._buckets[-1] = (bucket, self._buckets[-1][1] + amount)
        else:
            self._buckets.append((bucket, amount))
        self._sum += amount
        self._forget(now_ns)

    def value(self, now_ns: int) -> int:
        """The sum as of `now_ns`."""
        self._forget(now_ns)
        return self._sum

    def _forget(self, now_ns: int) -> None:
        while self._buckets and self._buckets[0][0] <= now_ns - self.window_ns:
            self._sum -= self._buckets.popleft()[1]


class DrainRate:
    """Tokens that left one queue for the engine, per nanosecond of backlog."""

    def __init__(self) -> None:
        self._released = WindowSum(WINDOW_NS)
        self._backlog_since_ns: int | None = None

    def backlog(self, waiting: bool, now_ns: int) -> None:
        """Whether something waits from now on."""
        if not waiting:
            self._backlog_since_ns = None
        elif self._backlog_since_ns is None:
            self._backlog_since_ns = now_ns
            self._released = WindowSum(WINDOW_NS)

    def released(self, tok: int, now_ns: int) -> None:
        """A waiting request of so many tokens has been granted."""
        self._released.add(tok, now_ns)

    def tok_per_ns(self, now_ns: int, likely: float | None = None) -> float | None:
        """The rate, or None while it is not known.

        A few starts say little: while the window fills, what is `likely` counts for the half of it
        that was not watched.
        """
        if self._backlog_since_ns is None:
            return None
        elapsed_ns = min(WINDOW_NS, now_ns - self._backlog_since_ns)
        released: float = self._released.value(now_ns)
        if elapsed_ns < LEAST_NS or released <= 0:
            return None
        if likely is not None and elapsed_ns < WINDOW_NS:
            unseen_ns = (WINDOW_NS - elapsed_ns) // 2
            return (released + likely * unseen_ns) / (elapsed_ns + unseen_ns)
        return released / elapsed_ns
