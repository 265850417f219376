"""Deadlines: which one, when exactly, and what stands still."""

from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Abort, Grant, Refuse
from onegate.admission.model import PoolState, Refused

S = 10**9


def reasons(effects: list[Any]) -> list[tuple[type, int, Refused]]:
    return [(type(e), e.rid, e.refusal.reason) for e in effects]


def test_without_deadlines_only_the_safety_timeout(core: Any) -> None:
    c = core()
    assert c.controller.next_wake_ns() is None
    c.now = 5
    c.arrive(1, "chat")
    c.arrive(2, "chat")
    assert c.controller.next_wake_ns() == 5 + 900 * S
    assert reasons(c.wake()) == [(Abort, 1, Refused.ENGINE_TIMEOUT)]
    assert c.controller.next_wake_ns() is None, "said once"
    assert c.end(1) == [Grant(2)]


@pytest.mark.parametrize("held", [False, True])
def test_the_whole_deadline(core: Any, held: bool) -> None:
    c = core()
    if not held:
        c.arrive(1)
    c.arrive(2, deadline_ns=7 * S)
    effects = c.wake()
    assert c.now == 7 * S
    assert reasons(effects) == [(Abort if held else Refuse, 2, Refused.DEADLINE_EXCEEDED)]
    assert ("running" if held else "waiting") in effects[0].refusal.message
    if not held:
        assert effects[0].queued
        assert c.view().queued == 0


@pytest.mark.parametrize("own", [False, True])
def test_ttft_while_it_waits(core: Any, own: bool) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, ttft_deadline_ns=7 * S, ttft_is_own=own)
    assert c.controller.next_wake_ns() == 7 * S
    assert reasons(c.wake()) == [(Refuse, 2, Refused.TTFT_DEADLINE_EXCEEDED)]


def test_ones_own_ttft_bounds_the_prefill_too(core: Any) -> None:
    c = core()
    c.arrive(1, ttft_deadline_ns=7 * S, ttft_is_own=True)
    c.tell(ev.Prefilled(1, 5))
    c.tell(ev.Produced(1, 0))
    assert reasons(c.wake()) == [(Abort, 1, Refused.TTFT_DEADLINE_EXCEEDED)]
    assert c.now == 7 * S


def test_until_the_first_token(core: Any) -> None:
    c = core()
    c.arrive(1, "chat", ttft_deadline_ns=7 * S, ttft_is_own=True)
    c.tell(ev.Produced(1, 1))
    assert c.controller.next_wake_ns() == 900 * S


@pytest.mark.parametrize(("own", "lease"), [(False, False), (False, True), (True, True)])
def test_until_the_grant(core: Any, own: bool, lease: bool) -> None:
    """A class's default bounds what others cause; a lease never shows a token."""
    c = core()
    c.arrive(0, "chat")
    c.arrive(1, "chat", ttft_deadline_ns=7 * S, ttft_is_own=own, lease=lease)
    assert c.controller.next_wake_ns() == 7 * S
    c.now = 5 * S
    assert c.end(0) == [Grant(1)]
    assert c.controller.next_wake_ns() == 905 * S


def test_expired_never_starts(core: Any) -> None:
    """The seat comes free at the very moment at which the time is over."""
    c = core()
    c.arrive(1)
    c.arrive(2, deadline_ns=7 * S)
    c.arrive(3)
    c.tell(ev.Settled(1, 0, finished=True))
    c.now = 7 * S
    refuse, grant = c.tell(ev.SeatFreed(1))
    assert (refuse.rid, grant) == (2, Grant(3))


def test_several_at_once_and_in_order(core: Any) -> None:
    c = core()
    c.arrive(1)
    for rid, at in ((2, 3 * S), (3, S), (4, 2 * S), (5, 9 * S)):
        c.arrive(rid, deadline_ns=at)
    c.now = 5 * S
    assert [e.rid for e in c.tell(ev.Tick())] == [3, 4, 2]
    assert c.controller.next_wake_ns() == 9 * S


def test_a_tick_before_its_time_does_nothing(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, deadline_ns=7 * S)
    c.now = 7 * S - 1
    assert c.tell(ev.Tick()) == []
    assert c.controller.next_wake_ns() == 7 * S


def test_what_is_over_wakes_nobody(core: Any) -> None:
    c = core()
    c.arrive(1, deadline_ns=7 * S)
    c.tell(ev.Settled(1, 0, finished=True))
    assert c.controller.next_wake_ns() is None
    c.tell(ev.SeatFreed(1))
    assert c.controller.next_wake_ns() is None


