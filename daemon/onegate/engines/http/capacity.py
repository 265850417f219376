"""How many requests a server really runs at once, found out from outside.

Over HTTP a server's width is what somebody configured. If that is too much, the rest waits inside
it, where nothing can be reordered. What shows it: the server says that requests wait; or, where it
says nothing of that, one of ours gets its first token only after another has ended, and far later
than its own prompt takes. Then fewer are sent, and one more is tried again after a while. Never
fewer than were seen to run together of late. Pure: time is an argument.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

_NS_PER_S = 1_000_000_000
# Slower than alone by this factor and this much on top, a first token was waited for; unless those
# that began at once were as slow of late, because prompts are read side by side.
_SLOW_FACTOR = 3.0
_SLOW_NS = 250_000_000
_SLOWER_THAN_CROWD = 1.5
_CROWD_SMOOTHING = 0.1
# What began at most so many times its own prompt ago may have begun then.
_BEGAN_FACTOR = 2.0
_MAX_ENDS = 64
_SMOOTHING = 0.3
# So many requests that waited within the window are no accident.
_VOTES = 3
_WINDOW_NS = 60 * _NS_PER_S
# One more is tried after this long at the limit without a wait; doubles when it was one too many.
_QUIET_NS = 60 * _NS_PER_S
_QUIET_MAX_NS = 3600 * _NS_PER_S


@dataclass
class _Flight:
    """A request inside, until its end; `peers` is how many of ours were there when it was sent.

    `ends` are others' while it had no token yet, each with how many the server runs if that one
    made room for this one: first come is first served, so that who was sent before runs beside it.
    """

    sent_ns: int
    peers: int
    prompt_bytes: int
    first_ns: int | None = None
    ends: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MAX_ENDS))
    left: bool = False


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
        # What it says of requests that wait is a better word than what their times look like.
        self._says = False
        self._said_waiting = 0
        # How many were seen to run together, when; the highest of late is at the front.
        self._together: deque[tuple[int, int]] = deque()
        self._ns_per_byte: float | None = None
        self._base_ns: float | None = None
        self._crowd = 1.0
        self._quiet_ns = _QUIET_NS
        self._full_since_ns: int | None = None
        self._tried = False

    def anew(self, ceiling: int) -> "Width":
        """Of another server, or another model, under the same name: nothing holds but who is
        inside."""
        width = Width(ceiling)
        width._flights = self._flights
        return width

    @property
    def finding(self) -> str | None:
        """What is wrong with the ceiling, and the number that would be right."""
        if self.limit >= self.ceiling:
            return None
        # Of one that says nothing, somebody else's requests look like seats that are not there.
        unless = "" if self._says else ", unless somebody else uses it beside this daemon"
        return (
            f"the engine lets requests wait inside itself: {self.ceiling} were sent to it at once "
            f"and it runs {self.limit}. Set max_seqs = {self.limit}{unless}"
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
        self._saw_together(running, now_ns)
        if flight.peers == 0 or (self._base_ns is None and not flight.ends):
            self._learn(now_ns - flight.sent_ns, flight.prompt_bytes)
            return False
        if not flight.ends:
            self._learn_crowd(flight, now_ns)
            return False
        if self._says or not self._is_slow(flight, now_ns):
            return False
        self.waited += 1
        return self._vote(self._width_at_beginning(flight, now_ns), now_ns)

    def left(self, id: int) -> None:
        """Its connection was closed: it may be gone already, and counts as nobody's neighbour."""
        if (flight := self._flights.get(id)) is not None:
            flight.left = True

    def ended(self, id: int, now_ns: int) -> None:
        """It is out, however that came about."""
        flight = self._flights.pop(id, None)
        self._note_fullness(now_ns)
        if flight is None or flight.first_ns is None:
            return
        ahead = 0
        for other in self._flights.values():  # in the order of their sending
            if other.first_ns is None and other.sent_ns >= flight.sent_ns:
                other.ends.append((now_ns, 1 + ahead))
            ahead += not other.left

    def refused(self, now_ns: int) -> bool:
        """The server turned one away because it was busy; whether the limit has changed.

        One that turns away the only one is busy with something else, which says nothing of how
        many it runs.
        """
        inside = len(self._flights)
        if inside <= 1:
            return False
        return self._lower(min(inside, self.limit) - 1, now_ns)

    def observed(self, running: int | None, waiting: int | None, now_ns: int) -> bool:
        """What the server itself says; whether the limit has changed.

        Both count everybody's. With more inside than we have sent, somebody else is there too.
        """
        inside = len(self._flights)
        self._says = running is not None and waiting is not None
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
        return sum(
            flight.first_ns is not None and not flight.left for flight in self._flights.values()
        )

    def _saw_together(self, running: int, now_ns: int) -> None:
        while self._together and self._together[-1][1] <= running:
            self._together.pop()
        self._together.append((now_ns, running))
        self._forget_together(now_ns)

    def _forget_together(self, now_ns: int) -> None:
        while self._together and now_ns - self._together[0][0] > _WINDOW_NS:
            self._together.popleft()

    def _learn(self, took_ns: int, prompt_bytes: int) -> None:
        """Alone in the server, or nearly: what a prompt takes by itself, the quickest of late."""
        rate = took_ns / max(1, prompt_bytes)
        self._ns_per_byte = _quickest(self._ns_per_byte, rate)
        self._base_ns = _quickest(self._base_ns, took_ns)

    def _learn_crowd(self, flight: _Flight, now_ns: int) -> None:
        """It began at once: so much slower are prompts beside others, the slowest of late."""
        times = (now_ns - flight.sent_ns) / max(1.0, self._alone_ns(flight.prompt_bytes))
        times = min(times, 1.0 + flight.peers)
        smoothed = self._crowd + _CROWD_SMOOTHING * (times - self._crowd)
        self._crowd = max(times, smoothed)

    def _alone_ns(self, prompt_bytes: int) -> float:
        """What its first token takes by itself; without end while that was never seen, so that
        nothing is judged."""
        if self._ns_per_byte is None or self._base_ns is None:
            return math.inf
        return max(self._base_ns, self._ns_per_byte * prompt_bytes)

    def _is_slow(self, flight: _Flight, now_ns: int) -> bool:
        factor = max(_SLOW_FACTOR, _SLOWER_THAN_CROWD * self._crowd)
        limit_ns = factor * self._alone_ns(flight.prompt_bytes) + _SLOW_NS
        return now_ns - flight.sent_ns > limit_ns

    def _width_at_beginning(self, flight: _Flight, now_ns: int) -> int:
        """How many run at once, by the end at which it began; rather too many than too few."""
        began_ns = now_ns - _BEGAN_FACTOR * self._alone_ns(flight.prompt_bytes)
        late = [width for at_ns, width in flight.ends if at_ns >= began_ns]
        return max(late, default=flight.ends[-1][1])

    def _vote(self, width: int, now_ns: int) -> bool:
        if width >= self.limit:
            return False
        self._votes.append((now_ns, width))
        while now_ns - self._votes[0][0] > _WINDOW_NS:
            self._votes.popleft()
        if len(self._votes) < _VOTES:
            return False
        return self._lower(median_low(width for _, width in self._votes), now_ns)

    def _lower(self, width: int, now_ns: int) -> bool:
        self._forget_together(now_ns)
        width = max(1, width, self._together[0][1] if self._together else 0)
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
