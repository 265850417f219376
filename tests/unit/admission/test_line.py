"""The order within one class and pool."""

from collections.abc import Callable

import pytest

from onegate.admission.fairness import TOLERANCE_TOK as AHEAD
from onegate.admission.fairness import Accounts
from onegate.admission.line import Line, Member


class Waiting:
    """A line and the accounts of those who stand in it."""

    def __init__(self) -> None:
        self.line = Line()
        self.accounts = Accounts()
        self.members: dict[int, Member] = {}

    def put(
        self, rid: int, principal: str = "alice", flow: str = "", **fields: int | bool
    ) -> Member:
        account = self.accounts.enter(principal, flow)
        member = Member(rid, rid, account, 10, **fields)
        self.line.add(member)
        self.members[rid] = member
        self.line.check()
        return member

    def head(self, gap_ns: float | None = None, now_ns: int = 0) -> int | None:
        """Who is next, when one starts every `gap_ns`."""
        return self.line.head(now_ns, gap_ns)

    def start(self, rid: int, tok: int = 2 * AHEAD) -> None:
        """It starts, and is charged so much: as a rule, enough to be ahead of others."""
        member = self.members.pop(rid)
        self.line.remove(member)
        self.accounts.chosen(member.account)
        self.accounts.charge(member.account, tok)
        self.line.check()

    def order(self, tok: int = 2 * AHEAD) -> list[int]:
        """Start them all, each for so much."""
        order = []
        while (rid := self.head()) is not None:
            order.append(rid)
            self.start(rid, tok)
        assert len(self.line) == 0
        return order


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_an_empty_line(waiting: Waiting) -> None:
    assert len(waiting.line) == 0
    assert list(waiting.line) == []
    assert waiting.head() is None
    assert list(waiting.line.by_displacement()) == []
    waiting.line.check()


def test_one_flow_is_served_in_the_order_of_arrival(waiting: Waiting) -> None:
    for rid in (3, 1, 2):
        waiting.put(rid)
    assert [waiting.line.ahead(waiting.members[rid]) for rid in (1, 2, 3)] == [0, 1, 2]
    assert waiting.order() == [1, 2, 3]


def test_within_a_flow_the_earliest_deadline_is_first(waiting: Waiting) -> None:
    waiting.put(1)
    waiting.put(2, start_by_ns=90)
    waiting.put(3, start_by_ns=50)
    waiting.put(4, start_by_ns=90)
    assert [waiting.line.ahead(waiting.members[rid]) for rid in (3, 2, 4, 1)] == [0, 1, 2, 3]
    assert waiting.order() == [3, 2, 4, 1]


def test_a_deadline_does_not_pass_other_flows(waiting: Waiting) -> None:
    waiting.put(1, flow="f")
    waiting.put(2, flow="g", start_by_ns=5)
    waiting.put(3, flow="g")
    assert waiting.order() == [1, 2, 3]


def test_principals_take_turns_however_much_they_ask(waiting: Waiting) -> None:
    for rid in range(1, 7):
        waiting.put(rid, "alice")
    waiting.put(7, "bob")
    waiting.put(8, "bob")
    assert waiting.order() == [1, 7, 2, 8, 3, 4, 5, 6]


