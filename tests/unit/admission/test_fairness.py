"""Who was served how much, and whose turn is next."""

import pytest

from onegate.admission.fairness import (
    IDLE_KEPT,
    MANY,
    Account,
    Accounts,
    LeastServed,
)
from onegate.admission.fairness import TOLERANCE_TOK as AHEAD


def served(accounts: Accounts, principal: str, tok: int, flow: str = "") -> Account:
    """A request that started, and was charged so much; it goes on."""
    account = accounts.enter(principal, flow)
    accounts.chosen(account)
    accounts.charge(account, tok)
    return account


def principal_of(account: Account) -> Account:
    assert account.parent is not None
    return account.parent


# --- accounts -------------------------------------------------------------------------------------


def test_nobody_has_an_account_without_a_request() -> None:
    accounts = Accounts()
    assert (len(accounts), accounts.live) == (0, 0)
    one = accounts.enter("alice", "f")
    assert (len(accounts), accounts.live) == (1, 1)
    assert (one.name, principal_of(one).name) == ("f", "alice")
    accounts.leave(one)
    assert (len(accounts), accounts.live) == (0, 0)
    accounts.check()


def test_requests_of_a_flow_share_an_account_and_flows_a_principal() -> None:
    accounts = Accounts()
    one, two, other = (accounts.enter("alice", flow) for flow in ("f", "f", "g"))
    assert one is two
    assert one is not other
    assert principal_of(one) is principal_of(other)
    assert (one.live, principal_of(one).live, accounts.live) == (2, 3, 3)
    assert len(principal_of(one)) == 2
    accounts.leave(one)
    assert (one.live, principal_of(one).live) == (1, 2)
    assert accounts.enter("bob", "f") is not one
    accounts.check()


def test_what_was_not_computed_is_set_off_against_the_next_charges() -> None:
    accounts = Accounts()
    one, other = accounts.enter("alice", "f"), accounts.enter("alice", "g")
    accounts.charge(one, 100)
    accounts.credit(one, 30)
    assert (one.served_tok, principal_of(one).served_tok) == (100, 100)
    accounts.charge(one, 20)
    assert (one.served_tok, one.credit_tok) == (100, 10)
    accounts.charge(other, 25)
    assert (other.served_tok, one.credit_tok) == (25, 10)
    assert principal_of(one).served_tok == 115, "a principal's credit is that of all its flows"
    accounts.charge(one, 25)
    assert (one.served_tok, one.credit_tok) == (115, 0)
    accounts.check()


def test_credit_is_not_saved_up_by_being_away() -> None:
    """Without it he would be lifted to the level, and would have no more than that."""
    accounts = Accounts()
    one = served(accounts, "alice", AHEAD + 100)
    accounts.credit(one, AHEAD)
    accounts.leave(one)
    bob = served(accounts, "bob", 2 * AHEAD + 60)
    accounts.chosen(bob)
    again = accounts.enter("alice", "f")
    alice = principal_of(again)
    assert alice.served_tok == AHEAD + 100
    assert alice.credit_tok == 40


def test_a_flow_and_its_principal_are_charged() -> None:
    accounts = Accounts()
    one, other = accounts.enter("alice", "f"), accounts.enter("alice", "g")
    accounts.charge(one, 10)
    accounts.charge(one, 5)
    accounts.charge(other, 3)
    assert (one.served_tok, other.served_tok) == (15, 3)
    assert principal_of(one).served_tok == 18


def test_a_new_principal_begins_where_the_others_are_served() -> None:
    accounts = Accounts()
    served(accounts, "alice", AHEAD + 1000)
    first = accounts.enter("bob", "")
    assert principal_of(first).served_tok == 0, "nobody was chosen since"
    served(accounts, "alice", 0)  # the next one starts, a thousand beyond the tolerance
    assert principal_of(accounts.enter("carol", "")).served_tok == 1000
    assert principal_of(first).served_tok == 0, "whoever waits is not lifted"
    assert principal_of(first).due_tok == 1000, "and waits for nobody for it"


def test_a_new_flow_begins_where_those_of_its_principal_are_served() -> None:
    accounts = Accounts()
    served(accounts, "alice", AHEAD + 1000, "f")
    served(accounts, "bob", 70, "f")
    served(accounts, "alice", 0, "f")
    assert accounts.enter("alice", "g").served_tok == 1000
    assert accounts.enter("bob", "g").served_tok == 0


def test_the_level_never_goes_back() -> None:
    accounts = Accounts()
    late = accounts.enter("bob", "")
    served(accounts, "alice", AHEAD + 1000)
    served(accounts, "alice", 0)
    accounts.chosen(late)
    assert principal_of(accounts.enter("carol", "")).served_tok == 1000
    other = accounts.enter("alice", "g")
    accounts.chosen(other)
    assert accounts.enter("alice", "h").served_tok == 1000


