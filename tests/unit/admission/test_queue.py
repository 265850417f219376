"""The token queue of a class: bounds, order, and sums."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.admission.line import Line, Member
from onegate.admission.model import Refused
from onegate.admission.queue import PROMPTS, Backpressure, ClassQueue

S = 10**9


@pytest.fixture
def queue(class_spec: Callable[..., Any]) -> ClassQueue:
    """1000 tokens, 500 for each principal."""
    return ClassQueue(class_spec(max_queued_tok=1000, per_principal_share=0.5))


def put(
    queue: ClassQueue,
    rid: int,
    tok: int = 100,
    principal: str = "alice",
    pool: str = "a",
    **fields: Any,
) -> Member:
    account = queue.accounts.enter(principal, "")
    member = Member(rid, rid, account, tok, **fields)
    queue.add(member, pool)
    return member


def tok_of(queue: ClassQueue, principal: str) -> int:
    """What a principal has waiting here."""
    waiting = queue._by_principal.get(principal)
    return 0 if waiting is None else waiting.tok


def test_an_empty_queue(queue: ClassQueue) -> None:
    assert len(queue) == 0
    assert list(queue) == []
    assert queue.mean_tok == 0.0
    assert queue.head("a", 0) is None
    assert queue.waiting_for("a") == 0
    assert list(queue.by_displacement()) == []
    assert tok_of(queue, "alice") == 0
    queue.check()


def test_members_are_counted_and_summed(queue: ClassQueue) -> None:
    put(queue, 1, 100)
    put(queue, 2, 50)
    put(queue, 3, 60, "bob")
    assert (len(queue), queue.queued_tok, queue.mean_tok) == (3, 210, 70.0)
    assert (tok_of(queue, "alice"), tok_of(queue, "bob")) == (150, 60)
    queue.check()


def test_equals_are_in_the_order_of_arrival_whenever_they_are_added(queue: ClassQueue) -> None:
    for rid in (3, 1, 2):
        put(queue, rid)
    assert sorted(queue) == [1, 2, 3]
    assert queue.head("a", 0) == 1
    assert [queue.ahead(rid) for rid in (1, 2, 3)] == [0, 1, 2]
    queue.check()


def test_each_pool_has_its_own_line(queue: ClassQueue) -> None:
    put(queue, 1, 10)
    put(queue, 2, 10, pool="b")
    put(queue, 3, 10, pool="b")
    assert (queue.head("a", 0), queue.head("b", 0), queue.head("c", 0)) == (1, 2, None)
    assert (queue.waiting_for("a"), queue.waiting_for("b"), queue.waiting_for("c")) == (1, 2, 0)
    assert queue.ahead(3) == 1
    queue.check()


def test_removing_refunds_what_was_charged(queue: ClassQueue) -> None:
    put(queue, 1, 100)
    put(queue, 2, 50)
    assert queue.remove(1, "a") == 100
    assert (len(queue), queue.queued_tok, tok_of(queue, "alice")) == (1, 50, 50)
    queue.check()
    assert queue.remove(2, "a") == 50
    assert (len(queue), queue.queued_tok, tok_of(queue, "alice")) == (0, 0, 0)
    assert queue.head("a", 0) is None
    queue.check()


def test_only_a_member_is_removed(queue: ClassQueue) -> None:
    put(queue, 1)
    put(queue, 3)
    with pytest.raises(KeyError):
        queue.remove(2, "a")
    assert len(queue) == 2
    queue.check()


def test_a_count_by_the_engine_replaces_the_estimate(queue: ClassQueue) -> None:
    put(queue, 1, 100)
    put(queue, 2, 100)
    queue.adjust(1, 130)
    assert (queue.queued_tok, tok_of(queue, "alice"), queue.tok_of(1)) == (230, 230, 130)
    queue.adjust(1, 10)
    assert queue.queued_tok == 110
    queue.check()
    assert queue.remove(1, "a") == 10
    queue.check()


def test_who_is_held_is_passed_by_nobody_of_its_class(queue: ClassQueue) -> None:
    put(queue, 2)
    queue.hold(2)
    put(queue, 1)
    assert queue.head("a", 0) == 2
    queue.remove(2, "a")
    assert queue.head("a", 0) == 1


def test_from_one_start_to_the_next_it_takes_a_request_over_the_rate(queue: ClassQueue) -> None:
    put(queue, 1, 100)
    put(queue, 2, 50)
    second = 10**9
    assert queue.gap_ns(2 * second) is None
    queue.rate.backlog(True, 0)
    queue.rate.released(300, second)
    assert queue.gap_ns(2 * second) == second // 2


def draining(queue: ClassQueue) -> None:
    """Two requests of 100 wait for `a`; 200 tokens a second have left."""
    for rid in (1, 2):
        put(queue, rid)
    queue.rate.backlog(True, 0)
    queue.rate.released(400, S)


def test_it_drains_no_faster_than_full_pools_go_on(queue: ClassQueue) -> None:
    draining(queue)
    assert queue.tok_per_ns(2 * S) == pytest.approx(200 / S)
    queue.turnover["a"] = 1.5 / S
    assert queue.tok_per_ns(2 * S) == pytest.approx(150 / S), "one and a half of a hundred tokens"
    assert queue.gap_ns(2 * S) == pytest.approx(S / 1.5)
    queue.turnover["a"] = 3 / S
    assert queue.tok_per_ns(2 * S) == pytest.approx(1600 / 6 / S), "likely, after two seconds"
    queue.rate.released(1600, 10 * S - 1)
    assert queue.tok_per_ns(10 * S - 1) == pytest.approx(200 / S), "a bound, after ten"


def test_pools_that_it_waits_for_are_added_if_all_are_known(queue: ClassQueue) -> None:
    draining(queue)
    put(queue, 3, pool="b")
    queue.turnover |= {"a": 0.5 / S, "c": 9 / S}
    assert queue.tok_per_ns(2 * S) == pytest.approx(200 / S), "of one nobody knows"
    queue.turnover["b"] = 1 / S
    assert queue.tok_per_ns(2 * S) == pytest.approx(150 / S), "nobody waits for the third"


def test_a_rate_that_is_not_known_is_not_made_up(queue: ClassQueue) -> None:
    put(queue, 1)
    queue.turnover["a"] = 1.0
    assert queue.tok_per_ns(2 * S) is None


def test_who_starts_tells_how_fast_it_drains_and_how_long_prompts_are(queue: ClassQueue) -> None:
    queue.rate.backlog(True, 0)
    for _ in range(PROMPTS):
        queue.started(100, 50, S)
    assert queue.tok_per_ns(2 * S) == pytest.approx(100 * PROMPTS / (2 * S))
    assert 0.6 * 50 < queue.prompt_tok < 0.7 * 50
    for _ in range(100):
        queue.started(100, 80, S)
    assert queue.prompt_tok == pytest.approx(80, rel=0.01)


def test_at_its_pace_times_come_near_and_newcomers_make_others_late(queue: ClassQueue) -> None:
    second = 10**9
    queue.rate.backlog(True, 0)
    queue.rate.released(200, second)  # one a second
    put(queue, 1)
    put(queue, 2, principal="bob", start_by_ns=5 * second)
    assert (queue.head("a", 2 * second), queue.at_latest(2)) == (1, 0)
    queue.rate.released(200, 3 * second)
    assert queue.head("a", 3 * second + second // 2) == 2
    put(queue, 3, principal="carol", start_by_ns=4 * second)
    assert not queue.made_late(3, 3 * second, 1.0)
    assert queue.made_late(3, 3 * second, 2.0)
    queue.rate.backlog(False, 0)
    assert not queue.made_late(3, 3 * second, 2.0), "at what pace nobody knows"


def test_the_longest_line_is_put_out_first(queue: ClassQueue) -> None:
    put(queue, 1)
    for rid in (2, 3):
        put(queue, rid, pool="b")
    put(queue, 4)
    put(queue, 5)
    assert list(queue.by_displacement()) == [5, 4, 1, 3, 2]


@pytest.mark.parametrize("tok", [0, -1])
def test_nothing_waits_for_free(queue: ClassQueue, tok: int) -> None:
    with pytest.raises(AssertionError):
        put(queue, 1, tok)
    put(queue, 2)
    with pytest.raises(AssertionError):
        queue.adjust(2, tok)
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


@pytest.mark.parametrize(("more", "tok"), [(0.0, 500), (0.25, 625), (0.5, 750)])
def test_a_promise_makes_ones_own_bound_wider(
    queue: ClassQueue, limits: Callable[..., Any], more: float, tok: int
) -> None:
    put(queue, 1, 300)
    assert queue.room("alice", tok - 300, limits(), more) is None
    full = queue.room("alice", min(500, tok - 299), limits(), more)
    assert full is not None
    assert (full.reason, full.limit) == (Refused.PEER_QUOTA, 500)
    assert full.excess_tok == min(500, tok - 299) + 300 - tok


def test_a_promise_makes_the_bound_of_requests_wider(
    queue: ClassQueue, limits: Callable[..., Any]
) -> None:
    few = limits(max_queued_requests=8)
    for rid in range(1, 5):
        put(queue, rid, 10)
    assert queue.room("alice", 10, few) is not None
    assert queue.room("alice", 10, few, 0.25) is None
    put(queue, 5, 10)
    assert queue.room("alice", 10, few, 0.25) is not None


def test_a_promise_makes_the_bound_of_the_class_wider(
    queue: ClassQueue, limits: Callable[..., Any]
) -> None:
    put(queue, 1, 500)
    put(queue, 2, 450, "bob")
    assert queue.room("carol", 300, limits(), 0.25) is None
    assert queue.room("carol", 301, limits(), 0.25) == Backpressure(
        Refused.TOKENS_FULL, "tokens", 1000, 950, excess_tok=1
    )


def test_no_promise_makes_room_for_what_never_fits(
    queue: ClassQueue, limits: Callable[..., Any]
) -> None:
    full = queue.room("alice", 501, limits(), 0.25)
    assert full is not None
    assert full.reason is Refused.TOO_LARGE


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
    queue._lines["b"] = Line()


def stand_in_two_places(queue: ClassQueue) -> None:
    queue._lines["b"] = queue._lines["a"]


def stand_in_no_line(queue: ClassQueue) -> None:
    queue._lines["a"].remove(queue._members[1][1])


def rename_a_member(queue: ClassQueue) -> None:
    queue._members[9] = queue._members.pop(1)


def spoil_the_accounts(queue: ClassQueue) -> None:
    queue._members[1][1].account.live += 1


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_total,
        spoil_running,
        spoil_principal_tok,
        spoil_principal_requests,
        leave_an_empty_principal,
        leave_an_empty_line,
        stand_in_two_places,
        stand_in_no_line,
        spoil_the_accounts,
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
