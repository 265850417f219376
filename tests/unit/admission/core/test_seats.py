"""Seats that are given only as far as steps stay short; places that are held; what grows."""

from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Preempt, Queue
from onegate.admission.fairness import TOLERANCE_TOK
from onegate.admission.model import Binding, Reservation, Resume

S = 10**9
MS = 1_000_000


# --- steps ----------------------------------------------------------------------------------------


def paced(core: Any, make: Any, *, target_ms: int, seats: int = 8, **of_class: Any) -> Any:
    """A step takes 10 ms and 5 more for each sequence; chat wants its steps that short."""
    chat = {"itl_target_ns": target_ms * MS}
    c = core(make.pool(seats=seats), classes=make.preempting(chat=chat, **of_class))
    rid = 1000
    for together in (1, 2, 3, 4) * 12:
        rids = range(rid, rid + together)
        rid += together
        for one in rids:
            c.arrive(one, "batch", prompt_tok=1, max_tok=500)
        for tok in range(1, 6):
            c.now += (10 + 5 * together) * MS
            for one in rids:
                c.tell(ev.Produced(one, tok))
        for one in rids:
            c.end(one, output_tok=5)
    return c


def test_while_a_chat_runs_lower_ones_get_the_seats_that_its_steps_allow(
    core: Any, make: Any
) -> None:
    c = paced(core, make, target_ms=27)
    assert c.arrive(1, "chat") == [Grant(1)]
    assert c.arrive(2, "batch") == [Grant(2)], "20 ms"
    assert c.arrive(3, "batch") == [Grant(3)], "25 ms"
    assert c.arrive(4, "batch")[-1].rid == 4
    assert c.standing(4).limited_by is Binding.ITL
    assert c.view().limited_by is Binding.ITL
    assert c.arrive(5, "chat") == [Grant(5)], "chats are not bound by it"
    assert Grant(4) in c.end(5) + c.end(3)


def test_the_chat_has_gone_and_the_seats_are_theirs(core: Any, make: Any) -> None:
    c = paced(core, make, target_ms=17)
    c.arrive(1, "chat")
    for rid in (2, 3):
        assert isinstance(c.arrive(rid, "batch")[-1], Queue)
    assert c.end(1) == [Grant(2), Grant(3)]
    assert c.arrive(4, "batch") == [Grant(4)]


def test_a_class_without_a_target_bounds_nobody(core: Any, make: Any) -> None:
    c = paced(core, make, target_ms=17)
    c.arrive(1, "loop")
    assert c.arrive(2, "batch") == [Grant(2)]


def test_nobody_is_bound_by_a_pace_that_is_not_known(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8), classes=make.preempting(chat={"itl_target_ns": MS}))
    c.arrive(1, "chat")
    assert c.arrive(2, "batch") == [Grant(2)]


def test_nobody_is_stopped_to_make_steps_short_or_for_one_that_they_keep_out(
    core: Any, make: Any
) -> None:
    c = paced(core, make, target_ms=17)
    c.arrive(2, "batch", max_tok=500, resume=Resume.EXACT)
    assert c.arrive(1, "chat") == [Grant(1)]
    assert isinstance(c.arrive(3, "loop")[-1], Queue)
    assert c.standing(3).limited_by is Binding.ITL
    assert c.tell(ev.Tick()) == []


def test_a_floor_is_kept_all_the_same(core: Any, make: Any) -> None:
    c = paced(core, make, target_ms=17, batch={"floor_share": 0.1})
    c.arrive(1, "chat", prompt_tok=0, max_tok=5_000)
    c.arrive(2, "loop")
    c.arrive(20, "batch", max_tok=990)
    assert c.tell(ev.Produced(1, 2_000)) == [Grant(20)]


# --- a place that is held -------------------------------------------------------------------------


def test_a_large_one_is_not_passed_by_small_ones_of_others(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=1000))
    c.arrive(1, max_tok=500, principal="a")
    c.arrive(2, prompt_tok=600, principal="a")
    assert c.standing(2).limited_by is Binding.KV
    c.tell(ev.Produced(1, 2 * TOLERANCE_TOK))  # a would not be next any more
    for rid in (3, 4):
        c.arrive(rid, principal="b")
        assert c.standing(rid).limited_by is Binding.KV
    assert c.end(1) == [Grant(2), Grant(3), Grant(4)]


