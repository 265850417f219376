"""Classes that are closed for a while, limits that change, and the end of everything."""

from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Queue
from onegate.admission.model import Binding, ClassSpec, Refused

S = 10**9


def test_a_closed_class_starts_nothing_and_what_runs_goes_on(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    assert c.tell(ev.ClassClosed("batch", None)) == []
    c.tell(ev.Produced(1, 1))
    assert c.end(1) == []
    assert c.standing(2).limited_by is Binding.CLOSED
    assert c.view().limited_by is Binding.CLOSED
    assert c.tell(ev.ClassOpened("batch")) == [Grant(2)]


def test_newcomers_are_refused_with_the_opening_time(core: Any) -> None:
    c = core()
    c.now = S
    c.tell(ev.ClassClosed("batch", 10 * S))
    no = c.refusal(1)
    assert (no.reason, no.retry_after_ns, no.limited_by) == (
        Refused.PAUSED,
        9 * S,
        Binding.CLOSED,
    )
    c.tell(ev.ClassClosed("batch", None))
    assert c.refusal(1).retry_after_ns is None


def test_or_wait_where_the_class_says_so(core: Any) -> None:
    c = core()
    c.tell(ev.ClassClosed("loop", 10 * S))
    assert c.arrive(1, "loop") == [Queue(1)]
    assert c.standing(1).opens_in_ns == 10 * S
    c.now = 4 * S
    assert c.standing(1).opens_in_ns == 6 * S
    assert c.controller.next_wake_ns() == 10 * S
    assert c.wake() == [Grant(1)]


def test_it_opens_by_itself_and_on_the_dot(core: Any) -> None:
    c = core()
    c.tell(ev.ClassClosed("batch", 10 * S))
    c.now = 10 * S - 1
    assert c.refusal(1).reason is Refused.PAUSED
    c.now = 10 * S
    assert c.arrive(1) == [Grant(1)]
    assert not c.view().classes[2].closed


def test_an_opening_time_in_the_past_opens_at_once(core: Any) -> None:
    c = core()
    c.now = 10 * S
    c.tell(ev.ClassClosed("batch", 5 * S))
    assert c.arrive(1) == [Grant(1)]


@pytest.mark.parametrize(("first", "then"), [(10, 20), (20, 10), (None, 10), (10, None)])
def test_the_last_word_on_the_opening_holds(core: Any, first: int | None, then: int | None) -> None:
    c = core()
    for at in (first, then):
        c.tell(ev.ClassClosed("batch", None if at is None else at * S))
    assert c.controller.next_wake_ns() == (None if then is None else then * S)


def test_deadlines_run_while_closed(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, ttft_deadline_ns=5 * S)
    c.tell(ev.ClassClosed("batch", 10 * S))
    (refuse,) = c.wake()
    assert (refuse.rid, c.now) == (2, 5 * S)


def test_a_class_below_goes_on(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, "chat")
    c.arrive(3, "batch")
    c.tell(ev.ClassClosed("chat", None))
    assert c.end(1) == [Grant(3)]


# --- limits ---------------------------------------------------------------------------------------


def test_fewer_permits_than_are_out(core: Any, make: Any) -> None:
    c = core(make.pool(seats=4))
    for rid in range(1, 5):
        c.arrive(rid)
    c.arrive(5)
    c.tell(ev.LimitsChanged(replace(c.limits, max_in_flight=2), make.classes))
    for rid in (1, 2):
        assert c.end(rid) == []
    assert c.standing(5).limited_by is Binding.IN_FLIGHT
    assert c.end(3) == [Grant(5)]


def test_more_permits_start_more(core: Any, make: Any) -> None:
    c = core(make.pool(seats=4), max_in_flight=1)
    c.arrive(1)
    c.arrive(2)
    limits = replace(c.limits, max_in_flight=2)
    assert c.tell(ev.LimitsChanged(limits, make.classes)) == [Grant(2)]


def test_seats_may_come_and_go(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2))
    for rid in (1, 2, 3):
        c.arrive(rid)
    c.tell(ev.PoolChanged(make.pool(seats=1)))
    assert c.end(1) == []
    assert c.tell(ev.PoolChanged(make.pool(seats=3))) == [Grant(3)]


def test_ranks_may_change_while_requests_wait(core: Any, make: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, "loop")
    c.arrive(3, "batch")
    chat, loop, batch = make.classes
    c.tell(ev.LimitsChanged(c.limits, (chat, replace(loop, rank=2), replace(batch, rank=1))))
    assert c.end(1) == [Grant(3)]
    assert [view.name for view in c.view().classes] == ["chat", "batch", "loop"]


def test_a_class_may_be_added_and_none_removed(core: Any, make: Any) -> None:
    c = core()
    night = ClassSpec("night", 9, 1000, 1.0, S)
    c.tell(ev.LimitsChanged(c.limits, (*make.classes, night)))
    assert c.arrive(1, "night") == [Grant(1)]
    before = c.view()
    with pytest.raises(AssertionError, match="night"):
        c.tell(ev.LimitsChanged(replace(c.limits, max_in_flight=1), make.classes))
    assert c.view() == before


def test_no_two_classes_share_a_rank(core: Any, make: Any) -> None:
    c = core()
    chat, loop, batch = make.classes
    with pytest.raises(AssertionError, match="rank"):
        c.tell(ev.LimitsChanged(c.limits, (chat, loop, replace(batch, rank=1))))
    assert [view.rank for view in c.view().classes] == [0, 1, 2]


def test_a_reload_forgets_no_measured_rate(core: Any, make: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    c.arrive(3)
    c.now = S
    c.end(1)
    c.tell(ev.LimitsChanged(c.limits, make.classes))
    assert c.standing(3).expected_wait_ns is not None
    c.controller._book.queues["chat"].drain_clock_ns = 77
    c.tell(ev.LimitsChanged(c.limits, make.classes))
    assert c.controller._book.queues["chat"].drain_clock_ns == 77, "nor that of an empty queue"


# --- drain ----------------------------------------------------------------------------------------


def test_a_shutdown_refuses_what_waits_spread_out_and_lets_run_what_runs(core: Any) -> None:
    c = core()
    c.arrive(1)
    for rid, class_ in ((2, "batch"), (3, "chat"), (4, "loop")):
        c.arrive(rid, class_)
    effects = c.tell(ev.DrainStarted())
    assert [effect.rid for effect in effects] == [2, 3, 4]
    assert {effect.refusal.reason for effect in effects} == {Refused.SHUTTING_DOWN}
    assert all(effect.queued for effect in effects)
    assert len({effect.refusal.retry_after_ns for effect in effects}) == 3
    view = c.view()
    assert (view.draining, view.queued, view.in_flight) == (True, 0, 1)
    c.tell(ev.Produced(1, 5))
    assert c.end(1) == []
    assert c.tell(ev.DrainStarted()) == []


def test_newcomers_of_a_shutdown_are_spread_out_too(core: Any) -> None:
    c = core()
    c.tell(ev.DrainStarted())
    noes = [c.refusal(rid) for rid in range(5)]
    assert {no.reason for no in noes} == {Refused.SHUTTING_DOWN}
    assert len({no.retry_after_ns for no in noes}) == 5
    assert c.ask().refusal.retry_after_ns is not None
