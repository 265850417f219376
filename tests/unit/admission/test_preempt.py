"""Whom to stop for whom; what becomes of it is in `core/test_preempting.py`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import preempt
from onegate.admission.lifecycle import Move
from onegate.admission.model import PoolState, Refusal, Refused, Resume
from onegate.admission.preempt import NOBODY, SURE
from onegate.admission.protect import BURST_TOK

MS = 1_000_000
S = 10**9


class FixedPace:
    """A step takes 10 ms, a prompt token 1 ms."""

    step: float | None = 10.0 * MS

    def step_ns(self, *, decode_seqs: int, prefill_tok: int, now_ns: int) -> float | None:
        return self.step

    def prefill_ns(self, tok: int, now_ns: int) -> float | None:
        return 1.0 * MS * tok


@pytest.fixture
def build(
    make_book: Callable[..., Any], class_spec: Callable[..., Any], pool_spec: Callable[..., Any]
) -> Callable[..., Any]:
    """Chat stops loop after two seconds and batch at once; loop stops batch."""

    def make(seats: int = 3, keeps_prefix: bool = False, **fields: Any) -> Any:
        classes = (
            class_spec(name="chat", preempts=True),
            class_spec(
                name="loop", rank=1, preempts=True, preemptible=True, preempt_grace_ns=2 * S
            ),
            class_spec(name="batch", rank=2, preemptible=True, max_queued_tok=9000),
        )
        limits = {name: fields.pop(name) for name in ("max_in_flight",) if name in fields}
        pool = replace(pool_spec("a", max_seqs=seats, **fields), keeps_prefix=keeps_prefix)
        book = make_book(classes, (pool,), **limits)
        book.pools["a"]._weight = 1.0
        return book

    return make


@pytest.fixture
def run(request_spec: Callable[..., Any], seat: Any) -> Callable[..., Any]:
    """One that runs and has made so much."""

    def build(book: Any, rid: int, output_tok: int = 5, class_: str = "batch", **more: Any) -> Any:
        plain = {"max_tok": 500, "resume": Resume.RESTART}
        record = seat(book, request_spec(rid, class_, **(plain | more)))
        record.move(Move.START)
        record.computed_tok, record.output_tok = 10, output_tok
        return record

    return build


def learn(book: Any, output_tok: int = 100) -> None:
    for i in range(60):
        book.pools["a"].lengths.ended("batch", f"p{i % 3}", "", output_tok, finished=True)
    book.pools["a"].pace = FixedPace()


def plan(book: Any, now_ns: int = 0) -> tuple[list[int], list[int | None], int | None]:
    """Who is stopped, for which ranks, and when to look again."""
    found = preempt.plan(book, book.pools["a"], now_ns)
    return (
        [stop.record.rid for stop in found.stops],
        [stop.for_rank for stop in found.stops],
        found.wake_ns,
    )


# --- may it be stopped ----------------------------------------------------------------------------


def test_who_may_be_stopped(build: Any, run: Any) -> None:
    book = build()
    record = run(book, 1)
    assert preempt.may_stop(book, record, 0, None)
    assert preempt.may_stop(book, record, 1, 0)
    assert not preempt.may_stop(book, record, 2, None), "for its own rank"
    queue = book.queues["batch"]
    queue.spec = replace(queue.spec, preemptible=False)
    assert not preempt.may_stop(book, record, 0, None)
    queue.spec = replace(queue.spec, preemptible=True)
    record.spec = replace(record.spec, resume=Resume.NEVER)
    assert not preempt.may_stop(book, record, 0, None)
    record.spec = replace(record.spec, resume=Resume.RESTART)
    assert preempt.may_stop(book, record, 0, None)
    record.aborted = Refusal(Refused.DEADLINE_EXCEEDED, "")
    assert not preempt.may_stop(book, record, 0, None)


@pytest.mark.parametrize(("waited_ns", "may"), [(None, True), (2 * S - 1, False), (2 * S, True)])
def test_a_class_lets_others_wait_for_its_grace(
    build: Any, run: Any, waited_ns: int | None, may: bool
) -> None:
    book = build()
    assert preempt.may_stop(book, run(book, 1, class_="loop"), 0, waited_ns) is may


def test_what_waits_or_is_over_is_not_stopped(
    build: Any, run: Any, wait: Any, settle: Any, request_spec: Callable[..., Any]
) -> None:
    book = build()
    waits = wait(book, request_spec(8, "batch", resume=Resume.RESTART))
    assert not preempt.may_stop(book, waits, 0, None)
    over = run(book, 1)
    settle(book, over)
    assert not preempt.may_stop(book, over, 0, None)


def test_nobody_is_stopped_beyond_what_its_class_may_have_computed_again(
    build: Any, run: Any
) -> None:
    book = build()
    record = run(book, 1, 90)
    book.allowances["batch"].spend(BURST_TOK - 100)
    assert preempt.may_stop(book, record, 0, None)
    record.output_tok += 1
    assert not preempt.may_stop(book, record, 0, None)
    book.allowances["loop"].spend(BURST_TOK)
    record.output_tok -= 1
    assert preempt.may_stop(book, record, 0, None), "each class for itself"


# --- for a seat -----------------------------------------------------------------------------------


def test_where_nobody_waits_nobody_is_stopped(build: Any, run: Any) -> None:
    book = build(seats=1)
    run(book, 1)
    assert preempt.plan(book, book.pools["a"], 0) is NOBODY


def test_least_to_lose_of_the_worst_rank_is_stopped_for_the_first(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=4)
    run(book, 1, 1, "loop")
    run(book, 2, 30)
    run(book, 3, 20)
    run(book, 4, 20)
    wait(book, request_spec(8, "chat"))
    wait(book, request_spec(9, "loop"))
    assert plan(book) == ([4, 3], [0, 1], None)


@pytest.mark.parametrize(("left_tok", "stops"), [(39, 0), (79, 1), (80, 2), (130, 3)])
def test_those_of_one_plan_share_what_may_be_computed_again(
    build: Any, run: Any, wait: Any, request_spec: Any, left_tok: int, stops: int
) -> None:
    """Each has made 30 and has a prompt of 10."""
    book = build(seats=3)
    for rid in (3, 2, 1):
        run(book, rid, 30)
    for rid in (7, 8, 9):
        wait(book, request_spec(rid, "chat"))
    book.allowances["batch"].spend(BURST_TOK - left_tok)
    assert len(plan(book)[0]) == stops


def test_those_behind_a_class_that_stops_nobody_wait_with_it(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2)
    run(book, 1)
    run(book, 2)
    wait(book, request_spec(8, "chat"))
    wait(book, request_spec(9, "loop"))
    queue = book.queues["chat"]
    queue.spec = replace(queue.spec, preempts=False)
    assert plan(book) == ([], [], None)


def test_behind_a_closed_class_others_do_not_wait(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2)
    run(book, 1)
    run(book, 2)
    wait(book, request_spec(8, "chat"))
    wait(book, request_spec(9, "loop"))
    book.closed["chat"] = None
    assert plan(book) == ([2], [1], None)


def test_no_more_are_stopped_than_wait_and_than_there_are_seats(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2)
    for rid in (1, 2):
        run(book, rid)
    for rid in range(10, 16):
        wait(book, request_spec(rid, "chat"))
    assert plan(book) == ([2, 1], [0, 0], None)


def test_seats_that_are_coming_are_counted_on(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=3)
    for rid in (1, 2, 3):
        run(book, rid)
    book.records[3].move(Move.PREEMPT)
    book.pools["a"].stopping = 1
    wait(book, request_spec(8, "chat"))
    assert plan(book) == ([], [], 250 * MS)
    wait(book, request_spec(9, "chat"))
    assert plan(book)[:2] == ([2], [0])


@pytest.mark.parametrize(("now_ns", "stops"), [(S + 250 * MS - 1, []), (S + 250 * MS, [1])])
def test_a_seat_whose_engine_is_silent_is_counted_on_for_a_while(
    build: Any,
    run: Any,
    wait: Any,
    settle: Any,
    request_spec: Callable[..., Any],
    now_ns: int,
    stops: list[int],
) -> None:
    book = build(seats=2)
    run(book, 1)
    over = run(book, 2)
    settle(book, over)
    over.settled_ns = S
    wait(book, request_spec(8, "chat"))
    assert plan(book, now_ns)[0] == stops


def test_the_next_look_is_when_the_grace_is_over(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=1)
    run(book, 1, class_="loop")
    wait(book, request_spec(8, "chat", arrived_ns=S))
    assert plan(book, 2 * S) == ([], [], 3 * S)
    assert plan(book, 3 * S) == ([1], [0], None)


def test_of_two_looks_the_sooner_is_taken(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2)
    run(book, 1, class_="loop")
    run(book, 2, class_="loop").move(Move.PREEMPT)
    book.pools["a"].stopping = 1
    for rid in (8, 9):
        wait(book, request_spec(rid, "chat"))
    assert plan(book, 2 * S - MS) == ([], [], 2 * S)
    assert plan(book, S) == ([], [], S + 250 * MS)


# --- what comes by itself -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "stops"),
    [([99, 5], []), ([60, 5], [2]), ([99, 99], [])],
)
def test_a_seat_that_comes_probably_is_waited_for(
    build: Any,
    run: Any,
    wait: Any,
    request_spec: Callable[..., Any],
    made: list[int],
    stops: list[int],
) -> None:
    book = build(seats=2)
    learn(book)
    for rid, tok in enumerate(made, 1):
        run(book, rid, tok)
    wait(book, request_spec(8, "chat"))
    assert plan(book, S)[0] == stops


def test_for_two_that_wait_one_that_comes_is_not_enough(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2)
    learn(book)
    run(book, 1, 99)
    run(book, 2, 5)
    for rid in (8, 9):
        wait(book, request_spec(rid, "chat"))
    assert plan(book, S) == ([2], [0], S + 250 * MS)


def test_without_a_pace_nobody_is_waited_for(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=1)
    learn(book)
    book.pools["a"].pace.step = None
    run(book, 1, 99)
    wait(book, request_spec(8, "chat"))
    assert plan(book) == ([1], [0], None)


@pytest.mark.parametrize(("max_tok", "stops"), [(30, []), (31, [1])])
def test_who_comes_to_its_limit_ends(
    build: Any,
    run: Any,
    wait: Any,
    request_spec: Callable[..., Any],
    max_tok: int,
    stops: list[int],
) -> None:
    book = build(seats=1)
    book.pools["a"].pace = FixedPace()
    run(book, 1, 5, max_tok=max_tok)
    wait(book, request_spec(8, "chat"))
    assert plan(book, S)[0] == stops


@pytest.mark.parametrize(("prompt_tok", "stops"), [(230, []), (260, [1])])
def test_a_prompt_is_computed_before_it_ends(
    build: Any,
    run: Any,
    wait: Any,
    request_spec: Callable[..., Any],
    prompt_tok: int,
    stops: list[int],
) -> None:
    """250 ms from now; of the prompt ten tokens are computed, and two are to be made."""
    book = build(seats=1)
    book.pools["a"].pace = FixedPace()
    run(book, 1, 0, prompt_tok=prompt_tok, max_tok=2)
    wait(book, request_spec(8, "chat"))
    assert plan(book, S)[0] == stops


@pytest.mark.parametrize(
    ("keeps", "resume", "stops"),
    [(True, Resume.EXACT, [1]), (False, Resume.EXACT, []), (True, Resume.RESTART, [])],
)
def test_where_a_stop_costs_nothing_nothing_is_waited_for(
    build: Any,
    run: Any,
    wait: Any,
    request_spec: Callable[..., Any],
    keeps: bool,
    resume: Resume,
    stops: list[int],
) -> None:
    book = build(seats=1, keeps_prefix=keeps)
    learn(book)
    run(book, 1, 99, resume=resume)
    wait(book, request_spec(8, "chat"))
    assert plan(book)[0] == stops


def test_a_prompt_of_which_nobody_knows_how_long_it_takes_counts_as_nothing(
    build: Any,
    run: Any,
    wait: Any,
    request_spec: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FixedPace, "prefill_ns", lambda *_: None)
    book = build(seats=1)
    book.pools["a"].pace = FixedPace()
    run(book, 1, 0, prompt_tok=900, max_tok=2)
    wait(book, request_spec(8, "chat"))
    assert plan(book)[0] == []


def test_where_a_stop_costs_nothing_nobody_is_looked_at_again_for_it(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2, keeps_prefix=True)
    for rid in (1, 2):
        run(book, rid, resume=Resume.EXACT)
    book.records[2].move(Move.PREEMPT)
    book.pools["a"].stopping = 1
    wait(book, request_spec(8, "chat"))
    assert plan(book) == ([], [], None)


def test_where_all_are_protected_nobody_is_stopped(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=1, keeps_prefix=True)
    run(book, 1, resume=Resume.EXACT).prepaid_tok = 5
    wait(book, request_spec(8, "chat"))
    assert plan(book) == ([], [], None)


def test_one_step_is_enough_for_one_token(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=1)
    book.pools["a"].pace = FixedPace()
    book.pools["a"].pace.step = 200.0 * MS
    run(book, 1, 5, max_tok=6)
    wait(book, request_spec(8, "chat"))
    assert plan(book)[0] == []


def test_two_that_come_to_their_limits_are_two(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=3)
    book.pools["a"].pace = FixedPace()
    run(book, 1, 5, max_tok=10)
    run(book, 2, 5, max_tok=10)
    run(book, 3, 50)
    for rid in (7, 8):
        wait(book, request_spec(rid, "chat"))
    assert plan(book, S)[0] == []
    wait(book, request_spec(9, "chat"))
    assert plan(book, S)[0] == [2], "which loses least"


def test_of_a_lower_class_that_stops_nobody_none_is_a_cause(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2)
    for rid in (1, 2):
        run(book, rid)
    queue = book.queues["loop"]
    queue.spec = replace(queue.spec, preempts=False)
    wait(book, request_spec(8, "chat"))
    wait(book, request_spec(9, "loop"))
    assert plan(book) == ([2], [0], None)


@pytest.mark.parametrize(
    ("ends", "most", "sure"),
    [
        ([], 3, 0),
        ([SURE], 1, 1),
        ([SURE - 0.01], 1, 0),
        ([1.0, 1.0, 1.0], 2, 2),
        ([1.0, 0.5, 0.5], 3, 1),
        ([0.6, 0.6], 2, 1),  # 0.84 that one does, 0.36 that both do
        ([0.5, 0.5], 2, 0),  # 0.75
        ([0.9, 0.9, 0.9], 3, 2),  # 0.972 and 0.729
        ([1.0, 1.0], 0, 0),
    ],
)
def test_how_many_end_for_sure(ends: list[float], most: int, sure: int) -> None:
    assert preempt._sure(ends, most) == sure


# --- protection -----------------------------------------------------------------------------------


def test_what_is_protected_is_passed_over_up_to_half_of_the_seats(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=4)
    for rid in (1, 2, 3):
        run(book, rid, 10 * rid).prepaid_tok = 5
    run(book, 4, 90)
    wait(book, request_spec(8, "chat"))
    # Those with the most to lose are protected first, and of three only two.
    assert plan(book)[0] == [1]
    wait(book, request_spec(9, "chat"))
    assert plan(book)[0] == [1, 4]
    wait(book, request_spec(10, "chat"))
    assert plan(book)[0] == [1, 4]


def test_whoever_cannot_be_stopped_anyway_takes_no_protection_from_others(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=2)
    queue = book.queues["loop"]
    queue.spec = replace(queue.spec, preemptible=False)
    run(book, 1, 50, "loop").prepaid_tok = 5
    run(book, 2, 20).prepaid_tok = 5
    wait(book, request_spec(8, "chat"))
    assert plan(book) == ([], [], None)


# --- for cache ------------------------------------------------------------------------------------


@pytest.fixture
def cramped(build: Any, run: Any) -> Any:
    """Three of 30 in a cache of 100."""
    book = build(seats=8, kv_tok=100)
    for rid in (1, 2, 3):
        run(book, rid, 10 * rid, max_tok=20)
    for rid in (1, 2, 3):
        book.records[rid].reserved_tok = 20
        book.records[rid].output_tok = 0
        book.records[rid].computed_tok = rid
    return book


@pytest.mark.parametrize(("tok", "stops"), [(10, []), (11, [1]), (40, [1]), (41, [1, 2])])
def test_as_few_as_are_enough_are_stopped_for_cache(
    cramped: Any,
    wait: Any,
    request_spec: Callable[..., Any],
    tok: int,
    stops: list[int],
) -> None:
    wait(cramped, request_spec(9, "chat", prompt_tok=tok - 5, max_tok=5))
    found, ranks, _ = plan(cramped)
    assert found == stops
    assert ranks == [0, None][: len(stops)], "one seat is enough"


def test_for_cache_nobody_is_stopped_where_all_are_not_enough(
    cramped: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    cramped.records[1].aborted = Refusal(Refused.DEADLINE_EXCEEDED, "")
    wait(cramped, request_spec(9, "chat", prompt_tok=66, max_tok=5))
    assert plan(cramped) == ([], [], None)
    cramped.records[1].aborted = None
    assert plan(cramped)[0] == [1, 2, 3]


def test_a_grace_holds_for_cache_from_the_arrival_on(
    build: Any, run: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    book = build(seats=8, kv_tok=100)
    run(book, 1, 0, "loop", max_tok=80)
    wait(book, request_spec(9, "chat", prompt_tok=20, max_tok=5, arrived_ns=3 * S))
    assert plan(book, 5 * S - 1)[0] == []
    assert plan(book, 5 * S)[0] == [1]


def test_cache_that_is_coming_is_waited_for(
    cramped: Any, wait: Any, request_spec: Callable[..., Any]
) -> None:
    wait(cramped, request_spec(9, "chat", prompt_tok=20, max_tok=5))
    cramped.records[1].move(Move.PREEMPT)
    cramped.pools["a"].stopping = 1
    assert plan(cramped) == ([], [], None)


# --- for a pool -----------------------------------------------------------------------------------


@pytest.fixture
def two(
    build: Any, pool_spec: Callable[..., Any], request_spec: Callable[..., Any], wait: Any
) -> Any:
    """A chat waits for b, which is cold."""
    book = build()
    book.pools["b"] = type(book.pools["a"])(pool_spec("b", PoolState.COLD))
    wait(book, request_spec(9, "chat", "b"))
    return book


def for_switch(book: Any) -> list[tuple[int, int | None]]:
    return [(stop.record.rid, stop.for_rank) for stop in preempt.for_switch(book, "b").stops]


def test_everybody_is_stopped_for_a_switch(two: Any, run: Any) -> None:
    run(two, 1)
    run(two, 2, class_="loop")
    assert for_switch(two) == [(1, None), (2, None)]
    two.records[1].move(Move.PREEMPT)
    assert for_switch(two) == [(2, None)]


def test_nobody_is_where_somebody_has_to_finish(two: Any, run: Any) -> None:
    run(two, 1)
    run(two, 2, class_="chat")
    assert for_switch(two) == []


def test_nobody_is_where_somebody_has_a_quantum_to_use(two: Any, run: Any) -> None:
    run(two, 1)
    run(two, 2).prepaid_tok = 5
    assert for_switch(two) == []
    two.records[2].prepaid_tok = 0
    assert for_switch(two) == [(1, None), (2, None)]


def test_nobody_is_for_a_class_that_stops_nobody_or_for_nobody(two: Any, run: Any) -> None:
    run(two, 1)
    queue = two.queues["chat"]
    queue.spec = replace(queue.spec, preempts=False)
    assert for_switch(two) == []
    queue.spec = replace(queue.spec, preempts=True)
    two.closed["chat"] = None
    assert for_switch(two) == []


# --- an overshoot ---------------------------------------------------------------------------------


def overshooting(book: Any) -> int | None:
    record = preempt.overshooting(book, book.pools["a"])
    return None if record is None else record.rid


def test_whoever_is_of_the_worst_rank_and_loses_least_makes_room(cramped: Any, run: Any) -> None:
    assert overshooting(cramped) is None
    run(cramped, 4, 1, "loop", max_tok=1)
    assert cramped.pools["a"].ledger.kv_tok == 101
    assert overshooting(cramped) == 1
    cramped.records[1].computed_tok = 2
    assert overshooting(cramped) == 2, "of equals the newest"


def test_a_cache_that_is_full_to_the_brim_overshoots_nothing(cramped: Any, run: Any) -> None:
    cramped.pools["a"].ledger.adjust(1, kv_tok=40)
    assert cramped.pools["a"].ledger.kv_tok == 100
    assert overshooting(cramped) is None
    cramped.pools["a"].ledger.adjust(1, kv_tok=41)
    assert overshooting(cramped) == 1


def test_of_two_one_makes_room_and_what_is_over_is_none_of_them(cramped: Any, settle: Any) -> None:
    cramped.pools["a"].ledger.adjust(2, kv_tok=500)
    settle(cramped, cramped.records[1])
    assert overshooting(cramped) == 2
    settle(cramped, cramped.records[3])
    assert overshooting(cramped) is None, "somebody has to go on"


@pytest.mark.parametrize("why", ["stopping", "alone", "no cache known"])
def test_an_overshoot_is_left_to_the_engine(
    cramped: Any, settle: Any, pool_spec: Callable[..., Any], why: str
) -> None:
    pool = cramped.pools["a"]
    pool.ledger.adjust(1, kv_tok=500)
    assert overshooting(cramped) == 1
    if why == "stopping":
        pool.stopping = 1
    elif why == "alone":
        for rid in (2, 3):
            cramped.records[rid].spec = replace(cramped.records[rid].spec, resume=Resume.NEVER)
    else:
        pool.spec = pool_spec("a")
    assert overshooting(cramped) is None
