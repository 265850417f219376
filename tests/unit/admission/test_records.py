"""What a request costs, and what is remembered of requests and pools."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.admission.lifecycle import IllegalMove, Move, State
from onegate.admission.model import PoolState, Reservation
from onegate.admission.records import Pool, Record, kv_cost, queue_cost, rounded

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


@pytest.fixture
def record(request_spec: Callable[..., Any]) -> Record:
    return Record(request_spec(7, prompt_tok=10, max_tok=20), 1, 10, 0)


def test_a_new_request_waits_and_has_had_nothing(record: Record) -> None:
    assert record.state is State.QUEUED
    assert (record.computed_tok, record.output_tok, record.prepaid_tok) == (0, 0, 0)
    assert (record.safety_ns, record.aborted) == (None, None)
    assert not record.exempt
    assert not record.by_floor


def test_a_request_holds_a_permit_from_grant_to_settle(record: Record) -> None:
    assert record.rid == 7
    held = [record.held]
    for move in (Move.GRANT, Move.START, Move.SETTLE):
        record.move(move)
        held.append(record.held)
    assert held == [False, True, True, False]
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


@pytest.mark.parametrize("state", PoolState)
def test_only_a_ready_pool_takes_work(pool_spec: Callable[..., Any], state: PoolState) -> None:
    assert Pool(pool_spec("a", state)).ready is (state is PoolState.READY)


def test_a_pool_that_is_ready_from_the_start_was_never_away(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    assert (pool.unready_ns(100), pool.unready_settled_ns) == (0, 0)
    assert pool.capacity is pool.spec.capacity


def test_the_time_away_grows_until_the_pool_is_ready(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec("a", PoolState.COLD))
    before = pool.unready_ns(100)
    assert pool.unready_ns(130) - before == 30
    assert pool.unready_settled_ns is None
    pool.become(pool_spec("a", PoolState.LOADING), 130)
    assert pool.unready_ns(150) - before == 50
    pool.become(pool_spec("a", PoolState.READY), 150)
    assert pool.unready_ns(900) - before == 50
    assert pool.unready_settled_ns == pool.unready_ns(900)


def test_the_time_away_adds_up_over_the_years(pool_spec: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    for away_ns, back_ns in ((100, 130), (500, 600)):
        pool.become(pool_spec("a", PoolState.COLD), away_ns)
        pool.become(pool_spec(), back_ns)
        assert pool.ready_since_ns == back_ns
    assert pool.unready_settled_ns == 130
    pool.become(pool_spec("a", PoolState.FAILED), 1000)
    assert pool.unready_ns(1010) == 140


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
    assert (pool.capacity.max_seqs, pool.unready_ns(300), pool.ready_since_ns) == (9, 0, 0)


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
