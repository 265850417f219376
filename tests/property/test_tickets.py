"""Promises of room, under anything: good once, for one, in time, and at nobody else's expense."""

import heapq
from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission import tickets as tk
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    Refused,
    RequestSpec,
    Reservation,
)
from onegate.admission.queue import Backpressure, ClassQueue
from onegate.admission.tickets import Tickets

S = 10**9
SPEC = ClassSpec("chat", 0, 1000, 0.5, 900 * S)


def draining(tok_per_s: int, now_ns: int) -> ClassQueue:
    """A queue that has had a backlog for a while, and a rate."""
    queue = ClassQueue(SPEC)
    queue.rate.backlog(True, now_ns - 10 * S)
    queue.rate.released(10 * tok_per_s, now_ns)
    return queue


def request(rid: int = 1, who: str = "p", **more: object) -> RequestSpec:
    spec = RequestSpec(rid, "m", "chat", who, who, 50, 10, 0, prompt_bytes=200)
    return replace(spec, **more)  # type: ignore[arg-type]


def full(reason: Refused = Refused.TOKENS_FULL, excess: float = 60) -> Backpressure:
    return Backpressure(reason, "tokens", 1000, 1000, excess)


rooms = st.sampled_from((Refused.TOKENS_FULL, Refused.PEER_QUOTA, Refused.DISPLACED))


@given(
    st.lists(
        st.tuples(st.sampled_from("pqr"), rooms, st.integers(0, 300), st.integers(0, 3 * S)),
        max_size=60,
    ),
    st.integers(10, 2000),
)
@settings(deadline=None)
def test_promises_are_good_once_for_one_and_in_time(
    asked: list[tuple[str, Refused, int, int]], rate: int
) -> None:
    tickets, now_ns = Tickets(), 100 * S
    given_out: dict[str, tuple[RequestSpec, int, int]] = {}
    for who, reason, excess, pause_ns in asked:
        now_ns += pause_ns
        queue = draining(rate, now_ns)
        spec = request(who=who)
        wait_ns, name = tickets.issue(spec, queue, full(reason, excess), 60, now_ns)
        tickets.check()
        assert wait_ns is not None
        assert wait_ns >= 0
        if name is not None:
            assert name not in given_out
            given_out[name] = spec, now_ns, now_ns + wait_ns
    for name, (spec, issued_ns, due_ns) in given_out.items():
        with_it = replace(spec, ticket=name)
        last_ns = due_ns + max(5 * S, int((due_ns - issued_ns) / 1.05 * 0.2) - 1)
        if now_ns < last_ns:
            ticket = tickets.presented(with_it, now_ns)
            assert ticket is not None
            assert ticket.due_ns == due_ns
            for other in (
                replace(with_it, principal="other"),
                replace(with_it, class_="batch"),
                replace(with_it, max_tok=spec.max_tok + 1),
                replace(with_it, prompt_bytes=spec.prompt_bytes + 1),
                replace(with_it, ticket="x" + name),
            ):
                assert tickets.presented(other, now_ns) is None
            smaller = replace(with_it, max_tok=1, prompt_bytes=0)
            assert tickets.presented(smaller, now_ns) is ticket
            tickets.use(ticket)
        assert tickets.presented(with_it, now_ns) is None
        tickets.check()
    tickets.are_out("chat", now_ns + 10**15)
    assert len(tickets) == 0


@given(rooms, st.integers(1, 1000), st.integers(1, 500), st.integers(10, 5000))
@settings(max_examples=60, deadline=None)
def test_one_that_is_refused_often_pushes_nobody_back_by_more_than_his_share(
    reason: Refused, times: int, tok: int, rate: int
) -> None:
    tickets, now_ns = Tickets(), 100 * S
    queue = draining(rate, now_ns)
    before = tickets.forecast(queue, "other", full(excess=0), 60, now_ns)
    assert before is not None
    for rid in range(times):
        tickets.issue(request(rid), queue, full(reason, tok), tok, now_ns)
    after = tickets.forecast(queue, "other", full(excess=0), 60, now_ns)
    assert after is not None
    share_ns = queue.principal_limit_tok() / rate * S
    excess_ns = tok / rate * S  # the first of them is due when he finds room, the others behind
    assert after.due_ns - before.due_ns <= share_ns + excess_ns + 1000
    if reason is Refused.PEER_QUOTA:
        assert after.due_ns == before.due_ns
    assert len(tickets) <= tk.MOST_OF_PRINCIPAL


