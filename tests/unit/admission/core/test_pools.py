"""Which pool is loaded when, and that no word of the engine, said or unsaid, stops the box."""

from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Grant, LoadPool, Preempt, Queue
from onegate.admission.model import Binding, PoolState, Resume
from onegate.admission.switching import LOAD_ANSWER_NS

S = 10**9
COLD, LOADING, READY, FAILED = (
    PoolState.COLD,
    PoolState.LOADING,
    PoolState.READY,
    PoolState.FAILED,
)
# What the window and two switches of five seconds come to.
TURN_NS = 40 * S


def two(core: Any, make: Any, *, seats: int = 1, **shares: float) -> Any:
    """Pool `a` is loaded, `b` is cold; a switch costs five seconds."""
    return core(
        make.pool("a", seats=seats, switch_ns=5 * S),
        make.pool("b", COLD, seats=seats, switch_ns=5 * S),
        classes=make.with_floor(**shares),
    )


def say(c: Any, make: Any, name: str, state: PoolState) -> Any:
    return c.tell(ev.PoolChanged(make.pool(name, state, switch_ns=5 * S)))


def switch(c: Any, make: Any, old: str, new: str) -> Any:
    """The engine does as it was told, in five seconds; returns what starts then."""
    say(c, make, old, COLD)
    say(c, make, new, LOADING)
    c.now += 5 * S
    return say(c, make, new, READY)


def test_a_cold_pool_is_loaded_once_when_first_wanted(core: Any, make: Any) -> None:
    c = core(make.pool("m", COLD))
    assert c.arrive(1) == [LoadPool("m"), Queue(1)]
    assert c.arrive(2) == [Queue(2)]
    assert c.standing(1).limited_by is Binding.LOADING
    assert c.tell(ev.PoolChanged(make.pool("m", LOADING))) == []
    assert c.tell(ev.PoolChanged(make.pool("m", READY))) == [Grant(1)]


def test_a_closed_class_loads_nothing(core: Any, make: Any) -> None:
    c = core(make.pool("m", COLD))
    c.tell(ev.ClassClosed("loop", 5 * S))
    assert c.arrive(1, "loop") == [Queue(1)]
    assert c.wake() == [LoadPool("m")]


def test_work_of_the_loaded_pool_ends_first_and_none_begins(core: Any, make: Any) -> None:
    c = two(core, make, seats=2)
    c.arrive(1, "batch", pool="a")
    assert c.arrive(2, "chat", pool="b") == [Queue(2)]
    assert c.arrive(3, "batch", pool="a") == [Queue(3)]
    assert c.standing(3).limited_by is Binding.LOADING
    c.tell(ev.Settled(1, 0, finished=True))
    assert c.tell(ev.SeatFreed(1)) == [LoadPool("b")]
    assert switch(c, make, "a", "b") == [Grant(2)]


@pytest.mark.parametrize("order", ["old first", "new first"])
def test_nothing_starts_until_the_load_is_done(core: Any, make: Any, order: str) -> None:
    """Whichever of the two the engine tells of first."""
    c = two(core, make)
    assert c.arrive(1, "batch", pool="b") == [LoadPool("b"), Queue(1)]
    assert c.arrive(2, "chat", pool="a") == [Queue(2)]
    words = [("a", COLD), ("b", LOADING)]
    for name, state in words if order == "old first" else reversed(words):
        assert say(c, make, name, state) == []


def test_an_engine_that_holds_both_serves_on_after_a_while(core: Any, make: Any) -> None:
    c = two(core, make)
    c.arrive(1, "batch", pool="b")
    c.arrive(2, "chat", pool="a")
    assert say(c, make, "b", LOADING) == []
    assert c.wake() == [Grant(2)]
    assert c.now == LOAD_ANSWER_NS
    assert say(c, make, "b", READY) == [Grant(1)]


def test_a_newcomer_for_the_loaded_pool_ends_a_switch_that_had_no_better_reason(
    core: Any, make: Any
) -> None:
    c = two(core, make, seats=2)
    c.arrive(1, "batch", pool="a")
    assert c.arrive(2, "batch", pool="b") == [Queue(2)]
    assert c.arrive(3, "batch", pool="a") == [Grant(3)]
    assert c.end(1) == []
    assert c.end(3) == [LoadPool("b")]


