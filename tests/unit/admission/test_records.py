"""What a request costs, and what is remembered of requests and pools."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission.fairness import Account
from onegate.admission.lifecycle import IllegalMove, Move, State
from onegate.admission.model import PoolState, Reservation, Resume
from onegate.admission.records import (
    GROW_QUANTILE,
    USUAL_WEIGHT,
    WEIGH_EVERY_NS,
    WEIGHED_TOK,
    Pool,
    Record,
    kv_cost,
    queue_cost,
    reserved_output,
    rounded,
)

GROW, FULL, PER_SLOT = Reservation.GROW, Reservation.FULL, Reservation.PER_SLOT


@pytest.mark.parametrize(
    ("tok", "block_tok", "whole"), [(0, 16, 0), (1, 16, 16), (16, 16, 16), (17, 16, 32), (5, 1, 5)]
)
def test_the_cache_has_whole_blocks(tok: int, block_tok: int, whole: int) -> None:
    assert rounded(tok, block_tok) == whole


@pytest.mark.parametrize(("reservation", "cost"), [(GROW, 32), (FULL, 32), (PER_SLOT, 0)])
def test_kv_is_charged_as_the_engine_reserves(
    pool_spec: Callable[..., Any], reservation: Reservation, cost: int
) -> None:
    capacity = pool_spec(reservation=reservation, block_tok=16).capacity
    assert kv_cost(capacity, 10, 7) == cost


@pytest.mark.parametrize(("reservation", "cost"), [(GROW, 17), (FULL, 17), (PER_SLOT, 10)])
def test_a_waiting_request_counts_prompt_and_what_is_reserved(
    pool_spec: Callable[..., Any], reservation: Reservation, cost: int
) -> None:
    capacity = pool_spec(reservation=reservation, block_tok=16).capacity
    assert queue_cost(capacity, 10, 7) == cost


@pytest.mark.parametrize("reservation", Reservation)
def test_nothing_waits_for_free(pool_spec: Callable[..., Any], reservation: Reservation) -> None:
    assert queue_cost(pool_spec(reservation=reservation).capacity, 0, 0) == 1


class Curve:
    """Nine of ten answers are that long, or nobody knows."""

    def __init__(self, p90_tok: int | None) -> None:
        self.p90_tok = p90_tok

    def quantile(self, q: float) -> int | None:
        assert q == GROW_QUANTILE == 0.9
        return self.p90_tok


@pytest.mark.parametrize(
    ("reservation", "p90_tok", "likely_tok", "reserved"),
    [
        (GROW, 30, None, 30),
        (GROW, 300, None, 200),
        (GROW, 0, None, 1),
        (GROW, None, None, 200),
        (FULL, 30, None, 200),
        # One without a bound: what is likely, until lengths are known.
        (GROW, None, 50, 50),
        (GROW, 30, 50, 30),
        (GROW, 90, 50, 90),
        (FULL, None, 50, 200),
    ],
)
def test_as_much_output_is_reserved_as_the_like_make(
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    reservation: Reservation,
    p90_tok: int | None,
    likely_tok: int | None,
    reserved: int,
) -> None:
    capacity = pool_spec(reservation=reservation).capacity
    curve: Any = Curve(p90_tok)
    spec = request_spec(1, max_tok=200, likely_tok=likely_tok)
    assert reserved_output(capacity, spec, curve) == reserved


@pytest.mark.parametrize("reservation", Reservation)
def test_all_is_reserved_where_no_length_is_known(
    pool_spec: Callable[..., Any], request_spec: Callable[..., Any], reservation: Reservation
) -> None:
    capacity = pool_spec(reservation=reservation).capacity
    assert reserved_output(capacity, request_spec(1, max_tok=200), None) == 200


@pytest.fixture
def record(request_spec: Callable[..., Any], account: Account) -> Record:
    return Record(request_spec(7, prompt_tok=10, max_tok=20), 1, 10, 0, account, 20)


def test_a_new_request_waits_and_has_had_nothing(record: Record) -> None:
    assert record.state is State.QUEUED
    assert (record.computed_tok, record.output_tok, record.prepaid_tok) == (0, 0, 0)
    assert (record.safety_ns, record.aborted) == (None, None)
    assert not record.exempt
    assert not record.by_floor


def test_a_request_holds_a_permit_from_grant_to_settle(record: Record) -> None:
    assert record.rid == 7
    held = [record.held]
    for move in (Move.GRANT, Move.START, Move.PREEMPT, Move.SETTLE):
        record.move(move)
        held.append(record.held)
    assert held == [False, True, True, True, False]
    assert record.state is State.SETTLED


def test_an_illegal_move_changes_nothing(record: Record) -> None:
    with pytest.raises(IllegalMove, match="request 7 is queued"):
        record.move(Move.SETTLE)
    assert record.state is State.QUEUED


@pytest.mark.parametrize(("reservation", "tok"), [(GROW, 30), (FULL, 30), (PER_SLOT, 0)])
def test_a_seat_is_charged_for_the_whole_answer(
    record: Record, pool_spec: Callable[..., Any], reservation: Reservation, tok: int
) -> None:
    capacity = pool_spec(reservation=reservation).capacity
    assert record.kv_tok(capacity) == tok
    record.output_tok = 5
    assert record.kv_tok(capacity) == tok


def test_an_engine_that_says_more_than_it_may_is_charged_that(
    record: Record, pool_spec: Callable[..., Any]
) -> None:
    record.output_tok = 25
    assert record.kv_tok(pool_spec().capacity) == 35


@pytest.mark.parametrize(
    ("reservation", "tok"),
    [(GROW, 15), (FULL, 30), (PER_SLOT, 0)],
    ids=["what was computed", "the whole", "a slot"],
)
def test_what_a_quarantined_seat_holds(
    record: Record, pool_spec: Callable[..., Any], reservation: Reservation, tok: int
) -> None:
    record.output_tok = 5
    record.move(Move.GRANT)
    record.move(Move.SETTLE)
    assert record.kv_tok(pool_spec(reservation=reservation).capacity) == tok


def test_a_seat_is_charged_for_what_is_reserved_and_for_more_once_it_is_made(
    record: Record, pool_spec: Callable[..., Any]
) -> None:
    record.reserved_tok = 5
    capacity = pool_spec().capacity
    assert record.kv_tok(capacity) == 15
    record.output_tok = 8
    assert record.kv_tok(capacity) == 18


def test_prompt_and_kept_output_are_prefilled(record: Record) -> None:
    record.prompt_tok, record.kept_tok = 12, 7
    assert record.prefill_tok == 19


@pytest.mark.parametrize(
    ("output_tok", "kept_tok", "made_tok"),
    [(0, 0, 0), (5, 0, 5), (7, 7, 0), (9, 7, 2), (3, 7, 0)],
)
def test_what_this_run_has_made(
    record: Record, output_tok: int, kept_tok: int, made_tok: int
) -> None:
    record.output_tok, record.kept_tok = output_tok, kept_tok
    assert record.made_tok == made_tok


@pytest.mark.parametrize(
    ("resume", "at_first", "with_output"),
    [
        (Resume.EXACT, True, True),
        (Resume.RESTART, True, True),
        (Resume.UNSEEN, True, False),
        (Resume.NEVER, False, False),
    ],
)
def test_what_can_be_stopped(
    record: Record, resume: Resume, at_first: bool, with_output: bool
) -> None:
    record.spec = replace(record.spec, resume=resume)
    assert record.can_stop is at_first
    record.output_tok = 1
    assert record.can_stop is with_output


@pytest.mark.parametrize("state", PoolState)
def test_only_a_ready_pool_takes_work(pool_spec: Callable[..., Any], state: PoolState) -> None:
    assert Pool(pool_spec("a", state)).ready is (state is PoolState.READY)


def test_a_pool_that_is_ready_from_the_start_was_never_away(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    assert (pool.excused_ns(100), pool.excused_settled_ns) == (0, 0)
    assert pool.capacity is pool.spec.capacity


def test_the_time_away_grows_until_the_pool_is_ready(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec("a", PoolState.COLD))
    before = pool.excused_ns(100)
    assert pool.excused_ns(130) - before == 30
    assert pool.excused_settled_ns is None
    pool.become(pool_spec("a", PoolState.LOADING), 130)
    assert pool.excused_ns(150) - before == 50
    pool.become(pool_spec("a", PoolState.READY), 150)
    assert pool.excused_ns(900) - before == 50
    assert pool.excused_settled_ns == pool.excused_ns(900)


def test_the_time_away_adds_up_over_the_years(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    for away_ns, back_ns in ((100, 130), (500, 600)):
        pool.become(pool_spec("a", PoolState.COLD), away_ns)
        pool.become(pool_spec(), back_ns)
        assert pool.ready_since_ns == back_ns
    assert pool.excused_settled_ns == 130
    pool.become(pool_spec("a", PoolState.LOADING), 1000)
    assert pool.excused_ns(1010) == 140


def test_a_pool_that_has_failed_excuses_nobody(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    pool.become(pool_spec("a", PoolState.LOADING), 100)
    pool.become(pool_spec("a", PoolState.FAILED), 130)
    assert pool.excused_ns(900) == pool.excused_settled_ns == 30
    pool.become(pool_spec("a", PoolState.LOADING), 900)
    assert pool.excused_settled_ns is None
    pool.become(pool_spec(), 950)
    assert (pool.excused_settled_ns, pool.ready_since_ns) == (80, 950)


def test_a_pool_that_served_somebody_is_away_from_then_on(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    pool.become(pool_spec("a", PoolState.COLD), 100)
    assert pool.away_since_ns == 0
    pool.become(pool_spec(), 150)
    pool.served = True
    pool.become(pool_spec("a", PoolState.COLD), 200)
    assert (pool.away_since_ns, pool.served) == (200, False)
    pool.become(pool_spec("a", PoolState.LOADING), 300)
    assert pool.away_since_ns == 200


def test_a_pool_that_stays_ready_has_not_gone_away(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    assert not pool.served
    pool.served = True
    pool.become(pool_spec(max_seqs=9), 100)
    assert (pool.away_since_ns, pool.served) == (0, True)


def test_a_pool_that_failed_is_away_from_then_on(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec("a", PoolState.LOADING))
    pool.become(pool_spec("a", PoolState.FAILED), 100)
    assert pool.away_since_ns == 100
    pool.become(pool_spec("a", PoolState.COLD), 200)
    assert pool.away_since_ns == 100


def test_a_turn_ends_when_the_pool_goes_or_does_not_come(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec("a", PoolState.COLD))
    turns = []
    for state in (PoolState.LOADING, PoolState.READY, PoolState.READY, PoolState.COLD):
        if state is PoolState.LOADING:
            pool.ask_load(100, in_turn=True)
        pool.become(pool_spec("a", state), 110)
        turns.append(pool.in_turn)
    assert turns == [True, True, True, False]
    pool.ask_load(200, in_turn=True)
    pool.become(pool_spec("a", PoolState.FAILED), 210)
    assert not pool.in_turn


def test_a_ready_pool_that_changes_its_size_was_not_away(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    pool.become(pool_spec(max_seqs=9), 100)
    assert (pool.capacity.max_seqs, pool.excused_ns(300), pool.ready_since_ns) == (9, 0, 0)


@pytest.mark.parametrize("state", PoolState)
def test_a_load_is_asked_for_until_it_is_done_or_failed(
    pool_spec: Callable[..., Any], state: PoolState
) -> None:
    pool = Pool(pool_spec("a", PoolState.COLD))
    pool.ask_load(100, in_turn=False)
    assert (pool.load_asked_ns, pool.in_turn) == (100, False)
    pool.become(pool_spec("a", state), 120)
    pending = state in (PoolState.COLD, PoolState.LOADING)
    assert pool.load_asked_ns == (100 if pending else None)


@pytest.mark.parametrize(
    ("kept", "rank", "left"),
    [
        ([], 0, []),
        ([1], 1, []),
        ([1], 0, []),
        ([0], 1, [0]),  # it is for a better one
        ([2, 0, 1], 1, [2, 0]),  # the one that is nearest to it
        ([0, 0], 0, [0]),
    ],
)
def test_whoever_starts_takes_a_seat_that_was_made_free_for_it_or_for_lower_ones(
    pool_spec: Callable[..., Any], kept: list[int], rank: int, left: list[int]
) -> None:
    pool = Pool(pool_spec())
    pool.kept = kept
    pool.take_kept(rank)
    assert pool.kept == left


def taught(pool: Pool, request_spec: Callable[..., Any]) -> bool:
    """Does it still know how long answers are?"""
    return pool.curve(request_spec(1)) is not None


def test_what_was_learned_holds_for_one_identity(
    pool_spec: Callable[..., Any], request_spec: Callable[..., Any]
) -> None:
    pool = Pool(replace(pool_spec(), identity="one"))
    assert not taught(pool, request_spec)
    for _ in range(40):
        pool.lengths.ended("chat", "alice", "", 50, finished=True)
    assert taught(pool, request_spec)
    pool.become(replace(pool_spec(max_seqs=9), identity="one"), 100)
    pool.become(replace(pool_spec("a", PoolState.COLD), identity="one"), 200)
    assert taught(pool, request_spec)
    pool.become(replace(pool_spec(), identity="two"), 300)
    assert not taught(pool, request_spec)


def test_the_pace_of_another_engine_is_forgotten(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(replace(pool_spec(), identity="one"))
    pool.pace.granted(1, 10, 0)
    for step in range(60):
        pool.pace.produced(1, 1, step * 10**7)
    now_ns = 60 * 10**7
    assert pool.pace.step_ns(1, 0, now_ns) == pytest.approx(10**7)
    pool.become(replace(pool_spec(), identity="two"), now_ns)
    assert pool.pace.step_ns(1, 0, now_ns) is None


def test_what_was_computed_within_the_window(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    second = 10**9
    assert pool.computed_in(10 * second, 100, 0) == 100
    assert pool.computed_in(10 * second, 20, 5 * second) == 120
    assert pool.computed_in(10 * second, 3, 11 * second) == 23
    assert pool.computed_in(4 * second, 1, 11 * second) == 1, "another window begins anew"


class Paced:
    """A step takes `step_ns`, and `more_ns` with a prompt to compute."""

    def __init__(self, step_ns: float | None, more_ns: float | None) -> None:
        self.times = {0: step_ns, WEIGHED_TOK: more_ns}
        self.asked: set[int] = set()

    def step_ns(self, *, decode_seqs: int, prefill_tok: int, now_ns: int) -> float | None:
        self.asked.add(decode_seqs)
        return self.times[prefill_tok]


def weight(pool: Pool, step_ns: float | None, more_ns: float | None, now_ns: int = 0) -> float:
    pool.pace = Paced(step_ns, more_ns)  # type: ignore[assignment]
    pool.weigh(now_ns)
    return pool.weight


@pytest.mark.parametrize(
    ("step_ns", "more_ns", "known"),
    [
        (10.0, 10.0 + 0.5 * WEIGHED_TOK, 0.05),
        (10.0, 10.0, 0.0),
        (10.0, 9.0, 0.0),
        (10.0, 10.0 + 50.0 * WEIGHED_TOK, 1.0),
        (None, 10.0, USUAL_WEIGHT),
        (10.0, None, USUAL_WEIGHT),
        (0.0, 10.0, USUAL_WEIGHT),
    ],
)
def test_what_a_prompt_token_costs_beside_one_of_output(
    pool_spec: Callable[..., Any], step_ns: float | None, more_ns: float | None, known: float
) -> None:
    assert weight(Pool(pool_spec()), step_ns, more_ns) == pytest.approx(known)


def test_beside_more_sequences_a_token_of_output_costs_less(
    pool_spec: Callable[..., Any],
) -> None:
    pool = Pool(pool_spec(max_seqs=4))
    for rid in range(4):
        pool.ledger.charge(rid, rank=0, kv_tok=0, prompt_tok=0)
    assert weight(pool, 10.0, 10.0 + 0.5 * WEIGHED_TOK) == pytest.approx(0.2)
    assert pool.pace.asked == {4}  # type: ignore[attr-defined]


def test_the_weight_is_learned_anew_once_in_a_while(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    assert weight(pool, 10.0, 10.0, now_ns=5) == 0.0
    assert weight(pool, 10.0, 10**6, now_ns=5 + WEIGH_EVERY_NS - 1) == 0.0
    assert weight(pool, 10.0, 10**6, now_ns=5 + WEIGH_EVERY_NS) == 1.0


def test_whether_it_was_weighed_is_told(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    pool.pace = Paced(10.0, 10.0)  # type: ignore[assignment]
    assert [pool.weigh(now_ns) for now_ns in (0, 1, WEIGH_EVERY_NS)] == [True, False, True]


def test_how_many_answers_full_seats_finish(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec(max_seqs=4))
    pool.pace = Paced(10.0, None)  # type: ignore[assignment]
    assert pool.turnover("chat", 500, 0) is None, "nobody knows how long they are"
    for i in range(60):
        pool.lengths.ended("chat", f"p{i % 3}", "", 100, finished=True)
    # Four seats; an answer takes a hundred steps of 10, and a prompt token a tenth of one.
    assert pool.turnover("chat", 0, 0) == pytest.approx(4 / (10 * 100), rel=0.15)
    short = pool.turnover("chat", 0, 0)
    assert short is not None
    assert pool.turnover("chat", 500, 0) == pytest.approx(1 / (1 / short + 10 * 50 / 4))
    assert pool.turnover("batch", 0, 0) is None
    assert pool.pace.asked == {4}  # type: ignore[attr-defined]
    pool.pace = Paced(None, None)  # type: ignore[assignment]
    assert pool.turnover("chat", 0, 0) is None, "nor how long a step takes"