def test_nobody_saves_up_by_being_away() -> None:
    accounts = Accounts()
    bob = served(accounts, "bob", 10)
    accounts.leave(bob)
    alice = served(accounts, "alice", AHEAD + 1000)
    accounts.chosen(alice)
    assert principal_of(accounts.enter("bob", "")).served_tok == 1000


def test_nobody_gets_rid_of_what_was_served_by_being_away() -> None:
    accounts = Accounts()
    bob = served(accounts, "bob", 500)
    accounts.leave(bob)
    alice = served(accounts, "alice", AHEAD + 100)
    accounts.chosen(alice)
    assert principal_of(accounts.enter("bob", "")).served_tok == 500
    accounts.check()


@pytest.mark.parametrize(
    ("tok", "due_tok"), [(0, 0), (AHEAD, 0), (AHEAD + 1, 1), (3 * AHEAD, 2 * AHEAD)]
)
def test_whoever_is_ahead_by_less_than_the_tolerance_is_not_ahead(tok: int, due_tok: int) -> None:
    accounts = Accounts()
    alice = served(accounts, "alice", tok)
    assert (alice.due_tok, principal_of(alice).due_tok) == (due_tok, due_tok)


def test_who_comes_back_has_both_its_counters() -> None:
    accounts = Accounts()
    bob = served(accounts, "bob", 500, "f")
    accounts.leave(bob)
    again = accounts.enter("bob", "f")
    assert again is bob
    assert (again.served_tok, principal_of(again).served_tok) == (500, 500)
    assert accounts.live == 1
    accounts.check()


def test_who_is_not_above_the_level_is_forgotten() -> None:
    accounts = Accounts()
    alice = served(accounts, "alice", AHEAD + 1000)
    bob = served(accounts, "bob", 1000)
    accounts.chosen(alice)
    accounts.leave(bob)
    assert len(accounts) == 1
    accounts.check()


def test_of_the_idle_the_last_to_leave_are_remembered() -> None:
    accounts = Accounts()
    for i in range(IDLE_KEPT + 3):
        accounts.leave(served(accounts, f"p{i}", 10 + i))
    assert len(accounts) == IDLE_KEPT
    assert next(principal.name for principal in accounts._root) == "p3"
    accounts.check()


def test_who_is_live_is_never_forgotten_for_the_idle() -> None:
    accounts = Accounts()
    live = [served(accounts, f"l{i}", 10) for i in range(IDLE_KEPT + 3)]
    for i in range(IDLE_KEPT + 3):
        accounts.leave(served(accounts, f"p{i}", 10))
    assert len(accounts) == 2 * IDLE_KEPT + 3
    assert all(accounts.enter(f"l{i}", "") is account for i, account in enumerate(live))


def test_flows_of_one_principal_are_bounded_too() -> None:
    accounts = Accounts()
    keeps = accounts.enter("alice", "keeps")
    for i in range(IDLE_KEPT + 9):
        flow = served(accounts, "alice", 10, f"f{i}")
        accounts.leave(flow)
    assert len(principal_of(keeps)) <= IDLE_KEPT + 1
    accounts.check()


def test_nobody_leaves_twice() -> None:
    accounts = Accounts()
    one = accounts.enter("alice", "")
    accounts.enter("bob", "")
    accounts.leave(one)
    with pytest.raises(AssertionError):
        accounts.leave(one)


@pytest.mark.parametrize("what", ["live", "idle", "many"])
def test_the_check_sees_what_is_wrong(what: str) -> None:
    accounts = Accounts()
    one = accounts.enter("alice", "")
    accounts.check()
    if what == "live":
        one.live += 1
    elif what == "idle":
        accounts._root._idle["alice"] = None
    else:
        for i in range(IDLE_KEPT + 1):
            name = f"p{i}"
            accounts._root._children[name] = Account(name, accounts._root, 0)
            accounts._root._idle[name] = None
    with pytest.raises(AssertionError):
        accounts.check()


# --- the least served -----------------------------------------------------------------------------


def some(*served_tok: int) -> list[Account]:
    """Accounts of one class that had so much, beyond the tolerance."""
    root = Account("", None, 0)
    return [Account(f"a{i}", root, AHEAD + tok) for i, tok in enumerate(served_tok)]


def line_of(*accounts: Account, waiting: int = 1) -> LeastServed:
    """They came one after the other, each with so many."""
    line = LeastServed()
    for place, account in enumerate(accounts):
        for seq in range(waiting):
            line.add(account, place * waiting + seq)
    return line


def test_the_least_served_is_first_and_of_equals_whose_head_came_first() -> None:
    one, two, three = some(5, 3, 3)
    line = line_of(one, three, two)
    assert line.first() is three
    assert line.most_served_first() == [one, two, three]
    line.remove(three, 1)
    assert three not in line
    assert line.first() is two
    line.remove(two, 2)
    assert line.first() is one


