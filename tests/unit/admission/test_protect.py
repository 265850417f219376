"""Who may not be stopped, and what may be computed again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission.model import Resume
from onegate.admission.protect import (
    BURST_TOK,
    Allowance,
    again_tok,
    floor_may_start,
    is_protected,
    likely_again_tok,
    most_protected,
    used_up,
)


def test_a_class_may_be_behind_by_a_burst() -> None:
    allowance = Allowance(0.05)
    assert allowance.allows(BURST_TOK)
    assert not allowance.allows(BURST_TOK + 1)


def test_a_share_of_what_is_computed_may_be_computed_again() -> None:
    allowance = Allowance(0.05)
    allowance.spend(BURST_TOK)
    assert not allowance.allows(1)
    allowance.earn(1000)
    assert allowance.allows(50)
    assert not allowance.allows(51)


def test_nothing_is_saved_up_beyond_a_burst() -> None:
    allowance = Allowance(1.0)
    allowance.earn(1000)
    allowance.spend(-1000)
    assert allowance.left_tok == BURST_TOK


def test_what_was_not_lost_after_all_comes_back() -> None:
    allowance = Allowance(0.05)
    allowance.spend(5000)
    allowance.spend(-2000)
    assert allowance.left_tok == BURST_TOK - 3000


def test_nothing_is_allowed_in_debt_but_what_costs_nothing() -> None:
    allowance = Allowance(0.05)
    allowance.spend(2 * BURST_TOK)
    assert not allowance.allows(0)


@pytest.fixture
def held(make_book: Callable[..., Any], request_spec: Callable[..., Any], seat: Any) -> Any:
    """A running request: 10 of prompt and 7 of 20 output tokens are computed."""
    book = make_book()
    record = seat(book, request_spec(1, max_tok=20, resume=Resume.EXACT))
    record.computed_tok, record.output_tok = 10, 7
    pool = book.pools["a"]
    pool._weight = 0.5
    return pool, record


@pytest.mark.parametrize(
    ("keeps", "resume", "tok", "likely_tok"),
    [
        (True, Resume.EXACT, 8.5, 0),
        (False, Resume.EXACT, 8.5, 8.5),
        (True, Resume.RESTART, 12, 12),
        (True, Resume.UNSEEN, 12, 12),
    ],
)
def test_what_would_be_done_again(
    held: Any, keeps: bool, resume: Resume, tok: float, likely_tok: float
) -> None:
    """Ten of prompt at half of the cost, and seven of output: all of it as a prompt, or anew."""
    pool, record = held
    pool.spec = replace(pool.spec, keeps_prefix=keeps)
    record.spec = replace(record.spec, resume=resume)
    assert (again_tok(pool, record), likely_again_tok(pool, record)) == (tok, likely_tok)


def test_a_request_is_computed_twice_at_most(held: Any) -> None:
    pool, record = held
    record.again_tok = 25 - 8.5
    assert not used_up(pool, record)
    record.again_tok += 1
    assert used_up(pool, record)
    pool.spec = replace(pool.spec, keeps_prefix=True)
    assert not used_up(pool, record), "to stop it costs nothing"


def test_the_count_of_the_engine_is_its_size(held: Any) -> None:
    pool, record = held
    record.again_tok = 17.0
    assert used_up(pool, record)
    record.prompt_tok = 11
    assert not used_up(pool, record)


def test_what_is_protected(held: Any, settle: Any, make_book: Callable[..., Any]) -> None:
    pool, record = held
    assert not is_protected(pool, record)
    record.prepaid_tok = 1
    assert is_protected(pool, record)
    record.prepaid_tok, record.again_tok = 0, 100
    assert is_protected(pool, record)


@pytest.mark.parametrize(
    ("resume", "protected"),
    [(Resume.EXACT, False), (Resume.RESTART, True), (Resume.UNSEEN, True), (Resume.NEVER, True)],
)
def test_what_a_floor_began_runs_to_its_end_unless_it_can_go_on_later(
    held: Any, settle: Any, resume: Resume, protected: bool
) -> None:
    pool, record = held
    record.spec = replace(record.spec, resume=resume)
    assert not is_protected(pool, record)
    record.by_floor = True
    assert is_protected(pool, record) is protected


@pytest.mark.parametrize(("seats", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_half_of_the_seats_may_be_protected(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any], seats: int, most: int
) -> None:
    book = make_book(pools=(pool_spec("a", max_seqs=seats),))
    assert most_protected(book.pools["a"]) == most


# --- the floor ------------------------------------------------------------------------------------


@pytest.fixture
def four(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> Any:
    """Four seats, of which batch has two by its floor."""
    classes = class_spec(name="chat"), class_spec(name="batch", rank=1)
    book = make_book(classes, (pool_spec("a", max_seqs=4),))
    for rid in (1, 2):
        seat(book, request_spec(rid, "batch", resume=Resume.EXACT)).prepaid_tok = 5
    return book


def may_start(book: Any, *preemptible: str, look_ahead: int = 0) -> bool:
    return floor_may_start(book.pools["a"], book.records, preemptible, look_ahead)


def test_no_floor_begins_where_half_of_the_seats_are_protected(four: Any) -> None:
    assert not may_start(four, "batch")
    four.records[1].prepaid_tok = 0
    assert may_start(four, "batch")


def test_where_nothing_is_preemptible_nothing_is_protected(four: Any) -> None:
    assert may_start(four)
    assert may_start(four, "chat"), "those who run are of another class"


def test_what_is_over_is_not_protected(four: Any, settle: Any) -> None:
    settle(four, four.records[1])
    assert may_start(four, "batch")


@pytest.mark.parametrize(
    ("kept", "stopping", "look_ahead", "starts"),
    [
        ([], 0, 0, True),
        ([0], 0, 0, True),  # two are free, and one of them is kept
        ([0, 0], 0, 0, False),
        ([0, 0], 1, 0, True),  # one of the kept ones is not free yet
        ([0, 0, 0], 1, 0, False),
        ([0, 0], 0, 1, True),
    ],
)
def test_no_floor_takes_a_seat_that_is_kept(
    four: Any, kept: list[int], stopping: int, look_ahead: int, starts: bool
) -> None:
    pool = four.pools["a"]
    pool.kept, pool.stopping = kept, stopping
    assert may_start(four, look_ahead=look_ahead) is starts
