"""How long to wait before the engine is started again."""

from onegate.clock import monotonic_ns

_NS_PER_S = 1_000_000_000
_MS_PER_S = 1000


class Backoff:
    """Doubles from `first_ms` to `max_ms`; an engine that was up for `reset_s` starts anew."""

    def __init__(self, *, first_ms: int, max_ms: int, reset_s: float) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._reset_ns = int(reset_s * _NS_PER_S)
        self._failures = 0
        self._ready_ns: int | None = None

    def ready(self, now_ns: int | None = None) -> None:
        """The engine serves; the first time after a loss counts."""
        if self._ready_ns is None:
            self._ready_ns = monotonic_ns() if now_ns is None else now_ns

    def lost(self, now_ns: int | None = None) -> float:
        """The engine is gone; returns the seconds to wait."""
        now_ns = monotonic_ns() if now_ns is None else now_ns
        if self._ready_ns is not None and now_ns - self._ready_ns >= self._reset_ns:
            self._failures = 0
        self._ready_ns = None
        wait_ms = min(self._max_ms, self._first_ms << min(self._failures, 32))
        self._failures += 1
        return wait_ms / _MS_PER_S
