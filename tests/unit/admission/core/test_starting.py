"""Who starts next, and what is in the way."""

from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Queue
from onegate.admission.model import Binding, Reservation

S = 10**9


def test_rank_before_arrival_arrival_within_a_class(core: Any) -> None:
    c = core()
    c.arrive(1)
    for rid, class_ in ((2, "batch"), (3, "loop"), (4, "batch"), (5, "chat"), (6, "chat")):
        assert c.arrive(rid, class_) == [Queue(rid)]
    order = []
    for last in (1, 5, 6, 3, 2):
        (grant,) = c.end(last)
        order.append(grant.rid)
    assert order == [5, 6, 3, 2, 4]


def test_a_seat_is_free_when_the_engine_says_so(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    assert c.tell(ev.Settled(1, 5, finished=True)) == []
    assert c.standing(2).limited_by is Binding.SEATS
    (view,) = c.view().pools
    assert (view.seats_used, view.seats_quarantined) == (1, 1)
    assert c.tell(ev.SeatFreed(1)) == [Grant(2)]


def test_a_seat_may_be_freed_before_the_permit_comes_back(core: Any) -> None:
    c = core(max_in_flight=1)
    c.arrive(1)
    c.arrive(2)
    assert c.tell(ev.SeatFreed(1)) == []
    assert c.standing(2).limited_by is Binding.IN_FLIGHT
    assert c.tell(ev.Settled(1, 5, finished=True)) == [Grant(2)]


def test_look_ahead_lets_some_wait_in_the_engine(core: Any) -> None:
    c = core(look_ahead=1)
    assert [c.arrive(rid)[0] for rid in (1, 2, 3)] == [Grant(1), Grant(2), Queue(3)]


def test_permits_are_bounded_over_all_pools_and_the_best_rank_gets_the_next(
    core: Any, make: Any
) -> None:
    c = core(make.pool("a", seats=2), make.pool("b", seats=2), max_in_flight=1)
    assert c.arrive(1, pool="a") == [Grant(1)]
    assert c.arrive(2, pool="a") == [Queue(2)]
    assert c.arrive(3, "chat", pool="b") == [Queue(3)]
    assert c.end(1) == [Grant(3)]
    assert c.end(3) == [Grant(2)]


def test_pools_do_not_wait_for_each_other(core: Any, make: Any) -> None:
    c = core(make.pool("a"), make.pool("b"))
    c.arrive(1, pool="a")
    assert c.arrive(2, "chat", pool="a") == [Queue(2)]
    assert c.arrive(3, "batch", pool="b") == [Grant(3)]


# --- KV cache -------------------------------------------------------------------------------------


def test_what_does_not_fit_into_the_cache_waits_and_holds_its_place(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100))
    c.arrive(1, prompt_tok=10, max_tok=50)
    assert c.arrive(2, prompt_tok=10, max_tok=31) == [Queue(2)]
    assert c.standing(2).limited_by is Binding.KV
    # A small one behind it would fit, and does not pass.
    assert c.arrive(3, prompt_tok=1, max_tok=1) == [Queue(3)]
    assert c.end(1) == [Grant(2), Grant(3)]


def test_the_cache_may_be_filled_to_the_brim(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=96, block_tok=16))
    c.arrive(1, prompt_tok=10, max_tok=7)  # two blocks
    assert c.arrive(2, prompt_tok=1, max_tok=63) == [Grant(2)]
    assert c.view().pools[0].kv_tok_used == 96


def test_an_empty_pool_takes_what_its_shrunken_cache_never_will_hold(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2, kv_tok=100))
    c.arrive(1)
    c.arrive(2, prompt_tok=10, max_tok=90)
    c.tell(ev.PoolChanged(make.pool(seats=2, kv_tok=50)))
    assert c.end(1) == [Grant(2)]


@pytest.mark.parametrize(
    ("reservation", "starts"),
    [(Reservation.GROW, True), (Reservation.FULL, False)],
)
def test_after_the_settle_the_cache_that_is_left(
    core: Any, make: Any, reservation: Reservation, starts: bool
) -> None:
    """What grows holds what it computed; what reserves in full holds all until it confirms."""
    c = core(make.pool(seats=8, kv_tok=100, reservation=reservation))
    c.arrive(1, prompt_tok=10, max_tok=80)
    c.arrive(2, prompt_tok=10, max_tok=60)
    effects = c.tell(ev.Settled(1, 20, finished=False))
    assert c.view().pools[0].kv_tok_used == (30 + 70 if starts else 90)
    assert effects == ([Grant(2)] if starts else [])


def test_an_answer_longer_than_it_should_be_is_charged(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100))
    c.arrive(1, prompt_tok=10, max_tok=10)
    c.tell(ev.Produced(1, 40))
    c.tell(ev.Counted(1, 10))
    assert c.view().pools[0].kv_tok_used == 50


