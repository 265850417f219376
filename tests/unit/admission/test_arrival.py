"""What becomes of one that cannot start at once: room, promises, and refusing early."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import arrival
from onegate.admission.arrival import Room
from onegate.admission.foresight import LEAST_FORECASTS
from onegate.admission.model import PoolState, Refused
from onegate.admission.predict import Prediction
from onegate.admission.queue import Backpressure
from onegate.admission.tickets import EARLY_NS, LOW_WATER

MS = 1_000_000
S = 10**9
NOW = 2 * S
FULL = Backpressure(Refused.TOKENS_FULL, "tokens", 1000, 1000, 50)


@pytest.fixture
def book(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> Any:
    """One seat, taken; chat drains 100 tokens a second, and each may have all of its room."""
    classes = (
        class_spec(name="chat", per_principal_share=1.0),
        class_spec(name="batch", rank=1, per_principal_share=1.0),
    )
    book = make_book(classes, (pool_spec("a", max_seqs=1),), max_queued_tok=1000, probe_after=2)
    seat(book, request_spec(1))
    for queue in book.queues.values():
        queue.rate.backlog(True, 0)
        queue.rate.released(200, S)
        for _ in range(LEAST_FORECASTS):
            queue.foresight.learn(S, S)
    return book


def promise(book: Any, spec: Any, *, due: bool = True) -> Any:
    """Such a request was refused; it comes back with its ticket, in time or a moment too early."""
    _, name = book.tickets.issue(spec, book.queues[spec.class_], FULL, 20, NOW)
    ticket = book.tickets._live[name]
    at_ns = ticket.due_ns - EARLY_NS - (not due)
    return replace(spec, ticket=name, arrived_ns=at_ns), ticket, at_ns


# --- room -----------------------------------------------------------------------------------------


def test_there_is_room_for_a_newcomer(book: Any, request_spec: Callable[..., Any]) -> None:
    assert arrival.room(book, request_spec(9), 20, NOW) == Room()


def test_there_is_no_room(book: Any, request_spec: Callable[..., Any], wait: Any) -> None:
    wait(book, request_spec(2, prompt_tok=980))
    found = arrival.room(book, request_spec(9, principal="bob"), 20, NOW)
    assert isinstance(found, Backpressure)
    assert (found.reason, found.excess_tok) == (Refused.TOKENS_FULL, 10)


def test_those_who_leave_are_named(book: Any, request_spec: Callable[..., Any], wait: Any) -> None:
    wait(book, request_spec(2, "batch", prompt_tok=970))
    assert arrival.room(book, request_spec(9), 20, NOW) == Room()
    assert arrival.room(book, request_spec(9), 21, NOW) == Room((2,))


def test_a_promise_makes_room_by_a_grace(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(2, prompt_tok=980))
    spec, ticket, at_ns = promise(book, request_spec(9))
    assert arrival.room(book, spec, 20, at_ns) == Room((), ticket, promised=True)
    assert isinstance(arrival.room(book, spec, 261, at_ns), Backpressure)
    book.limits = replace(book.limits, ticket_grace=0.0)
    assert isinstance(arrival.room(book, spec, 20, at_ns), Backpressure)


def test_a_promise_that_is_not_due_makes_none(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(2, prompt_tok=980))
    spec, _, at_ns = promise(book, request_spec(9), due=False)
    assert isinstance(arrival.room(book, spec, 20, at_ns), Backpressure)


def test_room_is_kept_for_those_who_were_promised_it(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(2, prompt_tok=round(LOW_WATER * 1000) - 10))
    spec, ticket, at_ns = promise(book, request_spec(9))
    found = arrival.room(book, request_spec(8), 20, at_ns)
    assert found == Backpressure(Refused.TOKENS_FULL, "tokens", 1000, 250, 0.0)
    assert arrival.room(book, spec, 20, at_ns) == Room((), ticket, promised=True)
    assert arrival.room(book, request_spec(8, "batch"), 20, at_ns) == Room()


def test_where_little_waits_newcomers_wait_beside_them(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(2, prompt_tok=round(LOW_WATER * 1000) - 11))
    _, _, at_ns = promise(book, request_spec(9))
    assert arrival.room(book, request_spec(8), 20, at_ns) == Room()


def test_one_who_is_early_may_wait_where_there_is_room(
    book: Any, request_spec: Callable[..., Any]
) -> None:
    spec, ticket, at_ns = promise(book, request_spec(9), due=False)
    assert arrival.room(book, spec, 20, at_ns) == Room((), ticket, promised=False)


def test_once_the_line_is_through_anybody_may_wait(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(2, prompt_tok=500))
    promise(book, request_spec(9))
    assert isinstance(arrival.room(book, request_spec(8), 20, NOW), Backpressure)
    assert arrival.room(book, request_spec(8), 20, NOW + S) == Room()


# --- in time --------------------------------------------------------------------------------------


@pytest.fixture
def too_late(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> Callable[..., Backpressure | None]:
    """Whether a request that waits is told that it will not be in time."""

    def build(
        prediction: Prediction | None = Prediction(S, S, S),  # noqa: B008
        found: Room = Room(),  # noqa: B008
        **fields: Any,
    ) -> Backpressure | None:
        record = wait(book, request_spec(9, **fields))
        try:
            return arrival.too_late(book, record, prediction, found, NOW)
        finally:
            book.queues["chat"].remove(9, "a")
            book.queues["chat"].accounts.leave(book.records.pop(9).account)
            book.queued -= 1

    return build


def own(in_ns: int) -> dict[str, Any]:
    return {"ttft_deadline_ns": NOW + in_ns, "ttft_is_own": True}


def test_without_a_deadline_nobody_is_late(too_late: Any) -> None:
    assert too_late() is None


def test_ones_own_deadline_bounds_wait_and_prefill(too_late: Any) -> None:
    assert too_late(**own(2 * S)) is None
    assert too_late(**own(2 * S - MS)) == Backpressure(
        Refused.WONT_MEET_DEADLINE, "ms", 1999, 2000, excess_tok=pytest.approx(0.1)
    )


def test_a_default_bounds_only_the_wait(too_late: Any) -> None:
    assert too_late(ttft_deadline_ns=NOW + S) is None
    late = too_late(ttft_deadline_ns=NOW + S - MS)
    assert (late.reason, late.limit, late.used) == (Refused.WONT_MEET_DEADLINE, 999, 1000)


def test_a_whole_deadline_bounds_the_answer_too(too_late: Any) -> None:
    assert too_late(deadline_ns=NOW + 3 * S) is None
    late = too_late(deadline_ns=NOW + 3 * S - MS)
    assert (late.reason, late.limit, late.used) == (Refused.WONT_MEET_DEADLINE, 2999, 3000)


def test_the_whole_deadline_holds_for_one_that_will_start_in_time(too_late: Any) -> None:
    late = too_late(**own(9 * S), deadline_ns=NOW + 2 * S)
    assert (late.limit, late.used) == (2000, 3000)


def test_what_is_not_known_refuses_nobody(too_late: Any) -> None:
    assert too_late(None, **own(1)) is None


def test_an_idle_pool_refuses_nobody(book: Any, too_late: Any) -> None:
    book.pools["a"].ledger.free(1)
    assert too_late(**own(1)) is None


def test_predictions_are_trusted_as_far_as_they_came_true(book: Any, too_late: Any) -> None:
    for _ in range(100):
        book.queues["chat"].foresight.learn(S, S // 4)
    assert too_late(**own(S // 2)) is None
    late = too_late(**own(S // 2 - MS))
    assert (late.limit, late.used) == (499, 500), "what is said is by when it surely is"


def test_how_much_has_to_leave_is_said_in_tokens(book: Any, too_late: Any) -> None:
    assert too_late(**own(S)).excess_tok == pytest.approx(100)
    book.queues["chat"].rate.backlog(False, NOW)
    assert too_late(**own(S)).excess_tok == 0


def test_after_some_refusals_one_is_let_in_to_see(too_late: Any) -> None:
    assert [too_late(**own(S)) is None for _ in range(7)] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]


def test_one_that_is_in_time_begins_the_count_anew(too_late: Any) -> None:
    for _ in range(2):
        assert too_late(**own(S)) is not None
    assert too_late(**own(5 * S)) is None
    assert too_late(**own(S)) is not None


def test_one_without_a_deadline_begins_it_too(too_late: Any) -> None:
    for _ in range(2):
        too_late(**own(S))
    assert too_late() is None
    assert too_late(**own(S)) is not None


def test_who_was_promised_room_has_a_grace_here_too(book: Any, too_late: Any) -> None:
    promised = Room((), None, promised=True)
    assert too_late(Prediction(1250 * MS), promised, **own(S)) is None
    assert too_late(Prediction(1251 * MS), promised, **own(S)) is not None
    assert too_late(Prediction(1250 * MS), **own(S)) is not None


def test_while_a_line_is_out_newcomers_do_not_take_the_last_of_the_time(
    book: Any, too_late: Any, request_spec: Callable[..., Any]
) -> None:
    wait_ns = round(LOW_WATER * S)
    assert too_late(Prediction(wait_ns + 1), **own(S)) is None
    promise(book, request_spec(8))
    assert too_late(Prediction(wait_ns), **own(S)) is None
    late = too_late(Prediction(wait_ns + MS), **own(S))
    assert late == Backpressure(Refused.TOKENS_FULL, "tokens", 1000, 20, 0.0)
    assert too_late(Prediction(wait_ns + MS), Room((), None, promised=True), **own(S)) is None


def test_nobody_is_let_in_to_see_before_those_who_were_promised_room(
    book: Any, too_late: Any, request_spec: Callable[..., Any]
) -> None:
    promise(book, request_spec(8))
    for _ in range(9):
        assert too_late(Prediction(S // 2), **own(S)) is not None


# --- a pool that is not ready ---------------------------------------------------------------------


@pytest.fixture
def load_too_late(
    book: Any, request_spec: Callable[..., Any], pool_spec: Callable[..., Any]
) -> Callable[..., Backpressure | None]:
    """Whether a newcomer's time ends before the load can, which takes ten seconds."""
    book.pools["a"].become(pool_spec("a", PoolState.COLD, switch_cost_ns=10 * S), NOW)

    def build(**fields: Any) -> Backpressure | None:
        return arrival.load_too_late(book, request_spec(9, **fields), NOW)

    return build


