"""How many requests a server really runs at once, found out from outside.

Over HTTP a server's width is what somebody configured. If that is too much, the rest waits inside
it, where nothing can be reordered. What shows it: the server says that requests wait, or one of
ours gets its first token only after another has ended, and far later than its own prompt takes.
Then fewer are sent, and one more is tried again after a while. Pure: time is an argument.
"""

from collections import deque
from dataclasses import dataclass

_NS_PER_S = 1_000_000_000
# Slower than alone by this factor and this much on top, a first token was waited for.
_SLOW_FACTOR = 3.0
_SLOW_NS = 250_000_000
_SMOOTHING = 0.3
# So many requests that waited within the window are no accident.
_VOTES = 3
_WINDOW_NS = 60 * _NS_PER_S
# One more is tried after this long at the limit without a wait; doubles when it was one too many.
_QUIET_NS = 60 * _NS_PER_S
_QUIET_MAX_NS = 3600 * _NS_PER_S


@dataclass
class _Flight:
    """A request inside, until its end; `peers` is how many of ours were there when it was sent."""

    sent_ns: int
    peers: int
    prompt_bytes: int
    first_ns: int | None = None
    first_end_ns: int | None = None
    peak: int = 0


class Width:
    """One pool's. `limit` is how many requests may be inside now, never above `ceiling`.

    `foreign` is how many requests of others the server has, None where it does not say; `waited`
    counts requests of ours that waited inside.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = ceiling
        self.foreign: int | None = None
        # Seen in two looks in a row; a single one may be a request of ours that is just leaving.
        self.foreign_seen = False
        self.waited = 0
        self._flights: dict[int, _Flight] = {}
        self._votes: deque[tuple[int, int]] = deque()
        self._said_waiting = 0
        self._ns_per_byte: float | None = None
        self._base_ns: float | None = None
        self._quiet_ns = _QUIET_NS
        self._full_since_ns: int | None = None
        self._tried = False

    @property
    def finding(self) -> str | None:
        """What is wrong with the ceiling, and the number that would be right."""
        if self.limit >= self.ceiling:
            return None
        return (
            f"the engine lets requests wait inside itself: {self.ceiling} were sent to it at once "
            f"and it runs {self.limit}. Set max_seqs = {self.limit}"
        )

    # --- what happens -----------------------------------------------------------------------

    def sent(self, id: int, prompt_bytes: int, now_ns: int) -> None:
        """A request goes out."""
        self._flights[id] = _Flight(now_ns, len(self._flights), prompt_bytes)
        self._note_fullness(now_ns)

    def first(self, id: int, now_ns: int) -> bool:
        """Its first token came; whether the limit has changed."""
        flight = self._flights.get(id)
        if flight is None or flight.first_ns is not None:
            return False
        flight.first_ns = now_ns
        running = self._running()
        for other in self._flights.values():
            if other.first_ns is None:
                other.peak = max(other.peak, running)
        took_ns = now_ns - flight.sent_ns
        if flight.peers == 0:
            self._learn(took_ns, flight.prompt_bytes)
            return False
        if flight.first_end_ns is None or not self._is_slow(took_ns, flight.prompt_bytes):
            return False
        # It began in the place of the one that ended: so many run at once and no more.
        self.waited += 1
        return self._vote(max(1, running, flight.peak), now_ns)

    def ended(self, id: int, now_ns: int) -> None:
        """It is out, however that came about."""
        flight = self._flights.pop(id, None)
        self._note_fullness(now_ns)
        if flight is None or flight.first_ns is None:
            return
        running = self._running() + 1
        for other in self._flights.values():
            if other.first_ns is None:
                other.peak = max(other.peak, running)
                if other.first_end_ns is None:
                    other.first_end_ns = now_ns

    def refused(self, now_ns: int) -> bool:
        """The server turned one away because it was busy; whether the limit has changed."""
        inside = len(self._flights)
        return self._lower(max(1, min(inside - 1, self.limit - 1)), now_ns)

    def observed(self, running: int | None, waiting: int | None, now_ns: int) -> bool:
        """What the server itself says; whether the limit has changed.

        Both count everybody's. With more inside than we have sent, somebody else is there too.
        """
        inside = len(self._flights)
        if running is not None:
            found = max(0, running + (waiting or 0) - inside)
            self.foreign_seen = bool(found and self.foreign)
            self.foreign = found
        if not waiting or running is None or self.foreign or inside <= 1:
            self._said_waiting = 0
            return False
        self._said_waiting += 1
        if self._said_waiting < 2:
            return False
        return self._lower(max(1, running), now_ns)

    def tick(self, now_ns: int) -> bool:
        """One more is tried after a quiet time at the limit; whether the limit has changed."""
        if self.limit >= self.ceiling or self._full_since_ns is None:
            return False
        if now_ns - self._full_since_ns < self._quiet_ns:
            return False
        self.limit += 1
        self._tried = True
        self._full_since_ns = None
        return True

    # --- judging ----------------------------------------------------------------------------

    def _running(self) -> int:
        return sum(flight.first_ns is not None for flight in self._flights.values())

    def _learn(self, took_ns: int, prompt_bytes: int) -> None:
        """Alone in the server: what a prompt takes by itself, the quickest of late."""
        rate = took_ns / max(1, prompt_bytes)
        self._ns_per_byte = _quickest(self._ns_per_byte, rate)
        self._base_ns = _quickest(self._base_ns, took_ns)

    def _is_slow(self, took_ns: int, prompt_bytes: int) -> bool:
        if self._ns_per_byte is None or self._base_ns is None:
            return took_ns > 4 * _SLOW_NS
        alone_ns = max(self._base_ns, self._ns_per_byte * prompt_bytes)
        return took_ns > _SLOW_FACTOR * alone_ns + _SLOW_NS

    def _vote(self, width: int, now_ns: int) -> bool:
        self._votes.append((now_ns, width))
        while self._votes and now_ns - self._votes[0][0] > _WINDOW_NS:
            self._votes.popleft()
        if len(self._votes) < _VOTES:
            return False
        return self._lower(max(width for _, width in self._votes), now_ns)

    def _lower(self, width: int, now_ns: int) -> bool:
        if width >= self.limit:
            return False
        if self._tried:
            self._quiet_ns = min(_QUIET_MAX_NS, 2 * self._quiet_ns)
        self._tried = False
        self.limit = width
        self._votes.clear()
        self._said_waiting = 0
        self._full_since_ns = now_ns if len(self._flights) >= self.limit else None
        return True

    def _note_fullness(self, now_ns: int) -> None:
        """Only a limit that is reached says something by the quiet at it."""
        if len(self._flights) < self.limit - 1:
            self._full_since_ns = None
        elif len(self._flights) >= self.limit and self._full_since_ns is None:
            self._full_since_ns = now_ns


def _quickest(known: float | None, seen: float) -> float:
    """At once where it is quicker than what is known, slowly where it is not."""
    return seen if known is None or seen < known else known + _SMOOTHING * (seen - known)
