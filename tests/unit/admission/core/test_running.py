"""From the grant to the end: what the engine tells, and every way to give back."""

from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Abort, Grant, Queue, Refuse
from onegate.admission.lifecycle import IllegalMove
from onegate.admission.model import PoolState, Refused, Reservation

S = 10**9


def test_nothing_is_told_of_what_waits_or_is_over(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    for event in (ev.Prefilled(2, 1), ev.Produced(2, 1), ev.Settled(2, 1, True), ev.Requeued(2)):
        with pytest.raises(IllegalMove):
            c.tell(event)
    with pytest.raises(KeyError):
        c.tell(ev.SeatFreed(2))
    c.tell(ev.Settled(1, 0, finished=False))
    for event in (ev.Prefilled(1, 1), ev.Produced(1, 1), ev.Settled(1, 1, True), ev.Requeued(1)):
        with pytest.raises(IllegalMove):
            c.tell(event)
    assert c.tell(ev.SeatFreed(1)) == [Grant(2)]


@pytest.mark.parametrize(
    "event",
    [
        ev.Counted(9, 1),
        ev.Prefilled(9, 1),
        ev.Produced(9, 1),
        ev.Settled(9, 1, finished=True),
        ev.SeatFreed(9),
        ev.Requeued(9),
        ev.ClassClosed("nobody", None),
        ev.ClassOpened("nobody"),
    ],
)
def test_unknown_names_are_bugs_of_the_shell(core: Any, event: ev.Event) -> None:
    c = core()
    with pytest.raises(KeyError):
        c.tell(event)
    assert c.arrive(1) == [Grant(1)]


def test_a_seat_is_freed_once(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.tell(ev.SeatFreed(1))
    with pytest.raises(KeyError):
        c.tell(ev.SeatFreed(1))


def test_a_client_that_leaves_while_it_waits(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    c.tell(ev.Withdrawn(2))
    assert c.view().queued == 0
    assert c.end(1) == []


def test_leaving_is_ignored_once_granted_and_when_unknown(core: Any) -> None:
    c = core()
    c.arrive(1)
    assert c.tell(ev.Withdrawn(1)) == []
    assert c.tell(ev.Withdrawn(9)) == []
    assert c.view().in_flight == 1


def test_the_one_that_held_the_place_leaves_and_the_next_starts(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100))
    c.arrive(1, max_tok=50)
    c.arrive(2, max_tok=80)
    c.arrive(3, max_tok=10)
    assert c.tell(ev.Withdrawn(2)) == [Grant(3)]


# --- counts ---------------------------------------------------------------------------------------


def test_a_count_changes_what_is_charged(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2, kv_tok=1000, max_step_tok=100))
    c.arrive(1, prompt_tok=40)
    c.tell(ev.Counted(1, 70))
    (pool,) = c.view().pools
    assert (pool.kv_tok_used, pool.unprefilled_tok) == (80, 70)
    c.tell(ev.Prefilled(1, 50))
    c.tell(ev.Counted(1, 60))
    (pool,) = c.view().pools
    assert (pool.kv_tok_used, pool.unprefilled_tok) == (70, 10)
    c.tell(ev.Counted(1, 20))
    (pool,) = c.view().pools
    assert (pool.kv_tok_used, pool.unprefilled_tok) == (30, 0)
    c.tell(ev.Counted(1, 90))
    assert c.view().pools[0].unprefilled_tok == 0, "what was prefilled stays so"


def test_a_count_of_what_waits_changes_the_queue_and_refuses_nobody(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, "chat")
    c.tell(ev.Counted(2, 50_000))
    assert c.view().queued_tok == 50_010
    assert c.refusal(3, "chat").reason is Refused.PEER_QUOTA
    assert c.end(1) == [Grant(2)]


def test_a_count_lets_the_next_start(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100))
    c.arrive(1, prompt_tok=60)
    c.arrive(2, prompt_tok=50)
    assert c.tell(ev.Counted(1, 20)) == [Grant(2)]


@pytest.mark.parametrize(
    ("reservation", "kv_tok"), [(Reservation.GROW, 25), (Reservation.FULL, 30)]
)
def test_a_late_count_of_what_is_over(
    core: Any, make: Any, reservation: Reservation, kv_tok: int
) -> None:
    c = core(make.pool(kv_tok=1000, reservation=reservation))
    c.arrive(1)
    c.tell(ev.Settled(1, 5, finished=False))
    c.tell(ev.Counted(1, 20))
    (pool,) = c.view().pools
    assert (pool.kv_tok_used, pool.unprefilled_tok) == (kv_tok, 0)