def test_one_that_finds_no_seat_holds_no_place(core: Any) -> None:
    """Seats are all alike: whoever is served least has the next one."""
    c = core()
    c.arrive(1, principal="a")
    c.arrive(2, principal="a", max_tok=500)
    c.tell(ev.Produced(1, 2 * TOLERANCE_TOK))
    c.arrive(3, principal="b")
    assert c.end(1) == [Grant(3)]


def test_one_that_does_not_fit_into_the_step_holds_its_place(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, max_step_tok=100))
    c.arrive(1, prompt_tok=60, principal="a", max_tok=6_000)
    c.arrive(2, prompt_tok=90, principal="a")
    c.tell(ev.ClassClosed("batch", None))
    c.tell(ev.ClassOpened("batch"))
    c.arrive(3, principal="b", prompt_tok=10)
    assert c.standing(3).limited_by is Binding.STEP_TOK
    assert c.tell(ev.Produced(1, 2 * TOLERANCE_TOK)) == [Grant(2), Grant(3)]


def test_a_better_class_passes_all_the_same(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=1000))
    c.arrive(1, max_tok=500)
    c.arrive(2, prompt_tok=600)
    assert c.arrive(3, "chat") == [Grant(3)]


# --- what grows -----------------------------------------------------------------------------------


def learned(core: Any, make: Any, reservation: Reservation = Reservation.GROW, **more: Any) -> Any:
    """Answers of chat are of 100 tokens; up to 400 were asked for."""
    c = core(
        make.pool(seats=8, kv_tok=1000, block_tok=10, reservation=reservation, **more),
        classes=make.preempting(),
    )
    for rid in range(1000, 1040):
        c.arrive(rid, "chat", principal=f"p{rid % 4}", max_tok=400)
        c.end(rid, output_tok=100)
    return c


def used_tok(c: Any) -> int:
    return c.view().pools[0].kv_tok_used


def test_what_nine_of_ten_answers_need_is_reserved(core: Any, make: Any) -> None:
    c = learned(core, make)
    c.arrive(1, "chat", max_tok=400)
    assert 100 <= used_tok(c) <= 130
    c.arrive(2, "chat", max_tok=30)
    assert used_tok(c) <= 130 + 40
    assert c.arrive(3, "batch", max_tok=400) == [Grant(3)], "of batch nothing is known"
    assert used_tok(c) > 400


@pytest.mark.parametrize("reservation", [Reservation.FULL, Reservation.PER_SLOT])
def test_other_engines_reserve_all_of_it(core: Any, make: Any, reservation: Reservation) -> None:
    c = learned(core, make, reservation)
    c.arrive(1, "chat", max_tok=400)
    assert used_tok(c) == (410 if reservation is Reservation.FULL else 0)


def test_more_run_at_a_time_than_would_fit_if_all_were_long(core: Any, make: Any) -> None:
    c = learned(core, make)
    started = [c.arrive(rid, "chat", max_tok=400) == [Grant(rid)] for rid in range(1, 9)]
    assert sum(started) >= 7


def test_what_waits_counts_as_much_as_it_will_reserve(core: Any, make: Any) -> None:
    c = learned(core, make)
    for rid in range(1, 9):
        c.arrive(rid, "chat", max_tok=400)
    c.arrive(9, "chat", max_tok=400)
    waits = c.view().classes[0]
    assert 100 * waits.queued <= waits.queued_tok <= 140 * waits.queued


def test_a_longer_answer_grows_and_the_worst_makes_room(core: Any, make: Any) -> None:
    c = learned(core, make)
    c.arrive(1, "chat", max_tok=600)
    c.arrive(2, "batch", prompt_tok=300, max_tok=100, resume=Resume.EXACT)
    c.arrive(3, "batch", prompt_tok=200, max_tok=100, resume=Resume.EXACT)
    assert used_tok(c) <= 1000
    stopped = []
    for tok in range(110, 400, 10):
        stopped += c.tell(ev.Produced(1, tok))
        if stopped:
            break
    assert stopped == [Preempt(3)], "batch before chat, and the newest of equals"
    c.tell(ev.Requeued(3, 0))
    assert used_tok(c) <= 1000


def test_a_new_model_is_not_expected_to_answer_like_the_old_one(core: Any, make: Any) -> None:
    c = learned(core, make, identity="one")
    c.tell(ev.PoolChanged(make.pool(seats=8, kv_tok=1000, block_tok=10, identity="two")))
    c.arrive(1, "chat", max_tok=400)
    assert used_tok(c) == 410