def test_a_refused_newcomer_changes_no_choice(core: Any, make: Any) -> None:
    c = two(core, make)
    c.arrive(1, "batch", pool="a")
    c.arrive(2, "batch", pool="b")
    wake_ns = c.controller.next_wake_ns()
    assert c.refusal(3, "batch", pool="a", max_tok=9_000)
    assert c.controller.next_wake_ns() == wake_ns
    assert c.end(1) == [LoadPool("b")]


def test_when_the_one_who_wanted_it_leaves_the_loaded_pool_goes_on(core: Any, make: Any) -> None:
    c = two(core, make, seats=2)
    c.arrive(1, "batch", pool="a")
    c.arrive(2, "chat", pool="b")
    c.arrive(3, "batch", pool="a")
    assert c.tell(ev.Withdrawn(2)) == [Grant(3)]


def test_the_same_rank_has_its_turn_in_time(core: Any, make: Any) -> None:
    c = two(core, make)
    c.now = 100 * S
    for rid in (1, 2, 3, 4):
        c.arrive(rid, "batch", pool="a")
    c.arrive(5, "batch", pool="b")
    assert c.controller.next_wake_ns() == 100 * S + TURN_NS
    c.now += TURN_NS - 1
    assert c.end(1) == [Grant(2)]
    assert c.wake() == []
    assert c.end(2) == [LoadPool("b")]
    assert switch(c, make, "a", "b") == [Grant(5)]


def test_and_keeps_it_for_the_window(core: Any, make: Any) -> None:
    """Against its own rank, even one whose turn came long ago."""
    c = core(
        make.pool("a", switch_ns=5 * S),
        make.pool("b", COLD, switch_ns=5 * S),
        make.pool("c", COLD, switch_ns=5 * S),
    )
    for rid in (1, 2):
        c.arrive(rid, pool="a")
    for rid in (3, 4, 5):
        c.arrive(rid, pool="b")
    c.arrive(6, pool="c")
    c.now = TURN_NS
    assert c.end(1) == [LoadPool("b")]
    assert switch(c, make, "a", "b") == [Grant(3)]
    assert c.end(3) == [Grant(4)]
    ready_ns = c.now
    assert c.controller.next_wake_ns() == ready_ns + 30 * S
    assert c.wake() == []
    assert c.end(4) == [LoadPool("c")]


def test_a_better_rank_does_not_wait_for_that(core: Any, make: Any) -> None:
    c = two(core, make)
    c.arrive(1, "batch", pool="b")
    switch(c, make, "a", "b")
    c.arrive(2, "batch", pool="b")
    c.arrive(3, "chat", pool="a")
    assert c.end(1) == [LoadPool("a")]


def test_a_floor_is_a_share_of_the_time(core: Any, make: Any) -> None:
    c = two(core, make, batch=0.1)
    for rid in (1, 2, 3):
        c.arrive(rid, "chat", pool="a")
    for rid in (4, 5):
        c.arrive(rid, "batch", pool="b")
    assert c.controller.next_wake_ns() == 10 * TURN_NS
    c.now = 10 * TURN_NS - 1
    assert c.end(1) == [Grant(2)]
    c.wake()
    assert c.end(2) == [LoadPool("b")]
    # The chat that waits lets the turn be used: for the window, then no longer.
    assert switch(c, make, "a", "b") == [Grant(4)]
    assert c.end(4) == [Grant(5)]
    c.arrive(6, "batch", pool="b")
    assert c.controller.next_wake_ns() == 10 * TURN_NS + 5 * S + 30 * S
    assert c.wake() == []
    assert c.end(5) == [LoadPool("a")]


def test_a_turn_ends_when_nobody_wants_it_any_more(core: Any, make: Any) -> None:
    c = two(core, make, batch=0.1)
    for rid in (1, 2):
        c.arrive(rid, "chat", pool="a")
    c.arrive(4, "batch", pool="b")
    c.now = 10 * TURN_NS
    c.end(1)
    assert switch(c, make, "a", "b") == [Grant(4)]
    assert c.end(4) == [LoadPool("a")]