def test_whoever_is_not_ahead_is_served_as_it_came() -> None:
    one, two = some(0, -AHEAD)
    assert line_of(one, two).first() is one
    one.served_tok += 1
    assert line_of(one, two).first() is two


def test_counters_that_grew_are_seen_late_and_in_time() -> None:
    one, two, three = some(0, 1, 2)
    line = line_of(one, two, three)
    one.served_tok = AHEAD + 10
    two.served_tok = AHEAD + 3
    assert line.first() is three
    three.served_tok = AHEAD + 4
    assert line.first() is two
    assert line.most_served_first() == [one, three, two]


def test_the_place_among_equals_is_that_of_the_one_that_is_at_the_head_now() -> None:
    one, two = some(4, 4)
    line = line_of(one, two)
    line.add(one, 7)
    line.remove(one, 0)
    assert line.first() is two
    line.add(two, 8)
    line.remove(two, 1)
    assert line.first() is one


def test_one_more_behind_the_head_changes_no_place() -> None:
    one, two = some(4, 4)
    line = line_of(one, two)
    entries = len(line._heap)
    line.add(one, 7)
    assert (line.first(), len(line._heap)) == (one, entries)
    line.remove(one, 7)
    assert (line.first(), len(line._heap)) == (one, entries)


def test_one_that_came_before_the_head_is_the_head() -> None:
    one, two = some(4, 4)
    line = LeastServed()
    line.add(one, 5)
    line.add(two, 6)
    line.add(two, 3)
    assert line.first() is two


def test_only_what_waits_is_taken_away() -> None:
    (one,) = some(0)
    line = line_of(one)
    line.remove(one, 0)
    with pytest.raises(KeyError):
        line.remove(one, 0)
    assert (line._seqs, line._in) == ({}, {})


def test_those_who_come_and_go_leave_nothing() -> None:
    one, two = some(1, 0)
    line = line_of(one)
    for seq in range(1, 1000):
        line.add(two, seq)
        line.remove(two, seq)
        assert len(line._heap) <= 16 + 2 * 2
    assert line.first() is one


def test_what_is_cast_out_of_the_heap_was_out_of_date() -> None:
    """Only those who wait stay in it, as they were served by then, and in their order."""
    accounts = some(*range(5))
    line = line_of(*accounts)
    accounts[0].served_tok += 10
    came, entries = 5, len(line._heap)
    while len(line._heap) >= entries:
        # Its head goes and another of it comes: each time one entry more.
        entries = len(line._heap)
        line.add(accounts[4], came)
        line.remove(accounts[4], came - 1)
        came += 1
    held = {account: (due_tok, seq) for due_tok, seq, _, account in line._heap}
    assert len(line._heap) == len(held) == 5
    assert held[accounts[0]] == (accounts[0].due_tok, 0)
    assert held[accounts[4]][1] >= came - 2
    order = []
    for _ in range(5):
        first = line.first()
        order.append(first)
        line.remove(first, came - 1 if first is accounts[4] else accounts.index(first))
    assert order == [*accounts[1:], accounts[0]]


def test_everybody_takes_one_at_a_time() -> None:
    one, two, three = some(2, 1, 0)
    line = LeastServed()
    for account, seq, waiting in ((one, 0, 5), (two, 5, 1), (three, 6, 3)):
        for more in range(waiting):
            line.add(account, seq + more)
    # three, two, one; three, one; three, one; one; one
    assert [line.before(one, turn, turn) for turn in range(5)] == [2, 3, 4, 4, 4]
    assert line.before(two, 5, 0) == 1
    assert [line.before(three, 6 + turn, turn) for turn in range(3)] == [0, 2, 3]


def test_equals_are_before_as_they_came() -> None:
    one, two = some(0, -AHEAD)
    line = LeastServed()
    for seq, account in enumerate((one, one, two, one)):
        line.add(account, seq)
    assert [line.before(one, seq, turn) for turn, seq in enumerate((0, 1, 3))] == [0, 0, 1]
    assert line.before(two, 2, 0) == 2


def test_in_a_round_whoever_was_served_less_goes_first() -> None:
    one, two = some(1, 0)
    line = line_of(one, two, waiting=2)
    assert [line.before(one, turn, turn) for turn in range(2)] == [1, 2]
    assert [line.before(two, 2 + turn, turn) for turn in range(2)] == [0, 1]


def test_of_very_many_half_are_before() -> None:
    accounts = some(*([0] * (MANY + 1)))
    line = line_of(*accounts, waiting=2)
    line.add(accounts[0], 1000)
    assert [line.before(accounts[0], seq, turn) for turn, seq in enumerate((0, 1, 1000))] == [
        MANY // 2,
        MANY + MANY // 2,
        2 * MANY + MANY // 2,
    ]
    for seq in (2, 3):
        line.remove(accounts[1], seq)
    assert line.before(accounts[0], 0, 0) == 0, "so few are looked at: it was the first to come"