def test_a_load_is_waited_for_unless_ones_own_deadline_ends_before_it(load_too_late: Any) -> None:
    assert load_too_late(**own(10 * S)) is None
    assert load_too_late(**own(10 * S - MS)) == Backpressure(
        Refused.WONT_MEET_DEADLINE, "ms", 9999, 10_000, 0.0
    )
    assert load_too_late(ttft_deadline_ns=NOW + MS) is None, "a default stands still"
    assert load_too_late(deadline_ns=NOW + MS) is None
    assert load_too_late(ttft_is_own=True) is None


def test_what_is_left_of_a_load_counts(book: Any, load_too_late: Any) -> None:
    book.pools["a"].ask_load(NOW - 4 * S, in_turn=False)
    assert load_too_late(**own(6 * S)) is None
    late = load_too_late(**own(6 * S - MS))
    assert (late.limit, late.used) == (5999, 6000)


def test_what_is_left_of_a_load_that_nobody_asked_for_counts(
    book: Any, load_too_late: Any, pool_spec: Callable[..., Any]
) -> None:
    """The engine loads it again of its own, since it became that four seconds ago."""
    book.pools["a"].become(pool_spec("a"), NOW - 9 * S)
    book.pools["a"].become(pool_spec("a", PoolState.LOADING, switch_cost_ns=10 * S), NOW - 4 * S)
    assert load_too_late(**own(6 * S)) is None
    late = load_too_late(**own(6 * S - MS))
    assert (late.limit, late.used) == (5999, 6000)


def test_a_load_of_which_nobody_knows_how_long_it_takes_is_waited_for(
    book: Any, load_too_late: Any, pool_spec: Callable[..., Any]
) -> None:
    book.pools["a"].become(pool_spec("a", PoolState.COLD), NOW)
    assert load_too_late(**own(MS)) is None


def test_a_pool_that_is_ready_needs_no_load(
    book: Any, load_too_late: Any, pool_spec: Callable[..., Any]
) -> None:
    book.pools["a"].become(pool_spec("a", switch_cost_ns=10 * S), NOW)
    assert load_too_late(**own(MS)) is None