# --- step tokens ----------------------------------------------------------------------------------


def test_prompts_outstanding_stay_within_a_step(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, max_step_tok=100))
    assert c.arrive(1, prompt_tok=60) == [Grant(1)]
    assert c.arrive(2, prompt_tok=40) == [Grant(2)]
    assert c.arrive(3, prompt_tok=30) == [Queue(3)]
    assert c.standing(3).limited_by is Binding.STEP_TOK
    assert c.tell(ev.Prefilled(1, 29)) == []
    assert c.tell(ev.Prefilled(1, 30)) == [Grant(3)]


def test_one_prompt_may_always_be_outstanding(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, max_step_tok=100))
    assert c.arrive(1, prompt_tok=500) == [Grant(1)]
    assert c.arrive(2, prompt_tok=500) == [Queue(2)]
    assert c.tell(ev.Produced(1, 1)) == [Grant(2)]


def test_only_prompts_of_the_own_rank_or_a_better_one_count(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, max_step_tok=100))
    c.arrive(1, "batch", prompt_tok=500)
    assert c.arrive(2, "chat", prompt_tok=80) == [Grant(2)]
    assert c.arrive(3, "loop", prompt_tok=21) == [Queue(3)]
    assert c.arrive(4, "chat", prompt_tok=20) == [Grant(4)]


def test_an_unknown_step_has_no_bound(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8))
    assert c.arrive(1, prompt_tok=9_000) == [Grant(1)]
    assert c.arrive(2, prompt_tok=9_000) == [Grant(2)]


def test_a_lease_shows_no_prefill_and_so_holds_no_step_room(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, max_step_tok=100))
    c.arrive(1, prompt_tok=90, lease=True)
    assert c.arrive(2, prompt_tok=90) == [Grant(2)]
    assert c.arrive(3, prompt_tok=90, lease=True) == [Queue(3)]


def test_a_settled_request_holds_no_step_room(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, max_step_tok=100))
    c.arrive(1, prompt_tok=90)
    c.arrive(2, prompt_tok=90)
    assert c.tell(ev.Settled(1, 0, finished=False)) == [Grant(2)]


# --- the floor ------------------------------------------------------------------------------------


def busy(core: Any, make: Any, seats: int = 1, **more: Any) -> Any:
    """A chat runs, a chat waits, a batch request waits, and batch has a floor of a tenth."""
    c = core(make.pool(seats=seats, **more), classes=make.with_floor(batch=0.1))
    for rid in range(seats):
        c.arrive(rid, "chat", prompt_tok=0)
    c.arrive(10, "chat", principal="q")
    c.arrive(20, "batch", max_tok=990)
    return c