def test_a_turn_is_used_by_what_runs_where_others_may_stop_it(core: Any, make: Any) -> None:
    """Until the window ends. Stopped at once it would wait again, hence start again, for ever."""
    c = core(
        make.pool("a", switch_ns=5 * S),
        make.pool("b", COLD, switch_ns=5 * S),
        classes=make.preempting(batch={"floor_share": 0.1}),
    )
    for rid in (1, 2):
        c.arrive(rid, "chat", pool="a")
    c.arrive(4, "batch", pool="b", resume=Resume.EXACT)
    c.now = 10 * TURN_NS
    assert c.end(1) == [LoadPool("b")]
    assert switch(c, make, "a", "b") == [Grant(4)]
    assert c.tell(ev.Produced(4, 3)) == []
    ends_ns = c.now + 30 * S
    assert c.controller.next_wake_ns() == ends_ns
    c.now = ends_ns - 1
    assert c.arrive(3, "chat", pool="a") == [Queue(3)]
    assert c.wake() == [Preempt(4)]
    assert c.tell(ev.Requeued(4, 3)) == [LoadPool("a")]


def test_nobody_is_stopped_for_a_load_that_was_asked_for_in_vain(core: Any, make: Any) -> None:
    c = core(
        make.pool("a", switch_ns=5 * S),
        make.pool("b", COLD, switch_ns=5 * S),
        classes=make.preempting(),
    )
    assert c.arrive(1, "chat", pool="b") == [LoadPool("b"), Queue(1)]
    assert c.arrive(2, "batch", pool="a", resume=Resume.EXACT) == [Queue(2)]
    assert c.wake() == [Grant(2)]
    assert c.now == LOAD_ANSWER_NS
    assert c.tell(ev.Produced(2, 3)) == c.tell(ev.Tick()) == []
    assert c.end(2, 3) == [LoadPool("b")]


def test_a_pool_that_was_loaded_in_vain_keeps_its_turn(core: Any, make: Any) -> None:
    """Loaded while nobody else wanted anything, and then a chat came for the other one first."""
    c = two(core, make, batch=0.1)
    assert c.arrive(4, "batch", pool="b") == [LoadPool("b"), Queue(4)]
    c.arrive(1, "chat", pool="a")
    c.arrive(2, "chat", pool="a")
    assert switch(c, make, "a", "b") == [LoadPool("a")]
    assert switch(c, make, "b", "a") == [Grant(1)]
    assert c.controller.next_wake_ns() == 10 * TURN_NS


def test_without_a_floor_it_waits_to_the_end(core: Any, make: Any) -> None:
    c = two(core, make)
    c.arrive(1, "chat", pool="a")
    c.arrive(2, "chat", pool="a")
    c.arrive(3, "batch", pool="b")
    c.now = 800 * S
    assert c.end(1) == [Grant(2)]
    c.now = 1600 * S
    assert c.end(2) == [LoadPool("b")]


def test_the_best_of_those_whose_turn_it_is(core: Any, make: Any) -> None:
    c = core(*(make.pool(name, COLD) for name in "abc"))
    c.tell(ev.ClassClosed("loop", S))
    c.tell(ev.ClassClosed("batch", S))
    c.now = S // 2
    assert c.refusal(1, "batch", pool="a")
    c.arrive(2, "loop", pool="b")
    c.tell(ev.ClassClosed("chat", S))
    c.tell(ev.ClassOpened("batch"))
    assert c.arrive(3, "batch", pool="c") == [LoadPool("c"), Queue(3)]
    d = core(*(make.pool(name, COLD) for name in "abc"), make.pool("d", LOADING))
    d.arrive(1, "batch", pool="a")
    d.arrive(2, "chat", pool="b")
    d.arrive(3, "chat", pool="c")
    assert d.tell(ev.PoolChanged(make.pool("d"))) == [LoadPool("b")]


def test_one_is_loaded_at_a_time(core: Any, make: Any) -> None:
    c = core(make.pool("a", COLD), make.pool("b", COLD))
    assert c.arrive(1, "batch", pool="a") == [LoadPool("a"), Queue(1)]
    assert c.arrive(2, "chat", pool="b") == [Queue(2)]
    c.tell(ev.PoolChanged(make.pool("a", LOADING)))
    assert c.tell(ev.Tick()) == []
    assert c.tell(ev.PoolChanged(make.pool("a"))) == [LoadPool("b")]


# --- loads that fail ------------------------------------------------------------------------------


