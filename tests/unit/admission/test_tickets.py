"""Promises: when they are due, whom they push back, and how they end."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission.model import ClassSpec, Refused, RequestSpec
from onegate.admission.queue import Backpressure, ClassQueue
from onegate.admission.tickets import (
    FARTHEST_NS,
    JITTER,
    KNOWN,
    LEAST_LIFE_NS,
    LIFE_SHARE,
    MEMORY,
    MOST,
    MOST_OF_PRINCIPAL,
    Ticket,
    Tickets,
)

S = 10**9
NOW = 2 * S


@pytest.fixture
def queue() -> ClassQueue:
    """A class with room for 1000 tokens, 500 for each, that drains 100 a second."""
    found = ClassQueue(ClassSpec("batch", 2, 1000, 0.5, S))
    found.rate.backlog(True, 0)
    found.rate.released(200, S)
    return found


@pytest.fixture
def tickets() -> Tickets:
    return Tickets()


def full(
    excess_tok: float = 50, reason: Refused = Refused.TOKENS_FULL, share: float = 1.0
) -> Backpressure:
    return Backpressure(reason, "tokens", 1000, 1000, excess_tok, share)


def spec(principal: str = "alice", **fields: Any) -> RequestSpec:
    plain: dict[str, Any] = {"prompt_tok": 40, "max_tok": 10, "arrived_ns": 0, "prompt_bytes": 100}
    return RequestSpec(1, "a", "batch", principal, "", **(plain | fields))


Issue = Callable[..., tuple[int | None, str | None]]


@pytest.fixture
def issue(tickets: Tickets, queue: ClassQueue) -> Issue:
    """A refusal of 50 tokens, of which 50 have to leave before there is room."""

    def build(
        principal: str = "alice",
        why: Backpressure | None = None,
        tok: int = 50,
        now_ns: int = NOW,
        **fields: Any,
    ) -> tuple[int | None, str | None]:
        found = tickets.issue(spec(principal, **fields), queue, why or full(), tok, now_ns)
        tickets.check()
        return found

    return build


def live(tickets: Tickets, name: str | None) -> Ticket:
    assert name is not None
    return tickets._live[name]


def about(hint_ns: int | None, wait_ns: float) -> bool:
    assert hint_ns is not None
    return wait_ns <= hint_ns <= wait_ns * (1 + JITTER)


# --- when -----------------------------------------------------------------------------------------


def test_the_time_until_there_is_room(issue: Issue) -> None:
    assert about(issue()[0], S // 2)


def test_each_is_told_to_come_after_the_one_before(issue: Issue) -> None:
    hints = [issue(f"p{i}")[0] for i in range(4)]
    assert all(about(hint, (i + 1) * S / 2) for i, hint in enumerate(hints))


def test_hints_are_spread_and_only_ever_later(issue: Issue) -> None:
    over = []
    for i in range(64):
        hint_ns = issue(f"p{i}", now_ns=NOW)[0]
        assert hint_ns is not None
        over.append(hint_ns / ((i + 1) * S / 2) - 1)
    assert min(over) >= 0
    assert max(over) <= JITTER
    assert max(over) > 0.9 * JITTER
    assert len(set(over)) == 64


def test_asking_moves_nobody(tickets: Tickets, queue: ClassQueue) -> None:
    for _ in range(3):
        forecast = tickets.forecast(queue, "alice", full(), 50, NOW)
        assert forecast is not None
        assert (forecast.due_ns, forecast.own) == (NOW + S // 2, False)
    assert len(tickets) == 0


def test_the_clock_follows_the_time(issue: Issue) -> None:
    issue()
    # Those 50 have left by then, at 100 a second; 200 in three seconds is the rate now.
    hint_ns, _ = issue("bob", full(30), now_ns=NOW + S)
    assert hint_ns is not None
    assert 0.44 * S < hint_ns < 0.46 * S * (1 + JITTER)


def test_what_others_take_of_the_drain_makes_it_longer(issue: Issue) -> None:
    assert about(issue("alice", full(50, share=0.5))[0], S)


def test_no_rate_no_hint_and_no_promise(issue: Issue, queue: ClassQueue, tickets: Tickets) -> None:
    queue.rate.backlog(False, NOW)
    assert issue() == (None, None)
    assert tickets.forecast(queue, "alice", full(), 50, NOW) is None
    assert not tickets.are_out("batch", NOW)


def test_no_promise_for_what_can_never_wait(issue: Issue) -> None:
    assert issue("alice", full(0, Refused.TOO_LARGE)) == (None, None)


def test_nobody_is_promised_what_is_too_far_off(issue: Issue, tickets: Tickets) -> None:
    hint_ns, name = issue("alice", full(3599 * 100))
    assert about(hint_ns, 3599 * S)
    assert name is not None
    for _ in range(2):
        hint_ns, name = issue("bob", full(3601 * 100))
        assert about(hint_ns, FARTHEST_NS)
        assert name is None
    assert len(tickets) == 1


# --- whom a refusal pushes back -------------------------------------------------------------------


def test_a_thousand_refusals_move_others_by_ones_share_at_most(issue: Issue) -> None:
    """A principal's share is half of a queue that drains in ten seconds."""
    for _ in range(1000):
        issue("alice")
    assert about(issue("bob")[0], S // 2 + 10 * 50 * S // 100)


def test_beyond_ones_share_ones_own_line_grows(
    issue: Issue, tickets: Tickets, queue: ClassQueue
) -> None:
    for _ in range(10):
        issue("alice")
    # His 500 tokens are promised; from then on he has his share of the drain, for himself.
    dues = []
    for _ in range(3):
        forecast = tickets.forecast(queue, "alice", full(), 50, NOW)
        assert forecast is not None
        assert (forecast.own, forecast.rate) == (True, 50 / S)
        dues.append(forecast.due_ns)
        _, name = issue("alice")
        assert live(tickets, name).own
    assert dues == [NOW + 55 * S // 10, NOW + 65 * S // 10, NOW + 75 * S // 10]
    assert tickets._clocks["batch"] == NOW + 55 * S // 10


def test_where_all_are_beyond_their_bounds_they_are_in_one_line(
    issue: Issue, tickets: Tickets
) -> None:
    """Lines of their own beside each other would promise the same room to all of them."""
    hints = [issue(f"p{i % 8}")[0] for i in range(8 * 30)]
    assert all(about(hint, (i + 1) * S / 2) for i, hint in enumerate(hints))
    assert not any(ticket.own for ticket in tickets._live.values())


def test_who_has_more_than_the_others_and_his_bound_has_a_line_of_his_own(
    issue: Issue, tickets: Tickets
) -> None:
    for name in ("bob", "carol"):
        for _ in range(4):
            issue(name)
    found = [live(tickets, issue("alice")[1]).own for _ in range(16)]
    # The others have 200 tokens each, and his bound is 500.
    assert found == [False] * 14 + [True] * 2
    # What he is refused now moves nobody.
    clock_ns = tickets._clocks["batch"]
    issue("alice")
    assert tickets._clocks["batch"] == clock_ns


def test_who_comes_to_a_long_line_waits_for_a_bound_of_each_in_it(
    issue: Issue, tickets: Tickets
) -> None:
    """Three that ask without end move another one by their shares, as one alone does."""
    for i in range(1500):
        issue(f"greedy{i % 3}")
    clock_ns = tickets._clocks["batch"]
    assert clock_ns > NOW + 700 * S
    hints = [issue("bob")[0] for _ in range(2)]
    # Of each of them 500 tokens, and then as much more as he has been promised himself.
    assert about(hints[0], S / 2 + 3 * 500 * S / 100)
    assert about(hints[1], S / 2 + (50 + 3 * 550) * S / 100)
    assert tickets._clocks["batch"] == clock_ns + S, "all of them wait for him"


def test_ones_own_line_does_not_move_the_class_when_ones_share_is_free_again(
    issue: Issue, tickets: Tickets, queue: ClassQueue
) -> None:
    names = [issue("alice")[1] for _ in range(40)]
    class_ns = tickets._clocks["batch"]
    tickets.use(live(tickets, names[0]))
    hint_ns, name = issue("alice")
    assert not live(tickets, name).own
    assert hint_ns is not None
    assert hint_ns > 30 * S, "he comes after his own line"
    assert tickets._clocks["batch"] == class_ns + S // 2, "the others only after him"


def test_a_thousand_refusals_for_ones_own_quota_move_nobody(issue: Issue) -> None:
    for _ in range(1000):
        issue("alice", full(50, Refused.PEER_QUOTA))
    assert about(issue("bob")[0], S // 2)


def test_ones_own_quota_drains_with_ones_own_part_of_the_queue(issue: Issue) -> None:
    assert about(issue("alice", full(50, Refused.PEER_QUOTA, share=0.25))[0], 2 * S)


def test_refusals_for_ones_own_quota_form_a_line_of_ones_own(issue: Issue) -> None:
    hints = [issue("alice", full(50, Refused.PEER_QUOTA, share=0.25))[0] for _ in range(3)]
    assert all(about(hint, 2 * S * (i + 1)) for i, hint in enumerate(hints))
    assert about(issue("bob", full(50, Refused.PEER_QUOTA, share=0.25))[0], 2 * S)


def test_the_class_of_another_is_not_moved(issue: Issue, tickets: Tickets) -> None:
    issue()
    other = ClassQueue(ClassSpec("loop", 1, 1000, 0.5, S))
    other.rate.backlog(True, 0)
    other.rate.released(200, S)
    hint_ns, _ = tickets.issue(spec(), other, full(), 50, NOW)
    assert about(hint_ns, S // 2)


# --- the promise ----------------------------------------------------------------------------------


def test_what_a_ticket_says(issue: Issue, tickets: Tickets) -> None:
    hint_ns, name = issue()
    ticket = live(tickets, name)
    assert hint_ns is not None
    assert (ticket.class_, ticket.principal, ticket.prompt_bytes) == ("batch", "alice", 100)
    assert (ticket.max_tok, ticket.tok, ticket.own) == (10, 50, False)
    assert ticket.due_ns == NOW + hint_ns
    assert ticket.behind_ns == S // 2
    assert len(tickets) == 1


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({}, True),
        ({"prompt_bytes": 99, "max_tok": 9}, True),
        ({"prompt_bytes": 101}, False),
        ({"max_tok": 11}, False),
        ({"principal": "bob"}, False),
        ({"class_": "loop"}, False),
        ({"prompt_tok": 4000}, True),
    ],
)
def test_a_promise_is_for_the_same_request_or_a_smaller_one(
    issue: Issue, tickets: Tickets, fields: dict[str, Any], covered: bool
) -> None:
    _, name = issue()
    presented = tickets.presented(replace(spec(ticket=name), **fields), NOW)
    assert (presented is not None) is covered


def test_a_name_that_was_made_up_is_no_promise(issue: Issue, tickets: Tickets) -> None:
    _, name = issue()
    assert tickets.presented(spec(), NOW) is None
    assert tickets.presented(spec(ticket="batch-99"), NOW) is None
    assert tickets.presented(spec(ticket=name), NOW) is not None


def test_a_promise_is_kept_once(issue: Issue, tickets: Tickets) -> None:
    _, name = issue()
    ticket = tickets.presented(spec(ticket=name), NOW)
    assert ticket is not None
    tickets.use(ticket)
    assert tickets.presented(spec(ticket=name), NOW) is None
    assert len(tickets) == 0
    tickets.check()


@pytest.mark.parametrize(("excess_tok", "life"), [(50, LEAST_LIFE_NS), (5000, LIFE_SHARE * 50 * S)])
def test_a_promise_ends_a_while_after_it_is_due(
    issue: Issue, tickets: Tickets, excess_tok: int, life: float
) -> None:
    hint_ns, name = issue("alice", full(excess_tok))
    assert hint_ns is not None
    ends_ns = NOW + hint_ns + round(life)
    assert tickets.presented(spec(ticket=name), ends_ns - 1) is not None
    assert tickets.presented(spec(ticket=name), ends_ns) is None
    assert len(tickets) == 0
    tickets.check()


def test_a_promise_that_nobody_came_for_lets_those_behind_it_move_up(
    issue: Issue, queue: ClassQueue, tickets: Tickets
) -> None:
    for i in range(20):
        issue(f"p{i}")
    before = tickets._clocks["batch"]
    assert before == NOW + S // 2 + 20 * S // 2
    # The first two expire; nobody had come.
    assert tickets.are_out("batch", NOW + 6 * S + S // 4)
    assert tickets._clocks["batch"] < before
    assert (before - tickets._clocks["batch"]) % (S // 2) == 0
    tickets.check()


def test_the_time_of_a_promise_that_was_kept_ends_nothing(issue: Issue, tickets: Tickets) -> None:
    _, name = issue()
    ticket = live(tickets, name)
    tickets.use(ticket)
    clock_ns = tickets._clocks["batch"]
    tickets._expire(ticket.expires_ns)
    assert tickets._clocks["batch"] == clock_ns
    assert tickets._comers["batch"].part("alice") == 1.0


def test_a_promise_that_was_kept_moves_nobody_up(issue: Issue, tickets: Tickets) -> None:
    _, name = issue()
    clock_ns = tickets._clocks["batch"]
    tickets.use(live(tickets, name))
    assert tickets._clocks["batch"] == clock_ns


def test_a_line_of_ones_own_moves_up_too(issue: Issue, tickets: Tickets) -> None:
    quota = full(50, Refused.PEER_QUOTA)
    _, first = issue("alice", quota)
    issue("alice", full(500, Refused.PEER_QUOTA))
    share = tickets._shares["batch"]["alice"]
    clock_ns = share.clock_ns
    tickets._expire(live(tickets, first).expires_ns)
    assert share.clock_ns == clock_ns - S // 2
    assert "batch" not in tickets._clocks


def test_a_principal_without_promises_is_forgotten(issue: Issue, tickets: Tickets) -> None:
    names = [issue("alice")[1], issue("alice", full(50, Refused.PEER_QUOTA))[1]]
    assert tickets._shares["batch"]["alice"].tickets == 2
    assert tickets._shares["batch"]["alice"].tok == 50, "his own line is no part of the class's"
    for name in names:
        tickets.use(live(tickets, name))
        tickets.check()
    assert tickets._shares == {"batch": {}}


def test_promises_are_few_for_each_and_for_all(issue: Issue, tickets: Tickets) -> None:
    quota = full(0, Refused.PEER_QUOTA)
    for _ in range(MOST_OF_PRINCIPAL):
        assert issue("alice", quota, tok=1)[1] is not None
    clock_ns = tickets._shares["batch"]["alice"].clock_ns
    hint_ns, name = issue("alice", quota, tok=1)
    assert name is None
    assert hint_ns is not None
    assert tickets._shares["batch"]["alice"].clock_ns == clock_ns, "nothing was promised"
    assert issue("bob", quota)[1] is not None


def test_promises_of_all_are_bounded(
    tickets: Tickets, queue: ClassQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onegate.admission.tickets.MOST", 8)
    assert MOST > MOST_OF_PRINCIPAL
    names = [tickets.issue(spec(f"p{i}"), queue, full(), 1, NOW)[1] for i in range(9)]
    assert names[-1] is None
    assert None not in names[:-1]
    assert len(tickets) == 8
    assert tickets._shares["batch"].keys() == {f"p{i}" for i in range(8)}
    tickets.check()


def test_a_line_is_out_until_its_last_is_due(issue: Issue, tickets: Tickets) -> None:
    assert not tickets.are_out("batch", NOW)
    issue()
    assert tickets.are_out("batch", NOW + S - 1)
    assert not tickets.are_out("batch", NOW + S)
    assert not tickets.are_out("loop", NOW)


def test_a_line_of_ones_own_is_nothing_to_others(issue: Issue, tickets: Tickets) -> None:
    issue("alice", full(50, Refused.PEER_QUOTA))
    assert not tickets.are_out("batch", NOW)


def test_where_few_come_back_others_are_not_told_to_wait_for_them(
    issue: Issue, tickets: Tickets
) -> None:
    """At first all are thought to come; each that does not takes an eighth of that trust, his own
    and that in strangers."""
    names = [issue(f"p{i}", tok=40)[1] for i in range(7)]
    ends_ns = max(live(tickets, name).expires_ns for name in names)
    hint_ns, _ = issue("late", now_ns=ends_ns - S // 4)
    assert hint_ns is not None
    tickets._expire(ends_ns)
    part = tickets._comers["batch"].part("z")
    assert part == pytest.approx((1 - 1 / MEMORY) ** 7)
    _, name = issue("z", now_ns=ends_ns)
    rate = 200 / ends_ns
    assert live(tickets, name).behind_ns == pytest.approx(50 / rate * part, rel=0.02)
    assert tickets._clocks["batch"] > ends_ns
    assert not tickets.are_out("batch", ends_ns), "fewer than half of them come"


def never_comes(tickets: Tickets, issue: Issue, principal: str, times: int = 2 * MEMORY) -> None:
    """His promises expire, one after the other."""
    for _ in range(times):
        issue(principal, full(0))
        tickets._expire(10**6 * S)


def test_where_they_come_again_the_line_counts_again(issue: Issue, tickets: Tickets) -> None:
    never_comes(tickets, issue, "alice", 7)
    part = tickets._comers["batch"].part("alice")
    assert part == pytest.approx((7 / 8) ** 7)
    name = issue()[1]
    assert not tickets.are_out("batch", NOW)
    assert live(tickets, name).behind_ns == round(part * S / 2)
    for _ in range(2):
        tickets.use(live(tickets, issue()[1]))
    assert tickets._comers["batch"].part("alice") == pytest.approx(1 - (1 - part) * (7 / 8) ** 2)
    assert tickets._comers.keys() == {"batch"}
    issue()
    assert tickets.are_out("batch", NOW)


@pytest.mark.parametrize("reason", [Refused.TOKENS_FULL, Refused.PEER_QUOTA])
def test_who_never_comes_spoils_nobody_elses_promise(
    issue: Issue, tickets: Tickets, reason: Refused
) -> None:
    """Newcomers stand back for bob, and who comes after him is told to."""
    tickets.use(live(tickets, issue("bob", full(0))[1]))
    for _ in range(4 * MEMORY):
        issue("alice", full(0, reason))
        tickets._expire(10**6 * S)
    clock_ns = max(NOW, tickets._clocks["batch"])
    name = issue("bob", full(0))[1]
    assert live(tickets, name).behind_ns == S // 2
    assert tickets._clocks["batch"] == clock_ns + S // 2
    assert tickets.are_out("batch", NOW)


def test_who_never_comes_moves_nobody_and_is_not_waited_for(issue: Issue, tickets: Tickets) -> None:
    never_comes(tickets, issue, "alice", 40)
    _, name = issue("alice", full(5000))
    assert live(tickets, name).behind_ns < S // 50
    assert tickets._clocks["batch"] > NOW
    assert not tickets.are_out("batch", NOW)
    issue("bob")
    assert tickets.are_out("batch", NOW)


def test_of_many_who_come_once_the_last_are_remembered(issue: Issue, tickets: Tickets) -> None:
    for i in range(KNOWN + 5):
        issue(f"p{i}", full(0))
        tickets._expire(10**6 * S)
    comers = tickets._comers["batch"]
    assert len(comers) == KNOWN
    assert comers.part("p0") == comers.part("a stranger") < 0.001
    assert comers.part(f"p{KNOWN + 4}") < 0.001


@pytest.mark.parametrize("what", ["tickets", "tok", "line", "awaited", "lost"])
def test_the_check_sees_what_is_wrong(issue: Issue, tickets: Tickets, what: str) -> None:
    issue()
    share = tickets._shares["batch"]["alice"]
    if what == "tickets":
        share.tickets += 1
    elif what == "tok":
        share.tok += 1
    elif what == "line":
        tickets._line_tok["batch"] += 1
    elif what == "awaited":
        tickets._awaited["batch"] = 0
    else:
        del tickets._shares["batch"]["alice"]
    with pytest.raises(AssertionError):
        tickets.check()