def test_words_after_the_seat_is_free_charge_nothing(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.tell(ev.SeatFreed(1))
    c.tell(ev.Counted(1, 50))
    c.tell(ev.Prefilled(1, 20))
    c.tell(ev.Produced(1, 5))
    (pool,) = c.view().pools
    assert (pool.seats_used, pool.kv_tok_used, pool.unprefilled_tok) == (0, 0, 0)
    c.tell(ev.Settled(1, 5, finished=True))
    assert c.view().in_flight == 0


def test_progress_never_goes_back(core: Any, make: Any) -> None:
    c = core(make.pool(max_step_tok=1000))
    c.arrive(1, prompt_tok=100)
    c.tell(ev.Prefilled(1, 60))
    c.tell(ev.Prefilled(1, 40))
    assert c.view().pools[0].unprefilled_tok == 40
    c.tell(ev.Prefilled(1, 500))
    assert c.view().pools[0].unprefilled_tok == 0


# --- queued again ---------------------------------------------------------------------------------


def test_a_requeued_request_finds_its_old_place(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2))
    for rid in range(1, 6):
        c.arrive(rid)
    assert c.tell(ev.Requeued(2)) == [Grant(2)], "its seat is free, and it is the oldest"
    assert c.tell(ev.Requeued(1)) == [Grant(1)]
    c.arrive(6, "chat")
    assert c.tell(ev.Requeued(2)) == [Grant(6)]
    assert c.standing(2).position == 1
    assert c.standing(3).position == 2


@pytest.mark.parametrize("freed_before", [False, True])
def test_permit_and_seat_are_free_then(core: Any, freed_before: bool) -> None:
    c = core(max_in_flight=1)
    c.arrive(1)
    c.arrive(2, "chat")
    if freed_before:
        c.tell(ev.SeatFreed(1))
    assert c.tell(ev.Requeued(1)) == [Grant(2)]
    assert (c.view().in_flight, c.view().queued) == (1, 1)
    assert c.end(2) == [Grant(1)]
    assert c.end(1) == []


def test_bounds_do_not_apply_to_it_again(core: Any) -> None:
    c = core(max_queued_tok=100, max_queued_requests=2)
    c.arrive(1, max_tok=90)
    c.arrive(2, "chat")
    c.arrive(3, principal="q", max_tok=50)
    assert c.tell(ev.Requeued(1)) == [Grant(2)]
    assert c.view().queued_tok == 160
    assert c.refusal(4, "batch", principal="r").reason is Refused.TOKENS_FULL


def test_its_first_token_was_promised_once(core: Any) -> None:
    c = core()
    c.arrive(1, ttft_deadline_ns=10 * S, ttft_is_own=True)
    c.arrive(2, "chat")
    c.tell(ev.Requeued(1))
    c.now = 20 * S
    assert c.tell(ev.Tick()) == []
    assert c.standing(1).position == 1


def test_the_whole_deadline_still_holds_and_so_does_a_new_safety_timeout(core: Any) -> None:
    c = core()
    c.arrive(1, deadline_ns=9000 * S)
    c.now = 5000 * S
    assert c.tell(ev.Requeued(1)) == [Grant(1)]
    assert c.controller.next_wake_ns() == 9000 * S
    (abort,) = c.wake()
    assert abort.refusal.reason is Refused.DEADLINE_EXCEEDED

    d = core()
    d.arrive(1)
    d.now = 5000 * S
    d.tell(ev.Requeued(1))
    assert d.controller.next_wake_ns() == 5000 * S + 7200 * S


def test_what_was_aborted_is_not_queued_again(core: Any) -> None:
    c = core()
    c.arrive(1, deadline_ns=S)
    (abort,) = c.wake()
    assert isinstance(abort, Abort)
    assert c.tell(ev.Requeued(1)) == [Refuse(1, abort.refusal, queued=True)]
    assert c.view().queued == c.view().in_flight == 0
    assert c.arrive(1) == [Grant(1)], "it is forgotten"


