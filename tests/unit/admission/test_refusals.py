"""Refusals in words and numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import refusals
from onegate.admission.deadlines import Kind
from onegate.admission.hints import DRAIN_BASE_NS, drain_hint_ns
from onegate.admission.model import Binding, PoolState, Refusal, Refused
from onegate.admission.queue import Backpressure

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


def test_a_refusal_for_room_has_all_the_numbers(busy: Any) -> None:
    full = Backpressure(Refused.TOKENS_FULL, "tokens", 1000, 990, 10)
    refusal = refusals.for_room(busy, "chat", "a", full, 20, NOW)
    assert refusal == Refusal(
        Refused.TOKENS_FULL,
        "990 tokens are waiting, 1000 is the most, and this request is 20 tokens: come back later",
        limit=1000,
        used=990,
        retry_after_ns=S // 10,
        limited_by=Binding.SEATS,
    )


@pytest.mark.parametrize(("commit", "second_ns"), [(True, 3 * S // 10), (False, S // 10)])
def test_only_a_real_refusal_sends_the_next_one_to_a_later_time(
    busy: Any, commit: bool, second_ns: int
) -> None:
    full = Backpressure(Refused.TOKENS_FULL, "tokens", 1000, 990, 10)
    refusals.for_room(busy, "chat", "a", full, 20, NOW, commit=commit)
    assert refusals.for_room(busy, "chat", "a", full, 20, NOW).retry_after_ns == second_ns


def test_a_refusal_commits_unless_told_otherwise(busy: Any) -> None:
    full = Backpressure(Refused.TOKENS_FULL, "tokens", 1000, 990, 10)
    refusals.for_room(busy, "chat", "a", full, 20, NOW)
    assert busy.queues["chat"].drain_clock_ns > NOW


def test_ones_own_quota_is_called_ones_own(busy: Any) -> None:
    full = Backpressure(Refused.PEER_QUOTA, "requests", 2, 2, 10, 0.5)
    refusal = refusals.for_room(busy, "chat", "a", full, 20, NOW)
    assert refusal.message.startswith("2 requests of yours are waiting, 2 is the most")
    assert refusal.retry_after_ns == S // 5


def test_what_never_fits_is_told_so(busy: Any) -> None:
    full = Backpressure(Refused.TOO_LARGE, "tokens", 500, 600, 0.0)
    refusal = refusals.for_room(busy, "chat", "a", full, 600, NOW)
    assert (refusal.reason, refusal.limit, refusal.used) == (Refused.TOO_LARGE, 500, 600)
    assert "600 tokens" in refusal.message
    assert "at most 500 may wait in class chat" in refusal.message
    assert refusal.retry_after_ns is None


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
    request_spec: Callable[..., Any],
    wait: Callable[..., Any],
    kind: Kind,
    reason: Refused,
    words: str,
) -> None:
    refusal = refusals.expiry(kind, wait(make_book(), request_spec(1)))
    assert refusal.reason is reason
    assert words in refusal.message


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
    refusal = refusals.expiry(kind, seat(make_book(), request_spec(1)))
    assert refusal.reason is reason
    assert words in refusal.message