def test_an_aborted_request_is_aborted_once(core: Any) -> None:
    c = core()
    c.arrive(1, ttft_deadline_ns=S, ttft_is_own=True, deadline_ns=2 * S)
    assert len(c.wake()) == 1
    c.now = 10_000 * S
    assert c.tell(ev.Tick()) == []


# --- while the pool is not ready ------------------------------------------------------------------


@pytest.mark.parametrize("state", [PoolState.LOADING, PoolState.COLD])
def test_a_default_ttft_stands_still_until_the_pool_is_ready(
    core: Any, make: Any, state: PoolState
) -> None:
    c = core(make.pool(state=state))
    c.now = 100 * S
    c.arrive(0, ttft_deadline_ns=106 * S)
    c.arrive(1, ttft_deadline_ns=107 * S)
    if state is PoolState.COLD:
        c.tell(ev.PoolChanged(make.pool(state=PoolState.LOADING)))
    c.now = 160 * S
    assert c.tell(ev.Tick()) == []
    assert c.tell(ev.PoolChanged(make.pool())) == [Grant(0)]
    assert c.controller.next_wake_ns() == 167 * S
    c.now = 163 * S
    c.tell(ev.PoolChanged(make.pool(state=PoolState.LOADING)))
    c.now = 200 * S
    c.tell(ev.PoolChanged(make.pool(state=PoolState.LOADING)))
    c.now = 300 * S
    c.tell(ev.PoolChanged(make.pool()))
    assert c.controller.next_wake_ns() == 304 * S
    assert reasons(c.wake()) == [(Refuse, 1, Refused.TTFT_DEADLINE_EXCEEDED)]


def test_ones_own_ttft_does_not_stand_still(core: Any, make: Any) -> None:
    c = core(make.pool(state=PoolState.LOADING))
    c.arrive(1, ttft_deadline_ns=7 * S, ttft_is_own=True)
    assert c.controller.next_wake_ns() == 7 * S


def test_the_time_before_it_came_is_not_counted(core: Any, make: Any) -> None:
    c = core(make.pool(state=PoolState.LOADING))
    c.now = 50 * S
    c.tell(ev.PoolChanged(make.pool()))
    c.arrive(0)
    c.arrive(1, ttft_deadline_ns=57 * S)
    assert c.controller.next_wake_ns() == 57 * S


def test_a_pool_that_becomes_known_later(core: Any, make: Any) -> None:
    c = core()
    c.now = 50 * S
    c.tell(ev.PoolChanged(make.pool("n", PoolState.LOADING)))
    c.arrive(1, pool="n", ttft_deadline_ns=57 * S)
    assert c.controller.next_wake_ns() is None
    c.now = 80 * S
    assert c.tell(ev.PoolChanged(make.pool("n"))) == [Grant(1)]


def test_the_pool_of_another_changes_nothing(core: Any, make: Any) -> None:
    c = core(make.pool("m", PoolState.LOADING), make.pool("n", PoolState.LOADING))
    c.arrive(1, ttft_deadline_ns=7 * S)
    c.tell(ev.PoolChanged(make.pool("n")))
    assert c.controller.next_wake_ns() is None


# --- changed limits -------------------------------------------------------------------------------


@pytest.mark.parametrize("safety_s", [10, 20_000])
def test_a_safety_timeout_holds_from_the_next_grant_on(core: Any, make: Any, safety_s: int) -> None:
    c = core()
    c.arrive(1, "batch")
    c.arrive(2, "batch")
    classes = tuple(replace(k, safety_timeout_ns=safety_s * S) for k in make.classes)
    c.tell(ev.LimitsChanged(c.limits, classes))
    assert c.controller.next_wake_ns() == 7200 * S
    c.now = S
    c.end(1)
    assert c.controller.next_wake_ns() == S + safety_s * S


def test_nothing_is_remembered_of_two_thousand(core: Any, make: Any) -> None:
    c = core()
    for rid in range(2_000):
        spec = make.request(rid, deadline_ns=900 * S, ttft_deadline_ns=900 * S)
        c.controller.handle(ev.Arrived(spec), 0)
        c.controller.handle(ev.Settled(rid, 1, finished=True), 0)
        c.controller.handle(ev.SeatFreed(rid), 0)
    assert len(c.controller._deadlines) <= 100
    assert c.controller.next_wake_ns() is None
    assert len(c.controller._deadlines) == 0
