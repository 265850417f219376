"""The token queue of a class: bounds, order, and sums."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.admission.model import Refused
from onegate.admission.queue import Backpressure, ClassQueue


@pytest.fixture
def queue(class_spec: Callable[..., Any]) -> ClassQueue:
    """1000 tokens, 500 for each principal."""
    return ClassQueue(class_spec(max_queued_tok=1000, per_principal_share=0.5))


def put(queue: ClassQueue, rid: int, tok: int = 100, principal: str = "alice") -> None:
    queue.add(rid, rid, "a", principal, tok)


def tok_of(queue: ClassQueue, principal: str) -> int:
    """What a principal has waiting here."""
    waiting = queue._by_principal.get(principal)
    return 0 if waiting is None else waiting.tok


def test_an_empty_queue(queue: ClassQueue) -> None:
    assert len(queue) == 0
    assert list(queue) == []
    assert queue.mean_tok == 0.0
    assert queue.head("a") is None
    assert queue.waiting_for("a") == 0
    assert queue.ahead(1, 1, "a") == 0
    assert tok_of(queue, "alice") == 0
    queue.check()


def test_members_are_counted_and_summed(queue: ClassQueue) -> None:
    put(queue, 1, 100)
    put(queue, 2, 50)
    put(queue, 3, 60, "bob")
    assert (len(queue), queue.queued_tok, queue.mean_tok) == (3, 210, 70.0)
    assert (tok_of(queue, "alice"), tok_of(queue, "bob")) == (150, 60)
    queue.check()


def test_the_order_is_that_of_arrival_whenever_they_are_added(queue: ClassQueue) -> None:
    for rid in (3, 1, 2):
        put(queue, rid)
    assert list(queue) == [1, 2, 3]
    assert queue.head("a") == 1
    assert [queue.ahead(rid, rid, "a") for rid in (1, 2, 3, 9)] == [0, 1, 2, 3]
    queue.check()


def test_each_pool_has_its_own_line(queue: ClassQueue) -> None:
    queue.add(1, 1, "a", "alice", 10)
    queue.add(2, 2, "b", "alice", 10)
    queue.add(3, 3, "b", "alice", 10)
    assert (queue.head("a"), queue.head("b"), queue.head("c")) == (1, 2, None)
    assert (queue.waiting_for("a"), queue.waiting_for("b")) == (1, 2)
    assert queue.ahead(3, 3, "b") == 1
    queue.check()


def test_removing_refunds_what_was_charged(queue: ClassQueue) -> None:
    put(queue, 1, 100)
    put(queue, 2, 50)
    assert queue.remove(1, 1, "a", "alice") == 100
    assert (len(queue), queue.queued_tok, tok_of(queue, "alice")) == (1, 50, 50)
    queue.check()
    assert queue.remove(2, 2, "a", "alice") == 50
    assert (len(queue), queue.queued_tok, tok_of(queue, "alice")) == (0, 0, 0)
    assert queue.head("a") is None
    queue.check()


def test_only_a_member_is_removed(queue: ClassQueue) -> None:
    put(queue, 1)
    put(queue, 3)
    with pytest.raises(AssertionError):
        queue.remove(2, 2, "a", "alice")
    assert len(queue) == 2


def test_a_count_by_the_engine_replaces_the_estimate(queue: ClassQueue) -> None:
    put(queue, 1, 100)
    put(queue, 2, 100)
    queue.adjust(1, "alice", 130)
    assert (queue.queued_tok, tok_of(queue, "alice")) == (230, 230)
    queue.adjust(1, "alice", 10)
    assert queue.queued_tok == 110
    assert queue.remove(1, 1, "a", "alice") == 10
    queue.check()


@pytest.mark.parametrize("tok", [0, -1])
def test_nothing_waits_for_free(queue: ClassQueue, tok: int) -> None:
    with pytest.raises(AssertionError):
        put(queue, 1, tok)
    put(queue, 2)
    with pytest.raises(AssertionError):
        queue.adjust(2, "alice", tok)
    queue.check()


def room(queue: ClassQueue, limits: Any, tok: int, principal: str = "alice") -> Backpressure | None:
    return queue.room(principal, tok, limits())


def test_there_is_room_up_to_ones_share(queue: ClassQueue, limits: Callable[..., Any]) -> None:
    assert queue.principal_limit_tok() == 500
    assert room(queue, limits, 500) is None
    assert room(queue, limits, 501) == Backpressure(Refused.TOO_LARGE, "tokens", 500, 501, 0.0)


def test_what_one_has_waiting_counts(queue: ClassQueue, limits: Callable[..., Any]) -> None:
    put(queue, 1, 300)
    put(queue, 2, 100, "bob")
    assert room(queue, limits, 200) is None
    assert room(queue, limits, 210) == Backpressure(
        Refused.PEER_QUOTA, "tokens", 500, 300, excess_tok=10, drain_share=0.75
    )
    assert room(queue, limits, 210, "carol") is None


def test_what_all_have_waiting_counts(queue: ClassQueue, limits: Callable[..., Any]) -> None:
    put(queue, 1, 450)
    put(queue, 2, 450, "bob")
    assert room(queue, limits, 100, "carol") is None
    assert room(queue, limits, 101, "carol") == Backpressure(
        Refused.TOKENS_FULL, "tokens", 1000, 900, excess_tok=1
    )


def test_the_own_quota_is_named_first(queue: ClassQueue, limits: Callable[..., Any]) -> None:
    put(queue, 1, 500)
    put(queue, 2, 500, "bob")
    full = room(queue, limits, 100)
    assert full is not None
    assert full.reason is Refused.PEER_QUOTA


def test_one_principal_may_have_a_share_of_the_requests(
    queue: ClassQueue, limits: Callable[..., Any]
) -> None:
    few = limits(max_queued_requests=4)
    put(queue, 1, 100)
    assert queue.room("alice", 10, few) is None
    put(queue, 2, 100)
    put(queue, 3, 200, "bob")
    assert queue.room("alice", 10, few) == Backpressure(
        Refused.PEER_QUOTA, "requests", 2, 2, excess_tok=100.0, drain_share=0.5
    )
    assert queue.room("bob", 10, few) is None


def test_everybody_may_have_one_request(queue: ClassQueue, limits: Callable[..., Any]) -> None:
    few = limits(max_queued_requests=1)
    assert queue.room("alice", 10, few) is None
    put(queue, 1, 100)
    full = queue.room("alice", 10, few)
    assert full is not None
    assert (full.unit, full.limit) == ("requests", 1)


def test_looking_for_room_charges_nothing(queue: ClassQueue, limits: Callable[..., Any]) -> None:
    put(queue, 1, 300)
    room(queue, limits, 100)
    room(queue, limits, 400)
    assert (queue.queued_tok, len(queue)) == (300, 1)
    queue.check()


def spoil_total(queue: ClassQueue) -> None:
    queue.queued_tok += 1


def spoil_running(queue: ClassQueue) -> None:
    queue.running = -1


def spoil_principal_tok(queue: ClassQueue) -> None:
    queue._by_principal["alice"].tok += 1


def spoil_principal_requests(queue: ClassQueue) -> None:
    queue._by_principal["alice"].requests += 1


def leave_an_empty_principal(queue: ClassQueue) -> None:
    queue._by_principal["bob"] = type(queue._by_principal["alice"])()


def leave_an_empty_line(queue: ClassQueue) -> None:
    queue._by_pool["b"] = []


def spoil_order(queue: ClassQueue) -> None:
    queue._by_pool["a"].reverse()


def stand_in_two_places(queue: ClassQueue) -> None:
    queue._by_pool["b"] = [(1, 1)]


def rename_a_member(queue: ClassQueue) -> None:
    queue._by_pool["a"][1] = (9, 9)


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_total,
        spoil_running,
        spoil_principal_tok,
        spoil_principal_requests,
        leave_an_empty_principal,
        leave_an_empty_line,
        spoil_order,
        stand_in_two_places,
        rename_a_member,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_the_check_sees_what_is_wrong(
    queue: ClassQueue, spoil: Callable[[ClassQueue], None]
) -> None:
    put(queue, 1)
    put(queue, 2)
    queue.check()
    spoil(queue)
    with pytest.raises(AssertionError):
        queue.check()
