"""When a request runs out of time, as things are."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.admission.deadlines import Kind
from onegate.admission.lifecycle import Move
from onegate.admission.model import PoolState, Refusal, Refused
from onegate.admission.timing import due_ns

S = 10**9
TTFT, WHOLE, SAFETY = (Kind.TTFT, 1), (Kind.WHOLE, 1), (Kind.SAFETY, 1)


@pytest.fixture
def book(make_book: Callable[..., Any]) -> Any:
    return make_book()


def test_a_class_opens_when_it_says(book: Any) -> None:
    assert due_ns(book, (Kind.OPENING, "chat")) is None
    book.closed["chat"] = 5 * S
    assert due_ns(book, (Kind.OPENING, "chat")) == 5 * S
    book.closed["chat"] = None
    assert due_ns(book, (Kind.OPENING, "chat")) is None


def test_the_choice_of_a_pool_is_looked_at_again(book: Any) -> None:
    assert due_ns(book, (Kind.SWITCH, "")) is None
    book.switch_wake_ns = 5 * S
    assert due_ns(book, (Kind.SWITCH, "")) == 5 * S


def test_whom_to_stop_is_looked_at_again(book: Any) -> None:
    assert due_ns(book, (Kind.PREEMPT, "")) is None
    book.preempt_wake_ns, book.switch_wake_ns = 5 * S, 7 * S
    assert due_ns(book, (Kind.PREEMPT, "")) == 5 * S


def test_what_is_being_stopped_is_still_bounded(
    book: Any, request_spec: Callable[..., Any], seat: Callable[..., Any]
) -> None:
    record = seat(book, request_spec(1, deadline_ns=9 * S))
    record.safety_ns = 7 * S
    record.move(Move.PREEMPT)
    assert [due_ns(book, key) for key in (WHOLE, SAFETY)] == [9 * S, 7 * S]


def test_who_is_gone_has_no_deadline(book: Any) -> None:
    assert [due_ns(book, key) for key in (TTFT, WHOLE, SAFETY)] == [None] * 3


def test_the_whole_request_is_bounded_wherever_it_is(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    record = wait(book, request_spec(1, deadline_ns=9 * S))
    assert due_ns(book, WHOLE) == 9 * S
    record.move(Move.GRANT)
    record.exempt = True
    assert due_ns(book, WHOLE) == 9 * S


def test_a_request_without_a_deadline_has_none(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    wait(book, request_spec(1))
    assert [due_ns(book, key) for key in (TTFT, WHOLE, SAFETY)] == [None] * 3


def test_the_safety_bound_is_that_of_the_grant(
    book: Any, request_spec: Callable[..., Any], seat: Callable[..., Any]
) -> None:
    seat(book, request_spec(1)).safety_ns = 7 * S
    assert due_ns(book, SAFETY) == 7 * S


@pytest.mark.parametrize("key", [TTFT, WHOLE, SAFETY], ids=str)
def test_nobody_is_aborted_twice(
    book: Any, request_spec: Callable[..., Any], seat: Callable[..., Any], key: Any
) -> None:
    record = seat(
        book, request_spec(1, ttft_deadline_ns=3 * S, ttft_is_own=True, deadline_ns=9 * S)
    )
    record.safety_ns = 7 * S
    assert due_ns(book, key) is not None
    record.aborted = Refusal(Refused.DEADLINE_EXCEEDED, "")
    assert due_ns(book, key) is None


@pytest.mark.parametrize("key", [TTFT, WHOLE, SAFETY], ids=str)
def test_what_is_settled_is_not_late_any_more(
    book: Any, request_spec: Callable[..., Any], seat: Callable[..., Any], key: Any
) -> None:
    record = seat(
        book, request_spec(1, ttft_deadline_ns=3 * S, ttft_is_own=True, deadline_ns=9 * S)
    )
    record.safety_ns = 7 * S
    record.move(Move.SETTLE)
    assert due_ns(book, key) is None


def test_a_clients_own_ttft_lasts_until_the_first_token(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    record = wait(book, request_spec(1, ttft_deadline_ns=3 * S, ttft_is_own=True))
    dues = [due_ns(book, TTFT)]
    record.move(Move.GRANT)
    dues.append(due_ns(book, TTFT))
    record.move(Move.START)
    dues.append(due_ns(book, TTFT))
    record.output_tok = 1
    assert [*dues, due_ns(book, TTFT)] == [3 * S, 3 * S, 3 * S, None]


def test_a_lease_shows_no_token_so_its_own_ttft_ends_with_the_grant(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    record = wait(book, request_spec(1, ttft_deadline_ns=3 * S, ttft_is_own=True, lease=True))
    assert due_ns(book, TTFT) == 3 * S
    record.move(Move.GRANT)
    assert due_ns(book, TTFT) is None


def test_a_clients_own_ttft_runs_on_while_the_pool_is_away(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Callable[..., Any],
) -> None:
    book = make_book(pools=(pool_spec("a", PoolState.COLD),))
    wait(book, request_spec(1, ttft_deadline_ns=3 * S, ttft_is_own=True))
    assert due_ns(book, TTFT) == 3 * S


def test_a_default_ttft_ends_with_the_grant(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any]
) -> None:
    record = wait(book, request_spec(1, ttft_deadline_ns=3 * S))
    assert due_ns(book, TTFT) == 3 * S
    record.move(Move.GRANT)
    assert due_ns(book, TTFT) is None


@pytest.mark.parametrize("own", [True, False])
def test_who_was_in_the_engine_before_has_no_ttft_any_more(
    book: Any, request_spec: Callable[..., Any], wait: Callable[..., Any], own: bool
) -> None:
    wait(book, request_spec(1, ttft_deadline_ns=3 * S, ttft_is_own=own)).exempt = True
    assert due_ns(book, TTFT) is None


def test_a_default_ttft_stands_still_while_the_pool_is_away(
    book: Any,
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Callable[..., Any],
) -> None:
    pool = book.pools["a"]
    pool.become(pool_spec("a", PoolState.COLD), 0)
    pool.become(pool_spec("a"), 2 * S)
    wait(book, request_spec(1, ttft_deadline_ns=13 * S))  # the two seconds are over
    assert due_ns(book, TTFT) == 13 * S
    pool.become(pool_spec("a", PoolState.LOADING), 11 * S)
    assert due_ns(book, TTFT) is None
    pool.become(pool_spec("a"), 15 * S)
    assert due_ns(book, TTFT) == 17 * S


def test_a_default_ttft_goes_on_while_the_pool_has_failed(
    book: Any,
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Callable[..., Any],
) -> None:
    """Who came while it was still expected back would wait for as long as it is gone."""
    pool = book.pools["a"]
    pool.become(pool_spec("a", PoolState.LOADING), 1 * S)
    wait(book, request_spec(1, arrived_ns=1 * S, ttft_deadline_ns=11 * S))
    pool.become(pool_spec("a", PoolState.FAILED), 6 * S)
    assert due_ns(book, TTFT) == 16 * S