@given(st.integers(1, 20), st.integers(10, 2000))
@settings(deadline=None)
def test_promises_are_bounded_whoever_asks(principals: int, rate: int) -> None:
    tickets, now_ns = Tickets(), 100 * S
    queue = draining(rate, now_ns)
    for rid in range(400):
        tickets.issue(request(rid, f"p{rid % principals}"), queue, full(), 60, now_ns)
    tickets.check()
    assert len(tickets) <= tk.MOST
    farthest_ns = tk.FARTHEST_NS * (1 + tk.JITTER)
    assert all(t.due_ns - now_ns <= farthest_ns for t in tickets._live.values())


def test_without_a_rate_there_is_no_promise() -> None:
    tickets, queue = Tickets(), ClassQueue(SPEC)
    assert tickets.issue(request(), queue, full(), 60, S) == (None, None)
    assert tickets.issue(request(), draining(9, S), full(Refused.TOO_LARGE), 60, S) == (None, None)


# --- the whole core, steadily drained ------------------------------------------------------------


@dataclass
class Tries:
    """What became of one client's request."""

    came_again: int = 0
    served: bool = False


def shop(gaps: list[int], who: list[str], seats: int, serve_ns: int) -> dict[int, Tries]:
    """Requests of one size come after such gaps; whoever is refused comes again when told to.

    Every request is served for `serve_ns`, so what was forecast comes true.
    """
    limits = GateLimits(1000, 10**6, 10**6, 0, 30 * S, 100)
    spec = ClassSpec("chat", 0, 600, 0.5, 900 * S)
    pool = PoolSpec("m", PoolState.READY, PoolCapacity(seats, 1000, Reservation.FULL))
    core = Controller(limits, (spec,), (pool,))
    heap: list[tuple[int, int, RequestSpec | int]] = []
    tries: dict[int, Tries] = {}
    serial, now_ns, of = 0, S, dict[int, int]()

    def at(time_ns: int, what: RequestSpec | int) -> None:
        nonlocal serial
        serial += 1
        heapq.heappush(heap, (time_ns, serial, what))

    for i, (gap, name) in enumerate(zip(gaps, who, strict=False)):
        now_ns += gap
        at(now_ns, RequestSpec(i, "m", "chat", name, name, 50, 10, 0, prompt_bytes=200))
        tries[i], of[i] = Tries(), i
    rid = len(tries)
    while heap:
        now_ns, _, what = heapq.heappop(heap)
        if isinstance(what, RequestSpec):
            events: list[ev.Event] = [ev.Arrived(replace(what, arrived_ns=now_ns))]
        else:
            events = [ev.Produced(what, 10), ev.Settled(what, 10, True), ev.SeatFreed(what)]
        for event in events:
            for effect in core.handle(event, now_ns):
                match effect:
                    case fx.Grant(started):
                        tries[of[started]].served = True
                        at(now_ns + serve_ns, started)
                    case fx.Refuse(no, refusal):
                        assert isinstance(what, RequestSpec)
                        assert no == what.rid
                        if refusal.ticket is None or refusal.retry_after_ns is None:
                            continue
                        rid += 1
                        of[rid] = of[no]
                        tries[of[no]].came_again += 1
                        again = replace(what, rid=rid, ticket=refusal.ticket)
                        at(now_ns + refusal.retry_after_ns, again)
                    case _:
                        pass
        core.validate()
    return tries


@given(st.integers(0, 10**6), st.sampled_from((3, 5, 10)), st.integers(1, 4), st.integers(38, 150))
@settings(max_examples=20, deadline=None)
def test_who_comes_again_as_told_finds_room(
    seed: int, tenths: int, seats: int, principals: int
) -> None:
    """The first time, wherever nobody is beyond his own share."""
    rng = Random(seed)
    gaps = [rng.randint(0, tenths * S // 10) for _ in range(150)]
    who = [f"p{i % principals}" for i in range(150)]
    tries = shop(gaps, who, seats, serve_ns=seats * S // 2)
    assert all(t.came_again <= 1 for t in tries.values())
    assert all(t.served for t in tries.values() if t.came_again)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_who_is_beyond_his_share_comes_twice_at_most_on_average(
    seed: int, principals: int, seats: int
) -> None:
    rng = Random(seed)
    gaps = [rng.randint(0, S // 2) for _ in range(150)]
    who = [f"p{rng.randrange(principals)}" for _ in gaps]
    tries = shop(gaps, who, seats, serve_ns=seats * S // 2).values()
    again = [t for t in tries if t.came_again]
    assert sum(t.came_again for t in again) <= 2 * len(again)
    assert sum(t.served for t in again) >= 0.9 * len(again)


def test_some_are_promised_room_where_more_come_than_can_be_served() -> None:
    tries = shop([S // 5] * 150, [f"p{i % 20}" for i in range(150)], 2, S)
    assert sum(t.came_again > 0 for t in tries.values()) > 20