def test_a_load_that_fails_gives_the_box_back_to_the_others(core: Any, make: Any) -> None:
    c = two(core, make)
    assert c.arrive(1, "chat", pool="b") == [LoadPool("b"), Queue(1)]
    c.arrive(2, "batch", pool="a")
    assert say(c, make, "b", FAILED) == [Grant(2)]
    assert c.standing(1).limited_by is Binding.LOADING
    # The engine lets it be tried again; the chat is still there.
    assert say(c, make, "b", COLD) == []
    assert c.end(2) == [LoadPool("b")]


def test_after_a_failure_the_same_rank_waits_for_its_turn_again(core: Any, make: Any) -> None:
    c = two(core, make)
    c.now = 100 * S
    c.arrive(1, "batch", pool="b")
    c.arrive(2, "batch", pool="a")
    c.arrive(3, "batch", pool="a")
    c.now = 200 * S
    say(c, make, "b", FAILED)
    assert say(c, make, "b", COLD) == []
    assert c.controller.next_wake_ns() == 200 * S + TURN_NS
    c.now = 210 * S
    assert c.end(2) == [Grant(3)]


def test_an_engine_that_says_nothing_is_not_waited_for_for_ever(core: Any, make: Any) -> None:
    c = two(core, make)
    c.now = 100 * S
    assert c.arrive(1, "chat", pool="b") == [LoadPool("b"), Queue(1)]
    assert c.arrive(2, "batch", pool="a") == [Queue(2)]
    c.now = 100 * S + LOAD_ANSWER_NS - 1
    assert say(c, make, "b", COLD) == []
    assert c.controller.next_wake_ns() == 100 * S + LOAD_ANSWER_NS
    assert c.wake() == [Grant(2)]
    c.arrive(3, "batch", pool="a")
    # It has its turn again like one of the same rank, though a chat wants it.
    assert c.controller.next_wake_ns() == 100 * S + TURN_NS
    assert c.end(2) == [Grant(3)]
    c.arrive(4, "batch", pool="a")
    c.wake()
    assert c.end(3) == [LoadPool("b")]


def test_with_nothing_else_to_do_it_is_asked_again(core: Any, make: Any) -> None:
    c = core(make.pool("m", COLD))
    assert c.arrive(1) == [LoadPool("m"), Queue(1)]
    assert c.wake() == [LoadPool("m")]
    assert c.now == LOAD_ANSWER_NS
    c.tell(ev.Withdrawn(1))
    assert c.wake() == []
    assert c.controller.next_wake_ns() is None


@pytest.mark.parametrize(
    ("state", "binding"), [(FAILED, Binding.LOADING), (PoolState.RELEASED, Binding.CLOSED)]
)
def test_what_waits_for_a_lost_pool_waits(
    core: Any, make: Any, state: PoolState, binding: Binding
) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    c.tell(ev.PoolChanged(make.pool(state=state)))
    assert c.end(1) == []
    assert c.standing(2).limited_by is binding
    assert c.tell(ev.PoolChanged(make.pool())) == [Grant(2)]


def test_a_released_pool_lets_a_class_wait_that_may(core: Any, make: Any) -> None:
    released = replace(make.pool(state=PoolState.RELEASED), released_until_ns=9)
    c = core(released)
    assert c.refusal(1).retry_after_ns == 9
    assert c.arrive(2, "loop") == [Queue(2)]
    assert c.view().pools[0].released_until_ns == 9
    assert c.tell(ev.PoolChanged(make.pool(state=COLD))) == [LoadPool("m")]
    assert c.tell(ev.PoolChanged(make.pool())) == [Grant(2)]


def test_a_lost_pool_is_not_loaded_and_does_not_hold_another_back(core: Any, make: Any) -> None:
    c = core(make.pool("a", FAILED), make.pool("b", COLD))
    c.tell(ev.PoolChanged(make.pool("a")))
    c.arrive(1, pool="a")
    c.arrive(2, pool="a")
    c.tell(ev.PoolChanged(make.pool("a", FAILED)))
    assert c.arrive(3, pool="b") == [Queue(3)], "a seat is still held"
    assert c.end(1) == [LoadPool("b")]


def test_a_seat_in_quarantine_keeps_the_engine_loaded(core: Any, make: Any) -> None:
    c = two(core, make)
    c.arrive(1, pool="a")
    c.arrive(2, pool="b")
    assert c.tell(ev.Settled(1, 0, finished=False)) == []
    assert c.tell(ev.SeatFreed(1)) == [LoadPool("b")]
