"""What an HTTP server runs at once, found out from outside, whatever it is given."""

import heapq
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from onegate.engines.http.capacity import Width

S = 1_000_000_000
# Nanoseconds that one byte of a prompt takes.
RATE_NS = 1_000_000


@dataclass
class Server:
    """Runs `seats` requests, first come first served; the gate sends what the width allows."""

    width: Width
    seats: int
    now_ns: int = 0
    inside: int = 0
    running: int = 0
    waiting: list = field(default_factory=list)
    events: list = field(default_factory=list)
    most: int = 0

    def send(self, id: int, prompt_bytes: int, decode_ns: int) -> None:
        self.width.sent(id, prompt_bytes, self.now_ns)
        self.inside += 1
        self.waiting.append((id, prompt_bytes, decode_ns))
        self._begin()

    def _begin(self) -> None:
        while self.waiting and self.running < self.seats:
            id, prompt_bytes, decode_ns = self.waiting.pop(0)
            self.running += 1
            self.most = max(self.most, self.running)
            first_ns = self.now_ns + RATE_NS * prompt_bytes
            heapq.heappush(self.events, (first_ns, id, "first"))
            heapq.heappush(self.events, (first_ns + decode_ns, id, "last"))

    def step(self) -> None:
        self.now_ns, id, what = heapq.heappop(self.events)
        if what == "first":
            self.width.first(id, self.now_ns)
        else:
            self.running -= 1
            self.inside -= 1
            self.width.ended(id, self.now_ns)
            self._begin()


LOADS = st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 20 * S)), min_size=1, max_size=80)


@given(ceiling=st.integers(1, 12), seats=st.integers(1, 12), load=LOADS, burst=st.integers(1, 12))
@settings(deadline=None)
def test_never_fewer_than_it_runs_and_never_more_than_was_said(ceiling, seats, load, burst):
    server = Server(Width(ceiling), seats)
    for id, (prompt_bytes, decode_ns) in enumerate(load):
        while server.inside >= min(server.width.limit, burst):
            server.step()
        server.send(id, prompt_bytes, decode_ns)
        server.width.tick(server.now_ns)
        assert min(ceiling, seats) <= server.width.limit <= ceiling
    while server.events:
        server.step()
        assert min(ceiling, seats) <= server.width.limit <= ceiling


@given(
    seats=st.integers(1, 8),
    beyond=st.integers(1, 8),
    prompt_bytes=st.integers(10, 300),
    decode_ns=st.integers(S, 3 * S),
)
@settings(deadline=None)
def test_a_ceiling_that_is_too_high_is_found_within_a_minute_of_load(
    seats, beyond, prompt_bytes, decode_ns
):
    server = Server(Width(seats + beyond), seats)
    id = 0
    while server.now_ns < 60 * S:
        while server.inside < server.width.limit:
            server.send(id, prompt_bytes, decode_ns)
            id += 1
        server.step()
    assert server.width.limit == seats
    assert f"max_seqs = {seats}" in (server.width.finding or "")


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), st.integers(0, 9), st.integers(0, 1 << 20)),
        st.tuples(st.sampled_from(["first", "ended", "left"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["refused", "tick"])),
        st.tuples(
            st.just("observed"),
            st.none() | st.integers(0, 20),
            st.none() | st.integers(0, 20),
        ),
    ),
    max_size=200,
)


@given(ceiling=st.integers(1, 8), moves=MOVES, pauses=st.lists(st.integers(0, 90 * S), min_size=1))
@settings(deadline=None)
def test_whatever_happens_in_whatever_order(ceiling, moves, pauses):
    width, now_ns = Width(ceiling), 0
    for i, (what, *given_) in enumerate(moves):
        now_ns += pauses[i % len(pauses)]
        if what == "left":
            width.left(*given_)
        else:
            getattr(width, what)(*given_, now_ns)
        assert 1 <= width.limit <= ceiling
        assert (width.finding is None) == (width.limit == ceiling)
