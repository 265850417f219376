"""Refusals in words and numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import refusals
from onegate.admission.deadlines import Kind
from onegate.admission.model import Binding, PoolState, Refusal, Refused
from onegate.admission.queue import Backpressure
from onegate.admission.refusals import DRAIN_BASE_NS, DRAIN_STEPS, drain_hint_ns
from onegate.admission.tickets import EARLY_NS, JITTER

S = 10**9
NOW = 2 * S


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({}, None),
        ({"deadline_ns": NOW + 1, "ttft_deadline_ns": NOW + 1}, None),
        ({"deadline_ns": NOW}, Refused.DEADLINE_EXCEEDED),
        ({"ttft_deadline_ns": NOW}, Refused.TTFT_DEADLINE_EXCEEDED),
        ({"deadline_ns": NOW, "ttft_deadline_ns": NOW}, Refused.DEADLINE_EXCEEDED),
    ],
)
def test_whose_time_is_over_is_refused_on_arrival(
    request_spec: Callable[..., Any], times: dict[str, int], reason: Refused | None
) -> None:
    refusal = refusals.overdue(request_spec(1, **times), NOW)
    assert (None if refusal is None else refusal.reason) is reason
    assert refusal is None or "on arrival" in refusal.message


def door(book: Any, place: int = 0, prompt_tok: int = 10) -> Refusal | None:
    return refusals.at_door(book, "chat", "a", prompt_tok, 10, place=place, now_ns=NOW)


def test_an_open_door_refuses_nobody(make_book: Callable[..., Any]) -> None:
    assert door(make_book()) is None


def test_a_shutdown_spreads_those_it_refuses(make_book: Callable[..., Any]) -> None:
    book = make_book()
    book.draining = True
    told = [door(book, place) for place in (0, 7)]
    assert [(no.reason, no.retry_after_ns) for no in told if no is not None] == [
        (Refused.SHUTTING_DOWN, DRAIN_BASE_NS),
        (Refused.SHUTTING_DOWN, drain_hint_ns(7)),
    ]


@pytest.mark.parametrize(("until_ns", "hint_ns"), [(5 * S, 3 * S), (S, 0), (None, None)])
def test_a_closed_class_says_when_it_opens(
    make_book: Callable[..., Any], until_ns: int | None, hint_ns: int | None
) -> None:
    book = make_book()
    book.closed["chat"] = until_ns
    refusal = door(book)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_ns) == (Refused.PAUSED, hint_ns)
    assert refusal.limited_by is Binding.CLOSED


def test_other_refusals_at_the_door_have_no_hint(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    too_large = door(make_book(), prompt_tok=10**6)
    released = door(make_book(pools=(pool_spec("a", PoolState.RELEASED),)))
    assert too_large is not None
    assert released is not None
    assert (too_large.reason, released.reason) == (Refused.TOO_LARGE, Refused.RELEASED)
    assert too_large.retry_after_ns is released.retry_after_ns is None


@pytest.mark.parametrize(("now_ns", "hint_ns"), [(0, 7), (3, 4), (9, 0)])
def test_a_released_pool_says_when_it_is_back(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any], now_ns: int, hint_ns: int
) -> None:
    spec = replace(pool_spec("a", PoolState.RELEASED), released_until_ns=7)
    book = make_book(pools=(spec,))
    refusal = refusals.at_door(book, "chat", "a", 10, 10, place=0, now_ns=now_ns)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_ns) == (Refused.RELEASED, hint_ns)
    assert refusal.limited_by is Binding.CLOSED


@pytest.fixture
def busy(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Callable[..., Any],
    seat: Callable[..., Any],
) -> Any:
    """One seat, taken; one waits; the class drains 100 tokens a second."""
    book = make_book(pools=(pool_spec("a", max_seqs=1),))
    seat(book, request_spec(1))
    wait(book, request_spec(2))
    book.queues["chat"].rate.backlog(True, 0)
    book.queues["chat"].rate.released(200, S)
    return book


FULL = Backpressure(Refused.TOKENS_FULL, "tokens", 1000, 990, 10)


@pytest.fixture
def refuse(busy: Any, request_spec: Callable[..., Any]) -> Callable[..., Refusal]:
    """The refusal of one more request, of 20 tokens."""

    def build(full: Backpressure = FULL, tok: int = 20, now_ns: int = NOW, **fields: Any) -> Any:
        commit = fields.pop("commit", True)
        spec = request_spec(9, **fields)
        return refusals.for_room(busy, spec, full, tok, now_ns, commit=commit)

    return build


def soon(refusal: Refusal, wait_ns: float) -> bool:
    """Does it say so, or up to the jitter later?"""
    assert refusal.retry_after_ns is not None
    return wait_ns <= refusal.retry_after_ns <= wait_ns * (1 + JITTER)


def test_a_refusal_for_room_has_all_the_numbers(refuse: Callable[..., Refusal]) -> None:
    refusal = refuse()
    assert soon(refusal, S // 10)
    assert refusal.ticket is not None
    assert replace(refusal, ticket=None, retry_after_ns=None) == Refusal(
        Refused.TOKENS_FULL,
        "990 tokens are waiting, 1000 is the most, and this request is 20 tokens: come back later",
        limit=1000,
        used=990,
        limited_by=Binding.SEATS,
    )


def test_each_refusal_sends_the_next_one_to_a_later_time(refuse: Callable[..., Refusal]) -> None:
    first, second = refuse(), refuse()
    assert soon(first, S // 10)
    assert soon(second, 3 * S // 10)
    assert first.ticket != second.ticket


def test_a_question_sends_nobody_anywhere(busy: Any, refuse: Callable[..., Refusal]) -> None:
    for _ in range(2):
        asked = refuse(commit=False)
        assert (asked.retry_after_ns, asked.ticket) == (S // 10, None)
    assert len(busy.tickets) == 0


def test_a_question_without_a_rate_has_no_hint(busy: Any, refuse: Callable[..., Refusal]) -> None:
    busy.queues["chat"].rate.backlog(False, NOW)
    asked = refuse(commit=False)
    assert (asked.retry_after_ns, asked.ticket) == (None, None)


def test_who_is_too_early_keeps_the_promise_and_the_place(refuse: Callable[..., Refusal]) -> None:
    full = replace(FULL, excess_tok=20)  # 200 ms
    first = refuse(full)
    assert first.retry_after_ns is not None
    due_ns = NOW + first.retry_after_ns
    for now_ns in (NOW, due_ns - EARLY_NS - 1):
        again = refuse(full, now_ns=now_ns, ticket=first.ticket)
        assert (again.ticket, again.retry_after_ns) == (first.ticket, due_ns - now_ns)
    assert soon(refuse(full), 4 * S // 10), "nobody was pushed back by asking again"


def test_who_comes_in_time_and_is_refused_gets_a_new_promise(
    busy: Any, refuse: Callable[..., Refusal]
) -> None:
    first = refuse()
    assert first.retry_after_ns is not None
    due_ns = NOW + first.retry_after_ns
    again = refuse(now_ns=due_ns - EARLY_NS, ticket=first.ticket)
    assert again.ticket not in (None, first.ticket)
    assert len(busy.tickets) == 1, "the old one is used up"


def test_ones_own_quota_is_called_ones_own(refuse: Callable[..., Refusal]) -> None:
    refusal = refuse(Backpressure(Refused.PEER_QUOTA, "requests", 2, 2, 10, 0.5))
    assert refusal.message.startswith("2 requests of yours are waiting, 2 is the most")
    assert soon(refusal, S // 5)


def test_what_never_fits_is_told_so(busy: Any, refuse: Callable[..., Refusal]) -> None:
    refusal = refuse(Backpressure(Refused.TOO_LARGE, "tokens", 500, 600, 0.0), 600)
    assert (refusal.reason, refusal.limit, refusal.used) == (Refused.TOO_LARGE, 500, 600)
    assert "600 tokens" in refusal.message
    assert "at most 500 may wait in class chat" in refusal.message
    assert (refusal.retry_after_ns, refusal.ticket, len(busy.tickets)) == (None, None, 0)


def test_what_never_fits_uses_up_no_promise(busy: Any, refuse: Callable[..., Refusal]) -> None:
    first = refuse()
    assert first.retry_after_ns is not None
    too_large = Backpressure(Refused.TOO_LARGE, "tokens", 500, 600, 0.0)
    for now_ns in (NOW, NOW + first.retry_after_ns):
        refusal = refuse(too_large, 600, now_ns=now_ns, ticket=first.ticket)
        assert (refusal.retry_after_ns, refusal.ticket) == (None, None)
    assert len(busy.tickets) == 1


def test_room_that_is_promised_to_others_is_called_that(refuse: Callable[..., Refusal]) -> None:
    refusal = refuse(replace(FULL, used=300, excess_tok=0.0))
    assert refusal.message == "the room that there is was promised to those who were refused before"


def test_who_will_be_late_hears_how_late(refuse: Callable[..., Refusal]) -> None:
    refusal = refuse(Backpressure(Refused.WONT_MEET_DEADLINE, "ms", 400, 900, 50))
    assert "about 900 ms" in refusal.message
    assert "ends in 400 ms" in refusal.message
    assert (refusal.limit, refusal.used) == (400, 900)
    assert soon(refusal, S // 2), "by the tokens that have to leave"


@pytest.mark.parametrize(("needed_ms", "hint_ns"), [(900, S // 2), (300, 0)])
def test_who_will_be_late_comes_back_by_what_is_missing_where_there_is_no_rate(
    busy: Any, refuse: Callable[..., Refusal], needed_ms: int, hint_ns: int
) -> None:
    busy.queues["chat"].rate.backlog(False, NOW)
    refusal = refuse(Backpressure(Refused.WONT_MEET_DEADLINE, "ms", 400, needed_ms, 0))
    assert (refusal.retry_after_ns, refusal.ticket) == (hint_ns, None)


def test_who_is_put_out_has_a_promise_for_all_of_its_tokens(busy: Any) -> None:
    refusal = refusals.displaced(busy, busy.records[2], 40, NOW)
    assert refusal.reason is Refused.DISPLACED
    assert "make room for a higher class" in refusal.message
    assert (refusal.limit, refusal.used) == (10_000, 20)
    assert soon(refusal, 4 * S // 10)
    assert refusal.ticket is not None


def test_after_a_shutdown_they_come_one_by_one() -> None:
    hints = [drain_hint_ns(place) for place in range(DRAIN_STEPS + 1)]
    assert len(set(hints)) == DRAIN_STEPS
    assert hints[0] == hints[-1] == DRAIN_BASE_NS == min(hints)


def test_what_is_drained_away_is_told_when_to_come_back() -> None:
    refusal = refusals.drained(3)
    assert (refusal.reason, refusal.retry_after_ns) == (Refused.SHUTTING_DOWN, drain_hint_ns(3))


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [
        (Kind.TTFT, Refused.TTFT_DEADLINE_EXCEEDED, "ttft_timeout, still waiting"),
        (Kind.WHOLE, Refused.DEADLINE_EXCEEDED, "within timeout, still waiting"),
    ],
)
def test_an_expiry_in_the_queue(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Callable[..., Any],
    kind: Kind,
    reason: Refused,
    words: str,
) -> None:
    book = make_book()
    waiting = wait(book, request_spec(1))
    refusal = refusals.expiry(kind, waiting, book.pools["a"])
    assert refusal.reason is reason
    assert refusal.message.endswith(words)
    book.pools["a"].become(pool_spec("a", PoolState.FAILED), NOW)
    refusal = refusals.expiry(kind, waiting, book.pools["a"])
    assert refusal.message.endswith(f"{words}: the engine cannot serve model a now")


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [
        (Kind.TTFT, Refused.TTFT_DEADLINE_EXCEEDED, "ttft_timeout, still running"),
        (Kind.WHOLE, Refused.DEADLINE_EXCEEDED, "within timeout, still running"),
        (Kind.SAFETY, Refused.ENGINE_TIMEOUT, "safety timeout"),
    ],
)
def test_an_expiry_in_the_engine(
    make_book: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Callable[..., Any],
    kind: Kind,
    reason: Refused,
    words: str,
) -> None:
    book = make_book()
    refusal = refusals.expiry(kind, seat(book, request_spec(1)), book.pools["a"])
    assert refusal.reason is reason
    assert words in refusal.message