def test_a_waiting_class_earns_its_share_and_then_goes_first(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.tell(ev.Produced(0, 999))
    assert c.end(0) == [Grant(10)]
    c.arrive(11, "chat")
    c.tell(ev.Produced(10, 1))  # ten of prompt and one of answer
    assert c.end(10) == [Grant(20)]


def test_what_only_the_settle_tells_of_counts_too(core: Any, make: Any) -> None:
    c = busy(core, make)
    assert c.end(0, output_tok=1000) == [Grant(20)]


def test_a_quantum_is_taken_at_the_grant_and_the_rest_as_it_goes(core: Any, make: Any) -> None:
    c = busy(core, make, seats=2)
    c.arrive(21, "batch", max_tok=990)
    c.tell(ev.Produced(0, 2000))
    assert c.end(0) == [Grant(20)]
    # 200 were earned and 100 taken, so the next batch request is owed a place too.
    assert c.end(1) == [Grant(21)]
    c.arrive(22, "batch", max_tok=990)
    c.arrive(12, "chat")
    # Both have 100 in hand; beyond that it is debt, less a tenth of it that is earned again.
    c.tell(ev.Produced(20, 90))
    c.tell(ev.Produced(21, 90))
    c.tell(ev.Settled(20, 90, finished=True))
    assert c.tell(ev.SeatFreed(20)) == [Grant(10)]


def test_what_a_floor_grant_leaves_comes_back(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.arrive(21, "batch", max_tok=990)
    c.tell(ev.Produced(0, 1000))
    assert c.end(0) == [Grant(20)]
    # Cancelled before it used anything: the next one is owed the same place.
    assert c.end(20) == [Grant(21)]


def test_nothing_comes_back_to_a_class_that_was_closed_meanwhile(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.arrive(21, "batch", max_tok=990)
    c.tell(ev.Produced(0, 1000))
    assert c.end(0) == [Grant(20)]
    c.tell(ev.ClassClosed("batch", None))
    assert c.end(20) == [Grant(10)]
    c.arrive(11, "chat", principal="q")
    c.tell(ev.ClassOpened("batch"))
    assert c.end(10) == [Grant(11)]


def test_a_floor_grant_costs_nothing_while_nobody_better_waits(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.arrive(21, "batch", max_tok=990)
    c.tell(ev.Produced(0, 1000))
    assert c.end(0) == [Grant(20)]
    c.tell(ev.Withdrawn(10))
    c.tell(ev.Produced(20, 900))
    c.arrive(11, "chat")
    # What was used was at nobody's expense; the quantum is given back, and used up by the next.
    assert c.end(20) == [Grant(21)]


def test_what_is_given_anyway_counts_as_served(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2), classes=make.with_floor(batch=0.1))
    c.arrive(0, "chat", prompt_tok=0)
    c.arrive(1, "batch", max_tok=990)
    c.arrive(2, "batch", max_tok=990)
    c.tell(ev.Produced(0, 1500))
    c.tell(ev.Produced(1, 140))  # with its prompt 150, and so nothing is owed
    c.arrive(10, "chat")
    assert c.end(0) == [Grant(10)]


def test_only_tokens_of_a_pool_that_it_waits_for_count(core: Any, make: Any) -> None:
    pools = make.pool("a"), make.pool("b")
    c = core(*pools, classes=make.with_floor(batch=0.1))
    c.arrive(1, "chat", pool="a", prompt_tok=0)
    c.arrive(2, "chat", pool="b", prompt_tok=0)
    c.arrive(3, "chat", pool="b")
    c.arrive(4, "batch", pool="b")
    c.tell(ev.Produced(1, 5000))
    assert c.end(2) == [Grant(3)]


def test_a_closed_class_earns_nothing_and_keeps_nothing(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.tell(ev.Produced(0, 1500))
    c.tell(ev.ClassClosed("batch", None))
    c.tell(ev.Produced(0, 3000))
    c.tell(ev.ClassOpened("batch"))
    assert c.end(0) == [Grant(10)]


def test_credit_is_gone_when_nobody_waits_any_more(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.tell(ev.Produced(0, 1500))
    c.tell(ev.Withdrawn(20))
    c.arrive(21, "batch")
    assert c.end(0) == [Grant(10)]


def test_what_was_left_of_a_quantum_is_gone_when_nobody_waits(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.tell(ev.Produced(0, 1000))
    assert c.end(0) == [Grant(20)]
    assert c.end(20) == [Grant(10)]
    c.arrive(11, "chat")
    c.arrive(21, "batch")
    assert c.end(10) == [Grant(11)]


def test_the_place_held_by_a_floor_is_named(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2, kv_tok=2000), classes=make.with_floor(batch=0.1))
    c.arrive(0, "chat", prompt_tok=0, max_tok=1500)
    c.arrive(1, "chat", prompt_tok=0, max_tok=100)
    c.arrive(20, "batch", max_tok=890)
    c.arrive(10, "chat")
    c.tell(ev.Produced(0, 1500))
    assert c.standing(10).limited_by is Binding.SEATS
    assert c.end(1) == []
    # There is a seat and cache for the chat, but batch has earned it and needs more.
    assert c.standing(10).limited_by is Binding.FLOOR
    assert c.standing(20).limited_by is Binding.FLOOR
    assert c.view().limited_by is Binding.FLOOR
    assert c.end(0) == [Grant(20), Grant(10)]


def test_the_better_of_two_floors_goes_first(core: Any, make: Any) -> None:
    c = core(classes=make.with_floor(loop=0.1, batch=0.1))
    c.arrive(0, "chat", prompt_tok=0)
    c.arrive(20, "batch")
    c.arrive(30, "loop")
    c.arrive(10, "chat")
    c.tell(ev.Produced(0, 1500))
    assert c.end(0) == [Grant(30)]
    assert c.end(30) == [Grant(20)]
    assert c.end(20) == [Grant(10)]


def test_a_floor_that_is_configured_away_is_forgotten(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.tell(ev.Produced(0, 1500))
    assert c.end(0) == [Grant(20)]
    c.tell(ev.LimitsChanged(c.limits, make.classes))
    c.tell(ev.Produced(20, 5))
    assert c.end(20) == [Grant(10)]


def test_a_new_quantum_holds_from_now_on(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.tell(ev.Produced(0, 600))
    limits = replace(c.limits, floor_quantum_tok=50)
    c.tell(ev.LimitsChanged(limits, make.with_floor(batch=0.1)))
    assert c.end(0) == [Grant(20)]


def test_a_new_share_holds_from_now_on(core: Any, make: Any) -> None:
    c = busy(core, make)
    c.tell(ev.LimitsChanged(c.limits, make.with_floor(batch=0.2)))
    c.tell(ev.Produced(0, 500))
    assert c.end(0) == [Grant(20)]