@pytest.mark.parametrize("drained_first", [True, False])
def test_while_the_daemon_drains_it_goes_on(core: Any, drained_first: bool) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    events = [ev.DrainStarted(), ev.Requeued(1)]
    effects = [e for event in events[:: 1 if drained_first else -1] for e in c.tell(event)]
    assert Grant(1) in effects
    (refused,) = [e for e in effects if isinstance(e, Refuse)]
    assert (refused.rid, refused.refusal.reason) == (2, Refused.SHUTTING_DOWN)
    assert c.end(1) == []


@pytest.mark.parametrize("away", [None, *(state for state in PoolState if state != "ready")])
@pytest.mark.parametrize("drained_first", [True, False])
def test_while_the_daemon_drains_it_does_not_wait_for_what_may_not_come(
    core: Any, make: Any, away: PoolState | None, drained_first: bool
) -> None:
    """An opening of its class, or its pool."""
    c = core()
    c.arrive(1)
    gone = ev.ClassClosed("batch", None) if away is None else ev.PoolChanged(make.pool(state=away))
    c.tell(gone)
    events = [ev.DrainStarted(), ev.Requeued(1)]
    effects = [e for event in events[:: 1 if drained_first else -1] for e in c.tell(event)]
    (refuse,) = [e for e in effects if isinstance(e, Refuse)]
    assert (refuse.rid, refuse.queued) == (1, True)
    assert refuse.refusal.reason is Refused.SHUTTING_DOWN
    assert refuse.refusal.retry_after_ns is not None
    assert c.view().in_flight == c.view().queued == 0


def test_in_a_closed_class_it_waits_for_the_opening(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.tell(ev.ClassClosed("batch", None))
    assert c.tell(ev.Requeued(1)) == []
    assert c.tell(ev.ClassOpened("batch")) == [Grant(1)]


def test_a_prompt_is_computed_again_and_counted_again(core: Any, make: Any) -> None:
    c = core(make.pool(max_step_tok=100), classes=make.with_floor(batch=0.1))
    c.arrive(1, "chat", prompt_tok=600)
    c.arrive(2, "chat")
    c.arrive(3, "batch", max_tok=500)
    c.tell(ev.Produced(1, 1))
    c.tell(ev.Requeued(1))
    assert c.view().pools[0].unprefilled_tok == 600
    c.tell(ev.Produced(1, 1))
    assert c.end(1) == [Grant(3)], "twice 600 tokens earn a tenth"


def test_output_begun_from_the_start_is_counted_from_the_start(core: Any, make: Any) -> None:
    c = core(classes=make.with_floor(batch=0.1))
    c.arrive(1, "chat", prompt_tok=0)
    c.arrive(2, "chat")
    c.arrive(3, "batch", max_tok=500)
    c.tell(ev.Produced(1, 600))
    c.tell(ev.Requeued(1))
    c.tell(ev.Produced(1, 500))
    assert c.end(1) == [Grant(3)]


def test_output_that_goes_on_is_counted_once(core: Any, make: Any) -> None:
    c = core(classes=make.with_floor(batch=0.1))
    c.arrive(1, "chat", prompt_tok=0)
    c.arrive(2, "chat", prompt_tok=0)
    c.arrive(3, "batch", max_tok=500)
    c.tell(ev.Produced(1, 600))
    c.tell(ev.Requeued(1, kept_tok=600))
    c.tell(ev.Counted(1, 0, cached_tok=600))
    c.tell(ev.Produced(1, 990))
    assert c.end(1) == [Grant(2)]
    c.tell(ev.Produced(2, 10))
    c.arrive(4, "chat")
    assert c.end(2) == [Grant(3)]


def test_output_that_goes_on_is_prefilled_again_unless_it_is_cached(core: Any, make: Any) -> None:
    c = core(make.pool(max_step_tok=10_000), classes=make.with_floor(batch=0.1))
    c.arrive(1, "chat", prompt_tok=10, max_tok=990)
    c.arrive(2, "chat", prompt_tok=0)
    c.arrive(3, "batch", max_tok=500)
    c.tell(ev.Produced(1, 500))
    c.tell(ev.Requeued(1, kept_tok=500))
    assert c.view().pools[0].unprefilled_tok == 510
    c.tell(ev.Produced(1, 501))  # 510 before, 510 again, and one more
    assert c.view().pools[0].unprefilled_tok == 0
    assert c.end(1) == [Grant(3)]


def test_a_queue_answer_only_on_arrival(core: Any) -> None:
    c = core()
    c.arrive(1)
    assert c.arrive(2) == [Queue(2)]
    assert c.tell(ev.Tick()) == []
