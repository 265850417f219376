"""Who is next in a pool, and what is in the way."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.admission.model import Binding, PoolState
from onegate.admission.order import Next, does_not_fit, next_for, nothing_starts
from onegate.admission.records import Pool


@pytest.fixture
def book(make_book: Callable[..., Any], class_spec: Callable[..., Any]) -> Any:
    return make_book(
        (
            class_spec(name="chat", rank=0),
            class_spec(name="loop", rank=1, floor_share=0.2),
            class_spec(name="batch", rank=2, floor_share=0.1),
        )
    )


def chosen(book: Any, quantum_tok: int = 40) -> Next | None:
    return next_for(
        book.pools["a"],
        book.queues.values(),
        book.floors,
        book.closed,
        book.records,
        quantum_tok,
        now_ns=0,
    )


def test_nobody_waits_nobody_is_next(book: Any) -> None:
    assert chosen(book) is None


def test_the_best_rank_is_next_and_in_it_the_first_to_come(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    wait(book, request_spec(1, "batch"))
    wait(book, request_spec(2, "loop"))
    assert chosen(book) == Next(book.records[2], 1, by_floor=False)
    first = wait(book, request_spec(3, "chat"))
    wait(book, request_spec(4, "chat"))
    assert chosen(book) == Next(first, 0, by_floor=False)


def test_who_waits_for_another_pool_is_not_next_here(
    book: Any, pool_spec: Callable[..., Any], request_spec: Callable[..., Any], wait: Any
) -> None:
    book.pools["b"] = Pool(pool_spec("b"))
    wait(book, request_spec(1, "chat", "b"))
    assert chosen(book) is None
    mine = wait(book, request_spec(2, "batch"))
    assert chosen(book) == Next(mine, 2, by_floor=False)


def test_a_closed_class_is_passed_over(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    wait(book, request_spec(1, "chat"))
    batch = wait(book, request_spec(2, "batch"))
    book.closed["chat"] = None
    assert chosen(book) == Next(batch, 2, by_floor=False)
    book.floors["batch"].repay(100)
    book.closed["batch"] = None
    assert chosen(book) is None


def test_an_owed_floor_goes_first(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    chat = wait(book, request_spec(1, "chat"))
    batch = wait(book, request_spec(2, "batch", prompt_tok=12, max_tok=8))
    book.floors["batch"].repay(19)
    assert chosen(book) == Next(chat, 0, by_floor=False)
    book.floors["batch"].repay(1)
    assert chosen(book) == Next(batch, 2, by_floor=True)


def test_the_quantum_is_enough_for_a_long_request(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    wait(book, request_spec(1, "chat"))
    batch = wait(book, request_spec(2, "batch", prompt_tok=500))
    book.floors["batch"].repay(40)
    assert chosen(book, 41) != Next(batch, 2, by_floor=True)
    assert chosen(book, 40) == Next(batch, 2, by_floor=True)


def test_a_count_by_the_engine_decides_what_the_floor_owes(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    wait(book, request_spec(1, "chat"))
    batch = wait(book, request_spec(2, "batch", prompt_tok=12, max_tok=8))
    batch.prompt_tok = 2
    book.floors["batch"].repay(10)
    assert chosen(book) == Next(batch, 2, by_floor=True)


def test_of_two_owed_floors_the_better_rank_goes_first(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    wait(book, request_spec(1, "batch"))
    loop = wait(book, request_spec(2, "loop"))
    wait(book, request_spec(3, "chat"))
    for floor in book.floors.values():
        floor.repay(100)
    assert chosen(book) == Next(loop, 1, by_floor=True)


def test_who_is_best_needs_no_floor(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    loop = wait(book, request_spec(1, "loop"))
    book.floors["loop"].repay(100)
    assert chosen(book) == Next(loop, 1, by_floor=False)


def test_a_class_without_a_floor_waits_behind_a_better_one(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    del book.floors["loop"]
    chat = wait(book, request_spec(1, "chat"))
    wait(book, request_spec(2, "loop"))
    assert chosen(book) == Next(chat, 0, by_floor=False)


def test_places_are_by_floor_then_rank_then_arrival(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    one, two = wait(book, request_spec(1)), wait(book, request_spec(2))
    line = [
        Next(two, 1, by_floor=True),
        Next(one, 2, by_floor=True),
        Next(two, 0, by_floor=False),
        Next(one, 1, by_floor=False),
        Next(two, 1, by_floor=False),
    ]
    assert sorted(reversed(line), key=lambda chosen: chosen.place) == line


@pytest.mark.parametrize("state", PoolState)
def test_only_in_a_ready_pool_something_starts(
    pool_spec: Callable[..., Any], limits: Callable[..., Any], state: PoolState
) -> None:
    known = {PoolState.READY: None, PoolState.RELEASED: Binding.CLOSED}
    expected = known.get(state, Binding.LOADING)
    assert nothing_starts(Pool(pool_spec("a", state)), 0, limits()) is expected


def test_permits_bound_all_pools(pool_spec: Callable[..., Any], limits: Callable[..., Any]) -> None:
    pool = Pool(pool_spec())
    assert nothing_starts(pool, 7, limits(max_in_flight=8)) is None
    assert nothing_starts(pool, 8, limits(max_in_flight=8)) is Binding.IN_FLIGHT


@pytest.mark.parametrize(("look_ahead", "seats"), [(0, 2), (1, 3)])
def test_seats_bound_a_pool(
    pool_spec: Callable[..., Any], limits: Callable[..., Any], look_ahead: int, seats: int
) -> None:
    pool = Pool(pool_spec(max_seqs=2))
    for rid in range(seats):
        assert nothing_starts(pool, 0, limits(look_ahead=look_ahead)) is None
        pool.ledger.charge(rid, rank=0, kv_tok=0, prompt_tok=0)
    assert nothing_starts(pool, 0, limits(look_ahead=look_ahead)) is Binding.SEATS


def seated(spec: Any, *, kv_tok: int = 0, prompt_tok: int = 0, rank: int = 0) -> Pool:
    pool = Pool(spec)
    pool.ledger.charge(1, rank=rank, kv_tok=kv_tok, prompt_tok=prompt_tok)
    return pool


def test_kv_bounds_what_runs_beside_others(pool_spec: Callable[..., Any]) -> None:
    pool = seated(pool_spec(kv_tok=100), kv_tok=80)
    assert does_not_fit(pool, 0, 10, 20) is None
    assert does_not_fit(pool, 0, 10, 21) is Binding.KV


def test_an_empty_pool_takes_anything(pool_spec: Callable[..., Any]) -> None:
    assert does_not_fit(Pool(pool_spec(kv_tok=100, max_step_tok=10)), 0, 500, 500) is None


def test_where_no_kv_is_known_none_binds(pool_spec: Callable[..., Any]) -> None:
    assert does_not_fit(seated(pool_spec(), kv_tok=500), 0, 900, 900) is None


def test_what_charges_no_kv_fits(pool_spec: Callable[..., Any]) -> None:
    assert does_not_fit(seated(pool_spec(kv_tok=100), kv_tok=100), 0, 900, 0) is None


def test_a_step_takes_so_many_prompt_tokens(pool_spec: Callable[..., Any]) -> None:
    pool = seated(pool_spec(max_step_tok=100), prompt_tok=60)
    assert does_not_fit(pool, 0, 40, 900) is None
    assert does_not_fit(pool, 0, 41, 0) is Binding.STEP_TOK


def test_one_prompt_may_always_be_outstanding(pool_spec: Callable[..., Any]) -> None:
    assert does_not_fit(seated(pool_spec(max_step_tok=100)), 0, 500, 0) is None


def test_prompts_of_lower_ranks_hold_nobody_up(pool_spec: Callable[..., Any]) -> None:
    pool = seated(pool_spec(max_step_tok=100), prompt_tok=90, rank=2)
    assert does_not_fit(pool, 1, 90, 0) is None
    assert does_not_fit(pool, 2, 90, 0) is Binding.STEP_TOK


def test_an_unknown_step_bounds_nothing(pool_spec: Callable[..., Any]) -> None:
    assert does_not_fit(seated(pool_spec(), prompt_tok=10**6), 0, 10**6, 0) is None
