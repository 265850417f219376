"""Which pool is loaded next, and when."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from onegate.admission.fairness import Account
from onegate.admission.model import PoolState
from onegate.admission.records import Pool, Record
from onegate.admission.switching import LOAD_ANSWER_NS, NO_CHOICE, Choice, Want, choose

S = 10**9
WINDOW = 30 * S
NOW = 1000 * S


@pytest.fixture
def wanted(
    pool_spec: Callable[..., Any], request_spec: Callable[..., Any], account: Account
) -> Callable[..., Want]:
    """A pool for which something waits."""

    def build(
        model: str,
        state: PoolState = PoolState.COLD,
        *,
        rank: int = 0,
        floor: float = 0.0,
        arrived_ns: int = NOW,
        seq: int = 1,
        switch_ns: int | None = 5 * S,
    ) -> Want:
        spec = request_spec(seq, pool=model, arrived_ns=arrived_ns)
        pool = Pool(pool_spec(model, state, switch_ns))
        return Want(pool, Record(spec, seq, 10, 0, account, 10), rank, floor)

    return build


def choice(wants: Iterable[Want], *others: Pool, now_ns: int = NOW) -> Choice:
    of = {want.pool.spec.model: want for want in wants}
    return choose(
        [*others, *(want.pool for want in of.values())],
        lambda pool: of.get(pool.spec.model),
        now_ns=now_ns,
        window_ns=WINDOW,
    )


def test_where_nobody_waits_nothing_is_loaded(pool_spec: Callable[..., Any]) -> None:
    assert choice([], Pool(pool_spec("a")), Pool(pool_spec("b", PoolState.COLD))) == NO_CHOICE


def test_a_loaded_pool_is_left_as_it_is(wanted: Callable[..., Want]) -> None:
    assert choice([wanted("a", PoolState.READY)]) == NO_CHOICE


@pytest.mark.parametrize("state", [PoolState.FAILED, PoolState.RELEASED])
def test_a_pool_that_cannot_be_loaded_is_not_chosen(
    wanted: Callable[..., Want], state: PoolState
) -> None:
    assert choice([wanted("a", state)]) == NO_CHOICE


def test_a_pool_that_failed_holds_nobody_up(wanted: Callable[..., Want]) -> None:
    b = wanted("b", rank=2)
    assert choice([wanted("a", PoolState.FAILED), b]).target is b.pool


def test_a_cold_pool_is_loaded_at_once_where_nothing_else_is_wanted(
    wanted: Callable[..., Want], pool_spec: Callable[..., Any]
) -> None:
    b = wanted("b")
    assert choice([b], Pool(pool_spec("a"))) == Choice(b.pool)


def test_one_pool_is_loaded_at_a_time(
    wanted: Callable[..., Want], pool_spec: Callable[..., Any]
) -> None:
    assert choice([wanted("b")], Pool(pool_spec("a", PoolState.LOADING))) == NO_CHOICE


def test_a_better_rank_than_any_that_waits_here_switches_at_once(
    wanted: Callable[..., Want],
) -> None:
    b = wanted("b", rank=1)
    assert choice([wanted("a", PoolState.READY, rank=2), b]) == Choice(b.pool)


def test_the_best_of_those_who_wait_for_loaded_pools_counts(wanted: Callable[..., Want]) -> None:
    loaded = [wanted("a", PoolState.READY, rank=2), wanted("c", PoolState.READY, rank=0)]
    assert choice([*loaded, wanted("b", rank=1)]).target is None
    assert choice([*reversed(loaded), wanted("b", rank=1)]).target is None


def test_the_same_rank_waits_the_window_and_two_switches(wanted: Callable[..., Want]) -> None:
    a, b = wanted("a", PoolState.READY), wanted("b", arrived_ns=NOW)
    turn_ns = NOW + WINDOW + 2 * 5 * S
    assert choice([a, b]) == Choice(None, turn_ns)
    assert choice([a, b], now_ns=turn_ns - 1) == Choice(None, turn_ns)
    assert choice([a, b], now_ns=turn_ns) == Choice(b.pool)


def test_an_unknown_cost_of_a_switch_is_none(wanted: Callable[..., Want]) -> None:
    a, b = wanted("a", PoolState.READY), wanted("b", switch_ns=None)
    assert choice([a, b]).wake_ns == NOW + WINDOW


def test_a_pool_that_was_served_lately_waits_from_then_on(wanted: Callable[..., Want]) -> None:
    a, b = wanted("a", PoolState.READY), wanted("b", arrived_ns=0)
    assert choice([a, b]).target is b.pool
    b.pool.away_since_ns = NOW
    assert choice([a, b]).wake_ns == NOW + WINDOW + 10 * S


def test_behind_a_better_rank_the_floor_decides_for_how_long(wanted: Callable[..., Want]) -> None:
    a, b = wanted("a", PoolState.READY), wanted("b", rank=1, floor=0.25)
    turn_ns = NOW + 4 * (WINDOW + 10 * S)
    assert choice([a, b]) == Choice(None, turn_ns)
    assert choice([a, b], now_ns=turn_ns - 1).target is None
    assert choice([a, b], now_ns=turn_ns) == Choice(b.pool, in_turn=True)


def test_without_a_floor_a_lower_rank_never_switches(wanted: Callable[..., Want]) -> None:
    a, b = wanted("a", PoolState.READY), wanted("b", rank=1, arrived_ns=0)
    assert choice([a, b]) == NO_CHOICE


def test_the_best_of_the_cold_is_first(wanted: Callable[..., Want]) -> None:
    low, late, early = wanted("b", rank=1), wanted("c", seq=3), wanted("d", seq=2)
    assert choice([low, late, early]).target is early.pool


def test_whose_turn_has_come_goes_before_a_better_one_whose_has_not(
    wanted: Callable[..., Want],
) -> None:
    a = wanted("a", PoolState.READY)
    better, older = wanted("b"), wanted("c", rank=1, floor=0.5, arrived_ns=0)
    assert choice([a, better, older]) == Choice(older.pool, in_turn=True)


def test_the_soonest_turn_wakes(wanted: Callable[..., Want]) -> None:
    a = wanted("a", PoolState.READY)
    early, late = wanted("b", seq=2, arrived_ns=NOW - S), wanted("c", seq=3)
    first_ns = NOW - S + WINDOW + 10 * S
    assert choice([a, early, late]).wake_ns == first_ns
    late.pool.away_since_ns, early.pool.away_since_ns = 0, NOW
    assert choice([a, wanted("b", seq=2), wanted("c", seq=3, arrived_ns=NOW - S)]) == Choice(
        None, first_ns
    )


def test_a_pool_that_only_its_rank_brought_was_not_loaded_in_turn(
    wanted: Callable[..., Want],
) -> None:
    b = wanted("b", floor=0.5)
    assert choice([b]) == Choice(b.pool, in_turn=False)
    floor_ns = NOW + 2 * (WINDOW + 10 * S)
    assert choice([b], now_ns=floor_ns - 1) == Choice(b.pool, in_turn=False)
    assert choice([b], now_ns=floor_ns) == Choice(b.pool, in_turn=True)


def test_what_was_loaded_is_used_for_the_window_before_its_own_rank_switches(
    wanted: Callable[..., Want],
) -> None:
    a, b = wanted("a", PoolState.READY), wanted("b", arrived_ns=0)
    a.pool.ready_since_ns = NOW
    assert choice([a, b]) == Choice(None, NOW + WINDOW)
    assert choice([a, b], now_ns=NOW + WINDOW - 1).target is None
    assert choice([a, b], now_ns=NOW + WINDOW).target is b.pool


def test_what_was_loaded_lately_gives_way_to_a_better_rank(wanted: Callable[..., Want]) -> None:
    a, b = wanted("a", PoolState.READY, rank=1), wanted("b", rank=0)
    a.pool.ready_since_ns = NOW
    assert choice([a, b]).target is b.pool


def test_what_a_floor_has_loaded_gives_way_to_nobody_for_the_window(
    wanted: Callable[..., Want],
) -> None:
    a, b = wanted("a", PoolState.READY, rank=1), wanted("b", rank=0)
    a.pool.ready_since_ns, a.pool.in_turn = NOW, True
    assert choice([a, b]) == Choice(None, NOW + WINDOW)
    assert choice([a, b], now_ns=NOW + WINDOW).target is b.pool


def test_a_pool_that_nobody_wants_any_more_is_not_kept(
    wanted: Callable[..., Want], pool_spec: Callable[..., Any]
) -> None:
    unwanted = Pool(pool_spec("a"))
    unwanted.ready_since_ns, unwanted.in_turn = NOW, True
    b = wanted("b")
    assert choice([b], unwanted).target is b.pool


def test_a_floors_turn_is_held_by_what_runs(
    wanted: Callable[..., Want], pool_spec: Callable[..., Any]
) -> None:
    running = Pool(pool_spec("a"))
    running.ledger.charge(7, rank=1, kv_tok=0, prompt_tok=0)
    b = wanted("b")
    running.ready_since_ns = NOW
    assert choice([b], running).target is b.pool, "its rank alone has brought it"
    running.in_turn = True
    assert choice([b], running) == Choice(None, NOW + WINDOW)
    assert choice([b], running, now_ns=NOW + WINDOW).target is b.pool


def test_a_load_that_was_asked_for_is_waited_for(
    wanted: Callable[..., Want], pool_spec: Callable[..., Any]
) -> None:
    asked = Pool(pool_spec("b", PoolState.COLD))
    asked.ask_load(NOW, in_turn=False)
    best = wanted("c")
    answer_ns = NOW + LOAD_ANSWER_NS
    assert choice([best], asked) == Choice(asked, answer_ns, asked=True)
    assert choice([best], asked, now_ns=answer_ns - 1) == Choice(asked, answer_ns, asked=True)
    assert choice([best], asked, now_ns=answer_ns) == Choice(best.pool)


def test_an_engine_that_said_nothing_is_asked_again_where_nobody_else_waits(
    wanted: Callable[..., Want],
) -> None:
    b = wanted("b")
    b.pool.ask_load(NOW, in_turn=False)
    assert choice([b], now_ns=NOW + LOAD_ANSWER_NS) == Choice(b.pool)


def test_a_pool_that_was_asked_for_in_vain_waits_for_its_turn(wanted: Callable[..., Want]) -> None:
    a, b = wanted("a", PoolState.READY, rank=1), wanted("b", rank=0, arrived_ns=0)
    b.pool.ask_load(NOW, in_turn=False)
    turn_ns = NOW + WINDOW + 10 * S
    assert choice([a, b], now_ns=NOW + LOAD_ANSWER_NS) == Choice(None, turn_ns)
    assert choice([a, b], now_ns=turn_ns).target is b.pool


@pytest.mark.parametrize("others_in_turn", [False, True])
def test_of_several_loaded_pools_the_last_to_come_holds_its_place_longest(
    wanted: Callable[..., Want], others_in_turn: bool
) -> None:
    first = wanted("a", PoolState.READY, rank=1)
    last = wanted("c", PoolState.READY, rank=1)
    first.pool.ready_since_ns, last.pool.ready_since_ns = NOW - S, NOW
    for want in (first, last):
        want.pool.in_turn = others_in_turn
    b = wanted("b", rank=0 if others_in_turn else 1, arrived_ns=0)
    assert choice([first, last, b]) == Choice(None, NOW + WINDOW)
    assert choice([last, first, b]) == Choice(None, NOW + WINDOW)