def test_small_ones_are_served_as_they_came_whoever_asks(waiting: Waiting) -> None:
    for rid, principal in ((1, "alice"), (2, "alice"), (3, "bob"), (4, "alice"), (5, "bob")):
        waiting.put(rid, principal)
    assert waiting.order(AHEAD // 5) == [1, 2, 3, 4, 5]


def test_flows_of_one_principal_take_turns_and_gain_nothing_over_others(waiting: Waiting) -> None:
    for rid, flow in ((1, "f"), (2, "f"), (3, "g"), (4, "h")):
        waiting.put(rid, "alice", flow)
    for rid in (5, 6):
        waiting.put(rid, "bob")
    assert waiting.order() == [1, 5, 3, 6, 4, 2]


def test_whoever_was_served_least_is_next_not_whoever_started_least(waiting: Waiting) -> None:
    for rid in (1, 2, 3, 4):
        waiting.put(rid, "alice")
    waiting.put(5, "bob")
    waiting.put(6, "bob")
    waiting.start(1, 2 * AHEAD)
    waiting.start(5, 5 * AHEAD)
    # 2 against 5; 4; 6.
    assert waiting.order() == [2, 3, 6, 4]


def test_tokens_that_come_while_others_wait_count(waiting: Waiting) -> None:
    one = waiting.put(1, "alice")
    waiting.put(2, "alice")
    waiting.put(3, "bob")
    waiting.start(1, 0)
    waiting.accounts.charge(one.account, AHEAD)
    assert waiting.head() == 2, "so much is nothing"
    waiting.accounts.charge(one.account, 1)
    assert waiting.head() == 3


def test_who_was_in_the_engine_before_goes_first_in_the_order_of_arrival(waiting: Waiting) -> None:
    waiting.put(4, start_by_ns=1)
    waiting.put(5, "bob")
    waiting.put(3, returned=True)
    waiting.put(2, "bob", returned=True)
    assert [waiting.line.ahead(waiting.members[rid]) for rid in (2, 3, 4, 5)] == [0, 1, 2, 3]
    assert sorted(waiting.line) == [2, 3, 4, 5]
    assert waiting.order() == [2, 3, 4, 5]


def test_who_was_in_the_engine_before_goes_before_one_that_is_held(waiting: Waiting) -> None:
    held = waiting.put(2)
    waiting.line.hold(held)
    waiting.put(1, returned=True)
    assert waiting.line.ahead(held) == 1
    assert waiting.order() == [1, 2]


def test_nobody_passes_one_that_is_held(waiting: Waiting) -> None:
    held = waiting.put(1)
    waiting.line.hold(held)
    waiting.put(2, start_by_ns=1)
    waiting.put(3, "bob")
    waiting.accounts.charge(held.account, 2 * AHEAD)
    assert waiting.head() == 1
    assert waiting.line.ahead(held) == 0
    waiting.start(1)
    assert waiting.head() == 3, "the hold ended with it"


def test_one_that_is_held_is_ahead_of_the_others(waiting: Waiting) -> None:
    waiting.line.hold(waiting.put(1, "zoe"))
    waiting.accounts.charge(waiting.members[1].account, 2 * AHEAD)
    later = waiting.put(2, "bob")
    assert waiting.line.ahead(later) == 1


def test_arrival_is_by_the_place_in_line_and_not_by_name(waiting: Waiting) -> None:
    for rid, seq, principal in ((9, 1, "alice"), (8, 2, "bob"), (7, 3, "carol")):
        account = waiting.accounts.enter(principal, "")
        member = waiting.members[rid] = Member(rid, seq, account, 10)
        waiting.line.add(member)
    assert waiting.order() == [9, 8, 7]
    assert (waiting.line._flows, waiting.line._flows_of) == ({}, {})
    assert len(waiting.line._promises) == 0


def test_only_who_leaves_loses_its_hold(waiting: Waiting) -> None:
    waiting.put(1, start_by_ns=1)
    two = waiting.put(2)
    waiting.line.hold(two)
    waiting.start(1)
    waiting.put(3, start_by_ns=1)
    assert waiting.head() == 2


def test_one_that_returned_is_not_held_and_takes_nobodys_hold(waiting: Waiting) -> None:
    held = waiting.put(2)
    waiting.line.hold(held)
    waiting.line.hold(waiting.put(1, returned=True))
    waiting.put(3, "bob", start_by_ns=1)
    assert waiting.order() == [1, 2, 3]


def test_a_time_that_comes_near_goes_before_the_fair_order(waiting: Waiting) -> None:
    waiting.put(1)
    waiting.put(2, "bob", start_by_ns=100)
    waiting.put(3, "carol", start_by_ns=90)
    assert waiting.head(gap_ns=10.0) == 1
    assert waiting.head(gap_ns=10.0, now_ns=70) == 3, "its time to let one pass is over"
    assert waiting.head(gap_ns=None, now_ns=70) == 1, "at what pace nobody knows"
    waiting.line.hold(waiting.members[1])
    assert waiting.head(gap_ns=10.0, now_ns=70) == 1
    waiting.start(3)
    assert waiting.head(gap_ns=10.0, now_ns=70) == 1


def test_the_place_at_the_latest_is_that_by_deadlines(waiting: Waiting) -> None:
    waiting.put(1)
    waiting.put(2, "bob", start_by_ns=100)
    waiting.put(3, "carol", start_by_ns=90)
    waiting.put(4, "dora", returned=True, start_by_ns=5)
    assert [waiting.line.at_latest(waiting.members[rid]) for rid in (1, 2, 3, 4)] == [1, 2, 1, 0]
    waiting.start(3)
    assert waiting.line.at_latest(waiting.members[2]) == 1


def test_whoever_would_make_others_late_is_known(waiting: Waiting) -> None:
    waiting.put(1, "bob", start_by_ns=15)
    new = waiting.put(2, "carol", start_by_ns=5)
    assert waiting.line.made_late(new, 0, 10.0)
    assert not waiting.line.made_late(new, 0, 7.0)
    assert not waiting.line.made_late(waiting.members[1], 0, 10.0)


def test_who_returned_leaves_by_its_number(waiting: Waiting) -> None:
    for rid in (1, 2, 3):
        waiting.put(rid, returned=True)
    waiting.line.remove(waiting.members[2])
    assert list(waiting.line) == [1, 3]
    waiting.line.check()


def test_only_who_stands_there_leaves(waiting: Waiting) -> None:
    one = waiting.put(1)
    waiting.put(2)
    waiting.line.remove(one)
    with pytest.raises(AssertionError):
        waiting.line.remove(one)


def test_equals_are_ahead_as_they_came(waiting: Waiting) -> None:
    for rid, principal, flow in ((1, "alice", "f"), (2, "alice", "g"), (3, "bob", "f")):
        waiting.put(rid, principal, flow)
    waiting.put(4, "alice", "f")
    assert [waiting.line.ahead(waiting.members[rid]) for rid in (1, 2, 3, 4)] == [0, 1, 2, 3]
    assert waiting.order(tok=1) == [1, 2, 3, 4]


def test_the_turns_of_others_are_ahead(waiting: Waiting) -> None:
    for rid in (1, 2, 3):
        waiting.put(rid, "alice")
    waiting.put(4, "bob")
    waiting.put(5, "bob")
    waiting.accounts.charge(waiting.members[1].account, 2 * AHEAD)
    order = [4, 1, 5, 2, 3]
    assert [waiting.line.ahead(waiting.members[rid]) for rid in order] == [0, 1, 2, 3, 4]


def test_the_turns_of_other_flows_are_ahead(waiting: Waiting) -> None:
    for rid in (1, 2, 3):
        waiting.put(rid, flow="f")
    waiting.put(4, flow="g")
    waiting.put(5, "bob")
    waiting.accounts.charge(waiting.members[1].account, 2 * AHEAD)
    # Bob; alice's other flow, in her first turn; then the flow that had so much.
    assert [waiting.line.ahead(waiting.members[rid]) for rid in (5, 4, 1, 2, 3)] == [0, 1, 2, 3, 4]


def test_out_goes_the_newest_of_the_most_served_flow_of_the_most_served_principal(
    waiting: Waiting,
) -> None:
    for rid, principal, flow in (
        (1, "alice", "f"),
        (2, "alice", "f"),
        (3, "alice", "g"),
        (4, "bob", "f"),
        (5, "bob", "f"),
        (6, "carol", "f"),
    ):
        waiting.put(rid, principal, flow)
    waiting.accounts.charge(waiting.members[4].account, 50)
    waiting.accounts.charge(waiting.members[1].account, 10)
    waiting.accounts.charge(waiting.members[3].account, 20)
    assert list(waiting.line.by_displacement()) == [5, 4, 3, 2, 1, 6]


def test_the_newest_goes_out_whatever_its_deadline(waiting: Waiting) -> None:
    waiting.put(1, start_by_ns=90)
    waiting.put(2, start_by_ns=10)
    waiting.put(3, start_by_ns=50)
    assert list(waiting.line.by_displacement()) == [3, 2, 1]


def test_who_was_in_the_engine_is_not_put_out(waiting: Waiting) -> None:
    waiting.put(1, returned=True)
    waiting.put(2)
    assert list(waiting.line.by_displacement()) == [2]


def lose_one(waiting: Waiting) -> None:
    waiting.line._waiting += 1


def stand_twice(waiting: Waiting) -> None:
    waiting.line._returned.append((1, 1))


def leave_an_empty_flow(waiting: Waiting) -> None:
    waiting.line._flows[waiting.accounts.enter("bob", "")] = []


def spoil_the_order(waiting: Waiting) -> None:
    waiting.line._flows[waiting.members[1].account].reverse()


def spoil_the_order_of_the_returned(waiting: Waiting) -> None:
    waiting.line._returned.reverse()


def hold_a_stranger(waiting: Waiting) -> None:
    waiting.line._held = 77


@pytest.mark.parametrize(
    "spoil",
    [
        lose_one,
        stand_twice,
        leave_an_empty_flow,
        spoil_the_order,
        spoil_the_order_of_the_returned,
        hold_a_stranger,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_the_check_sees_what_is_wrong(waiting: Waiting, spoil: Callable[[Waiting], None]) -> None:
    waiting.put(1)
    waiting.put(2)
    waiting.put(3, returned=True)
    waiting.put(4, returned=True)
    spoil(waiting)
    with pytest.raises(AssertionError):
        waiting.line.check()
