"""Stopping work of a lower class for a person who waits, and what becomes of it."""

from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Abort, Grant, LoadPool, Preempt, Queue, Refuse
from onegate.admission.lifecycle import IllegalMove
from onegate.admission.model import Binding, PoolState, Refused, Resume
from onegate.admission.protect import BURST_TOK

S = 10**9
EXACT = {"resume": Resume.EXACT}


@pytest.fixture
def busy(core: Any, make: Any) -> Any:
    """Build a core whose seats batch work holds: rids from 1."""

    def build(seats: int = 1, resume: Resume = Resume.EXACT, **fields: Any) -> Any:
        of_class = fields.pop("of_class", {})
        limits = {name: fields.pop(name) for name in list(fields) if name in LIMITS}
        c = core(make.pool(seats=seats, **fields), classes=make.preempting(**of_class), **limits)
        for rid in range(1, seats + 1):
            assert c.arrive(rid, resume=resume, max_tok=500) == [Grant(rid)]
            c.tell(ev.Produced(rid, 5))
        return c

    return build


LIMITS = {"preempt_delta_ns", "recompute_share", "max_in_flight", "floor_quantum_tok", "look_ahead"}


def stopped(effects: list[Any]) -> list[int]:
    return [effect.rid for effect in effects if isinstance(effect, Preempt)]


def come(core: Any, *args: Any, **fields: Any) -> list[Any]:
    """What comes of an arrival, whatever is predicted."""
    effects = core.arrive(*args, **fields)
    return [replace(e, predicted_ns=None) if isinstance(e, Queue) else e for e in effects]


# --- who for whom ---------------------------------------------------------------------------------


def test_a_chat_has_batch_work_stopped_and_takes_its_seat(busy: Any) -> None:
    c = busy()
    assert come(c, 9, "chat") == [Queue(9), Preempt(1)]
    assert c.tell(ev.Produced(1, 6)) == [], "it goes on until the engine has stopped it"
    assert c.tell(ev.Requeued(1, kept_tok=6)) == [Grant(9)]
    assert c.standing(1).position == 1
    assert c.end(9) == [Grant(1)]
    c.tell(ev.Produced(1, 7))
    assert c.end(1, output_tok=7) == []


def test_nobody_is_stopped_while_there_is_a_seat(busy: Any) -> None:
    c = busy(seats=2)
    c.end(2)
    assert c.arrive(9, "chat") == [Grant(9)]


def test_what_is_being_stopped_is_not_asked_again(busy: Any) -> None:
    c = busy(seats=2)
    assert stopped(c.arrive(9, "chat")) != []
    assert c.tell(ev.Tick()) == []
    assert c.tell(ev.Counted(1, 11)) == []


def test_one_is_stopped_for_each_that_waits(busy: Any) -> None:
    c = busy(seats=3)
    assert stopped(c.arrive(7, "chat")) == [3]
    assert stopped(c.arrive(8, "chat")) == [2]
    assert c.tell(ev.Requeued(3, 5)) == [Grant(7)]
    assert c.tell(ev.Requeued(2, 5)) == [Grant(8)]


@pytest.mark.parametrize(
    ("waits", "runs", "stops"),
    [
        ("chat", "batch", True),
        ("loop", "batch", True),
        ("batch", "batch", False),
        ("chat", "chat", False),
        ("loop", "chat", False),
        ("loop", "loop", False),
    ],
)
def test_only_lower_classes_are_stopped(
    core: Any, make: Any, waits: str, runs: str, stops: bool
) -> None:
    c = core(classes=make.preempting(chat={"preemptible": True}))
    c.arrive(1, runs, **EXACT)
    assert bool(stopped(c.arrive(2, waits))) is stops


def test_a_class_that_does_not_preempt_waits(busy: Any) -> None:
    c = busy(of_class={"chat": {"preempts": False}})
    assert come(c, 9, "chat") == [Queue(9)]
    assert come(c, 8, "loop") == [Queue(8)], "the best waits, and it does not stop anybody"


def test_a_class_that_may_not_be_stopped_is_not(busy: Any) -> None:
    c = busy(of_class={"batch": {"preemptible": False}})
    assert come(c, 9, "chat") == [Queue(9)]


def test_a_closed_class_stops_nobody(busy: Any) -> None:
    c = busy()
    c.tell(ev.ClassClosed("loop", None))
    assert come(c, 9, "loop") == [Queue(9)]
    assert c.tell(ev.ClassOpened("loop")) == [Preempt(1)]


def test_a_class_that_closes_meanwhile_does_not_keep_the_seat(busy: Any) -> None:
    c = busy()
    c.arrive(9, "chat")
    c.tell(ev.ClassClosed("chat", None))
    assert c.tell(ev.Requeued(1, 5)) == [Grant(1)]


@pytest.mark.parametrize(
    ("resume", "shown", "stops"),
    [
        (Resume.EXACT, True, True),
        (Resume.RESTART, True, True),
        (Resume.UNSEEN, False, True),
        (Resume.UNSEEN, True, False),
        (Resume.NEVER, False, False),
    ],
)
def test_what_cannot_be_stopped_without_being_seen_is_not(
    core: Any, make: Any, resume: Resume, shown: bool, stops: bool
) -> None:
    c = core(classes=make.preempting())
    c.arrive(1, resume=resume)
    if shown:
        c.tell(ev.Produced(1, 1))
    assert bool(stopped(c.arrive(9, "chat"))) is stops


def test_a_loop_is_stopped_once_the_chat_has_waited_long_enough(core: Any, make: Any) -> None:
    c = core(classes=make.preempting())
    c.arrive(1, "loop", **EXACT)
    c.now = S
    assert come(c, 9, "chat") == [Queue(9)]
    assert c.controller.next_wake_ns() == 3 * S
    assert c.wake() == [Preempt(1)]
    assert c.tell(ev.Requeued(1, 0)) == [Grant(9)]


def test_batch_is_stopped_before_a_loop(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2), classes=make.preempting(loop={"preempt_grace_ns": 0}))
    c.arrive(1, "batch", **EXACT)
    c.arrive(2, "loop", **EXACT)
    c.tell(ev.Produced(1, 9))
    assert stopped(c.arrive(8, "chat")) == [1]
    assert stopped(c.arrive(9, "chat")) == [2]


def test_whoever_loses_least_is_stopped(core: Any, make: Any) -> None:
    c = core(make.pool(seats=3), classes=make.preempting())
    for rid, tok in ((1, 50), (2, 5), (3, 20)):
        c.arrive(rid, max_tok=100, **EXACT)
        c.tell(ev.Produced(rid, tok))
    assert stopped(c.arrive(9, "chat")) == [2]


def test_of_equals_the_newest_is_stopped(busy: Any) -> None:
    assert stopped(busy(seats=3).arrive(9, "chat")) == [3]


def test_what_runs_out_of_time_is_not_stopped(core: Any, make: Any) -> None:
    c = core(classes=make.preempting())
    c.arrive(1, deadline_ns=S, **EXACT)
    (abort,) = c.wake()
    assert isinstance(abort, Abort)
    assert come(c, 9, "chat") == [Queue(9)]


# --- what else is in the way ----------------------------------------------------------------------


def test_a_permit_is_made_free_like_a_seat(busy: Any) -> None:
    c = busy(seats=2, max_in_flight=2, look_ahead=1)
    assert come(c, 9, "chat") == [Queue(9), Preempt(2)]
    assert c.tell(ev.Requeued(2, 5)) == [Grant(9)]


def test_cache_is_made_free_by_as_few_as_are_enough(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100), classes=make.preempting())
    for rid in (1, 2, 3):
        c.arrive(rid, prompt_tok=10, max_tok=20, **EXACT)
    assert come(c, 9, "chat", prompt_tok=30, max_tok=20) == [Queue(9), Preempt(3), Preempt(2)]
    assert c.tell(ev.Tick()) == [], "those are enough"
    assert c.tell(ev.Requeued(3, 0)) == []
    assert c.tell(ev.Requeued(2, 0)) == [Grant(9)]


def test_nobody_is_stopped_for_cache_that_would_not_be_enough(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100), classes=make.preempting())
    c.arrive(1, "batch", prompt_tok=10, max_tok=20, **EXACT)
    c.arrive(2, "batch", prompt_tok=10, max_tok=50)
    assert come(c, 9, "chat", prompt_tok=30, max_tok=20) == [Queue(9)]


def test_cache_that_just_fits_stops_nobody(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100), classes=make.preempting())
    c.arrive(1, prompt_tok=10, max_tok=40, **EXACT)
    assert c.arrive(9, "chat", prompt_tok=30, max_tok=20) == [Grant(9)]


def test_a_loop_is_given_time_for_its_cache_too(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100), classes=make.preempting())
    c.arrive(1, "loop", prompt_tok=10, max_tok=80, **EXACT)
    assert come(c, 9, "chat", prompt_tok=30, max_tok=20) == [Queue(9)]
    c.now = 2 * S
    assert c.tell(ev.Tick()) == [Preempt(1)]


def test_step_room_comes_by_itself(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, max_step_tok=100), classes=make.preempting())
    c.arrive(1, "batch", prompt_tok=90, **EXACT)
    c.arrive(2, "chat", prompt_tok=60)
    assert come(c, 9, "chat", prompt_tok=90) == [Queue(9)]
    assert c.standing(9).limited_by is Binding.STEP_TOK


def test_a_pool_that_is_not_ready_stops_nobody(core: Any, make: Any) -> None:
    c = core(make.pool("m"), make.pool("n", PoolState.LOADING), classes=make.preempting())
    c.arrive(1, **EXACT)
    assert come(c, 9, "chat", pool="n") == [Queue(9)]


# --- what probably comes by itself ----------------------------------------------------------------


def test_a_seat_that_waits_for_the_engines_word_is_waited_for(busy: Any) -> None:
    c = busy(seats=2)
    c.tell(ev.Settled(1, 5, finished=True))
    assert come(c, 9, "chat") == [Queue(9)]
    assert c.controller.next_wake_ns() == c.limits.preempt_delta_ns
    assert c.tell(ev.SeatFreed(1)) == [Grant(9)]


def test_but_not_for_ever(busy: Any) -> None:
    c = busy(seats=2)
    c.tell(ev.Settled(1, 5, finished=True))
    c.arrive(9, "chat")
    assert c.wake() == [Preempt(2)]


def learned(core: Any, make: Any, *, seats: int = 2, answer_tok: int = 100, **fields: Any) -> Any:
    """Batch answers are of that length; a step takes 10 ms. Nothing runs."""
    c = core(make.pool(seats=seats, **fields), classes=make.preempting())
    for rid in range(1000, 1040):
        c.arrive(rid, max_tok=500, principal=f"p{rid % 3}")
        c.tell(ev.Produced(rid, 1))
        for tok in range(2, 4):
            c.now += 10_000_000
            c.tell(ev.Produced(rid, tok))
        c.now += 10_000_000
        c.end(rid, output_tok=answer_tok)
    return c


def test_an_answer_that_is_about_to_end_is_waited_for(core: Any, make: Any) -> None:
    c = learned(core, make)
    for rid, tok in ((1, 99), (2, 5)):
        c.arrive(rid, max_tok=500, **EXACT)
        c.tell(ev.Produced(rid, tok))
    assert come(c, 9, "chat") == [Queue(9)]
    assert c.controller.next_wake_ns() == c.now + c.limits.preempt_delta_ns
    assert c.end(1, output_tok=100) == [Grant(9)]


def test_answers_that_have_just_begun_are_not(core: Any, make: Any) -> None:
    c = learned(core, make)
    for rid, tok in ((1, 20), (2, 5)):
        c.arrive(rid, max_tok=500, **EXACT)
        c.tell(ev.Produced(rid, tok))
    found = stopped(c.arrive(9, "chat"))
    c.now += S
    assert found + stopped(c.tell(ev.Tick())) == [2]


def test_an_answer_that_reaches_its_limit_is_waited_for(core: Any, make: Any) -> None:
    c = learned(core, make, seats=1, answer_tok=400)
    c.arrive(1, max_tok=30, **EXACT)
    c.tell(ev.Produced(1, 10))
    assert come(c, 9, "chat") == [Queue(9)]


def test_where_stopping_costs_nothing_nobody_waits_for_an_end(core: Any, make: Any) -> None:
    c = learned(core, make, seats=1, keeps_prefix=True)
    c.arrive(1, max_tok=500, **EXACT)
    c.tell(ev.Produced(1, 99))
    assert come(c, 9, "chat") == [Queue(9), Preempt(1)]


def test_whoever_begins_anew_is_waited_for_there_too(core: Any, make: Any) -> None:
    c = learned(core, make, seats=1, keeps_prefix=True)
    c.arrive(1, max_tok=500, resume=Resume.RESTART)
    c.tell(ev.Produced(1, 99))
    assert come(c, 9, "chat") == [Queue(9)]


# --- limits ---------------------------------------------------------------------------------------


def test_what_was_computed_twice_is_not_stopped_again(busy: Any) -> None:
    """Of what is protected: as many as half of the seats, and one at least."""
    c = busy(resume=Resume.RESTART)
    c.tell(ev.Produced(1, 300))
    assert stopped(c.arrive(9, "chat")) == [1]
    c.tell(ev.Requeued(1, 0))
    assert c.end(9) == [Grant(1)]
    c.tell(ev.Produced(1, 180))
    # Of 500 and a tenth of the prompt 301 and 181 are done again.
    assert stopped(c.arrive(8, "chat")) == [1]
    c.tell(ev.Requeued(1, 0))
    assert c.end(8) == [Grant(1)]
    c.tell(ev.Produced(1, 19))
    assert come(c, 7, "chat") == [Queue(7)], "and twenty more would be too many"
    assert c.end(1, output_tok=500) == [Grant(7)]


def test_what_need_not_be_computed_again_is_stopped_as_often_as_need_be(busy: Any) -> None:
    c = busy(keeps_prefix=True)
    made = 200
    for rid in range(10, 20):
        c.tell(ev.Produced(1, made))
        assert stopped(c.arrive(rid, "chat")) == [1]
        c.tell(ev.Requeued(1, made))
        assert c.end(rid) == [Grant(1)]
        c.tell(ev.Counted(1, 10, cached_tok=10 + made))
        made += 5


def test_a_class_may_have_a_share_computed_again(core: Any, make: Any) -> None:
    c = core(make.pool(seats=1), classes=make.preempting(), recompute_share=0.5)
    size = int(0.6 * BURST_TOK)  # above a half of it, and below two thirds
    for rid in (1, 2):
        c.arrive(rid, prompt_tok=10, max_tok=size, resume=Resume.RESTART)
        c.tell(ev.Produced(rid, size - 10))
        if rid == 1:
            assert stopped(c.arrive(9, "chat")) == [1]
            c.tell(ev.Requeued(1, 0))
            c.tell(ev.ClassClosed("chat", None))
            assert c.end(9) == [Grant(1)]
            assert c.end(1) == []
            c.tell(ev.ClassOpened("chat"))
    # Half of the allowance went, and half of what has been computed since came back.
    assert stopped(c.arrive(8, "chat")) == [2]
    c.tell(ev.Requeued(2, 0))
    c.end(8)
    c.end(2)
    c.arrive(3, prompt_tok=10, max_tok=size, resume=Resume.RESTART)
    c.tell(ev.Produced(3, size - 10))
    assert come(c, 7, "chat") == [Queue(7)]


def test_what_is_in_the_cache_was_not_lost(core: Any, make: Any) -> None:
    c = core(classes=make.preempting(), recompute_share=0.0)
    half = int(9 * BURST_TOK)  # at a tenth of the cost: of the allowance nearly all
    c.arrive(1, prompt_tok=10, max_tok=90_000, **EXACT)
    for rid in (9, 8, 7):
        c.tell(ev.Produced(1, half if rid == 9 else half + 1))
        assert stopped(c.arrive(rid, "chat")) == [1], rid
        c.tell(ev.Requeued(1, half))
        c.end(rid)
        c.tell(ev.Counted(1, 10, cached_tok=10 + half))
    c.tell(ev.Produced(1, half + 1))
    c.controller._book.allowances["batch"].spend(BURST_TOK)
    assert come(c, 6, "chat") == [Queue(6)], "at last nothing is left of the allowance"


def test_what_an_engine_lost_was_not_lost_to_a_stop(core: Any, make: Any) -> None:
    """What the cache has of it afterwards gives nothing back."""
    c = core(classes=make.preempting(), recompute_share=0.0)
    allowance = c.controller._book.allowances["batch"]
    c.arrive(1, prompt_tok=10, max_tok=90_000, **EXACT)
    c.tell(ev.Produced(1, 100))
    assert stopped(c.arrive(9, "chat")) == [1]
    c.tell(ev.Requeued(1, 100))
    c.end(9)
    left_tok = allowance.left_tok
    assert left_tok == pytest.approx(BURST_TOK - 11)
    assert c.tell(ev.Requeued(1, 0)) == [Grant(1)], "the engine has lost it"
    assert c.controller._book.records[1].lost_tok == 0
    c.tell(ev.Counted(1, 10, cached_tok=10))
    assert allowance.left_tok == left_tok


@pytest.mark.parametrize(("resume", "stops"), [(Resume.EXACT, [Preempt(20)]), (Resume.RESTART, [])])
def test_a_floor_grant_is_not_stopped_until_its_quantum_is_used(
    core: Any, make: Any, resume: Resume, stops: list[Any]
) -> None:
    """And what would have to begin anew not at all: else it would never be done."""
    floors = make.preempting(batch={"floor_share": 0.1})
    c = core(classes=floors)
    c.arrive(0, "chat", prompt_tok=0, max_tok=5_000)
    c.arrive(20, "batch", max_tok=990, resume=resume)
    c.arrive(10, "chat")
    c.tell(ev.Produced(0, 1000))
    assert c.end(0) == [Grant(20)]
    assert c.tell(ev.Produced(20, 89)) == []
    assert c.tell(ev.Counted(20, 10)) == [], "99 of the 100 are used"
    assert c.tell(ev.Produced(20, 90)) == stops
    assert c.tell(ev.Produced(20, 500)) == []


def test_at_most_half_of_the_seats_are_protected(core: Any, make: Any) -> None:
    c = core(make.pool(seats=4), classes=make.preempting())
    for rid in range(1, 5):
        c.arrive(rid, prompt_tok=10, max_tok=90, resume=Resume.RESTART)
        c.tell(ev.Produced(rid, 80 + rid))
        c.controller._book.records[rid].again_tok = 50  # all would be computed too often
    assert stopped(c.arrive(9, "chat")) == [1]
    assert stopped(c.arrive(8, "chat")) == [2]
    assert stopped(c.arrive(7, "chat")) == []


# --- the seat that was made free ------------------------------------------------------------------


def test_the_seat_is_kept_for_its_cause_against_a_floor(core: Any, make: Any) -> None:
    classes = make.preempting(batch={"floor_share": 0.1})
    c = core(make.pool(seats=2), classes=classes)
    c.arrive(0, "chat", prompt_tok=0, max_tok=5_000)
    c.arrive(1, max_tok=500, **EXACT)
    c.arrive(20, "batch", max_tok=990)
    assert stopped(c.arrive(10, "chat")) == [1]
    c.tell(ev.Produced(0, 2000))  # batch has earned its quantum
    assert c.tell(ev.Requeued(1, 0)) == [Grant(10)]
    # With nobody stopped for anybody the next seat is the floor's.
    c.arrive(11, "chat")
    assert c.end(0) == [Grant(1)]


def test_a_cause_that_has_left_keeps_no_seat(core: Any, make: Any) -> None:
    classes = make.preempting(batch={"floor_share": 0.1})
    c = core(make.pool(seats=2), classes=classes)
    c.arrive(0, "chat", prompt_tok=0, max_tok=5_000)
    c.arrive(1, max_tok=500, **EXACT)
    c.arrive(20, "batch", max_tok=990)
    assert stopped(c.arrive(10, "chat")) == [1]
    c.tell(ev.Withdrawn(10))
    c.arrive(11, "chat")
    c.tell(ev.Produced(0, 2000))
    assert Grant(11) not in c.tell(ev.Requeued(1, 0))


# --- races ----------------------------------------------------------------------------------------


def test_finishing_wins(busy: Any) -> None:
    c = busy()
    c.arrive(9, "chat")
    assert c.end(1, output_tok=20) == [Grant(9)]
    assert c.view().queued == 0
    with pytest.raises(KeyError):
        c.tell(ev.Requeued(1, 5))


def test_a_client_that_leaves_while_it_is_stopped(busy: Any) -> None:
    c = busy()
    c.arrive(9, "chat")
    assert c.tell(ev.Settled(1, 5, finished=False)) == []
    assert c.tell(ev.SeatFreed(1)) == [Grant(9)]


def test_the_cause_leaves_and_the_stopped_one_goes_on(busy: Any) -> None:
    c = busy()
    c.arrive(9, "chat")
    c.tell(ev.Withdrawn(9))
    assert c.tell(ev.Requeued(1, 5)) == [Grant(1)]


def test_what_is_aborted_while_it_is_stopped_is_told_so(core: Any, make: Any) -> None:
    c = core(classes=make.preempting())
    c.arrive(1, deadline_ns=S, **EXACT)
    c.arrive(9, "chat")
    (abort,) = c.wake()
    assert isinstance(abort, Abort)
    refuse, grant = c.tell(ev.Requeued(1, 0))
    assert (refuse, grant) == (Refuse(1, abort.refusal, queued=True), Grant(9))


def test_what_is_stopped_as_a_shutdown_begins_goes_on(busy: Any) -> None:
    c = busy()
    c.arrive(9, "chat")
    (refuse,) = c.tell(ev.DrainStarted())
    assert (refuse.rid, refuse.refusal.reason) == (9, Refused.SHUTTING_DOWN)
    assert c.tell(ev.Requeued(1, 5)) == [Grant(1)], "the seat is kept for nobody"


def test_what_was_stopped_goes_on_in_a_shutdown_when_its_seat_is_free(busy: Any) -> None:
    c = busy()
    c.arrive(9, "chat")
    assert c.tell(ev.Requeued(1, 5)) == [Grant(9)]
    assert c.tell(ev.DrainStarted()) == []
    assert c.end(9) == [Grant(1)]


# --- the device is lent to something else ---------------------------------------------------------


def lend(c: Any, make: Any, *, back: bool = False, **fields: Any) -> list[int]:
    state = PoolState.READY if back else PoolState.RELEASED
    return stopped(c.tell(ev.PoolChanged(make.pool(state=state, **fields))))


def test_a_released_pool_has_batch_stopped_until_it_is_back(busy: Any, make: Any) -> None:
    c = busy(seats=2)
    assert lend(c, make, seats=2) == [1, 2]
    assert lend(c, make, seats=2) == [], "asked once"
    assert c.tell(ev.Requeued(1, 5)) == c.tell(ev.Requeued(2, 5)) == []
    assert c.view().in_flight == 0
    assert c.tell(ev.PoolChanged(make.pool(seats=2))) == [Grant(1), Grant(2)]


def test_the_others_are_let_finish(core: Any, make: Any) -> None:
    pool = {"seats": 5}
    c = core(make.pool(**pool), classes=make.preempting())
    for rid, (class_, resume) in enumerate(
        [
            ("chat", Resume.EXACT),
            ("loop", Resume.EXACT),  # a better one has to wait before it stops one of these
            ("batch", Resume.NEVER),
            ("batch", Resume.UNSEEN),
            ("batch", Resume.UNSEEN),
        ],
        start=1,
    ):
        c.arrive(rid, class_, resume=resume)
    c.tell(ev.Produced(4, 1))
    assert lend(c, make, **pool) == [5]


def test_what_is_stopped_for_it_is_nobodys_loss(busy: Any, make: Any) -> None:
    """Neither a budget nor a floor's quantum keeps it in, and its class pays for nothing."""
    c = busy(resume=Resume.RESTART, recompute_share=0.0)
    c.tell(ev.Produced(1, 400))
    left_tok = c.controller._book.allowances["batch"].left_tok
    c.controller._book.records[1].prepaid_tok = 5
    assert lend(c, make) == [1]
    c.tell(ev.Requeued(1, 0))
    assert c.controller._book.allowances["batch"].left_tok == left_tok
    assert c.controller._book.records[1].again_tok == 0


def test_what_is_out_of_time_is_not_stopped_for_it(core: Any, make: Any) -> None:
    c = core(classes=make.preempting())
    c.arrive(1, deadline_ns=S, **EXACT)
    (abort,) = c.wake()
    assert isinstance(abort, Abort)
    assert lend(c, make) == []


def test_what_is_stopped_keeps_its_place_and_needs_no_room(busy: Any) -> None:
    c = busy(seats=1)
    for rid in (2, 3):
        c.arrive(rid, max_tok=500)
    c.arrive(9, "chat")
    assert c.tell(ev.Requeued(1, 5)) == [Grant(9)]
    assert [c.standing(rid).position for rid in (1, 2, 3)] == [1, 2, 3]
    assert c.end(9) == [Grant(1)]


def test_only_what_the_engine_holds_is_stopped_or_comes_back(busy: Any) -> None:
    c = busy()
    c.arrive(9, "chat")
    with pytest.raises(IllegalMove):
        c.tell(ev.Requeued(9, 0))


def test_the_whole_output_is_charged_once_to_its_flow(busy: Any) -> None:
    c = busy()
    account = c.controller._book.records[1].account
    c.tell(ev.Produced(1, 50))
    c.arrive(9, "chat")
    c.tell(ev.Requeued(1, 0))
    c.end(9)
    c.tell(ev.Produced(1, 40))
    assert account.served_tok == 60
    c.tell(ev.Produced(1, 55))
    assert account.served_tok == 65


# --- another pool ---------------------------------------------------------------------------------


@pytest.fixture
def two(core: Any, make: Any) -> Any:
    """`m` is loaded, `n` is not."""

    def build(**fields: Any) -> Any:
        pools = make.pool("m", seats=2), make.pool("n", PoolState.COLD, switch_ns=5 * S)
        return core(*pools, classes=make.preempting(**fields))

    return build


def test_a_chat_for_a_cold_pool_has_the_other_one_cleared(two: Any, make: Any) -> None:
    c = two()
    for rid in (1, 2):
        c.arrive(rid, **EXACT)
    assert come(c, 9, "chat", pool="n") == [Queue(9), Preempt(1), Preempt(2)]
    assert c.tell(ev.Tick()) == []
    assert c.tell(ev.Requeued(1, 0)) == [], "nothing starts while somebody makes room"
    assert c.tell(ev.Requeued(2, 0)) == [LoadPool("n")]
    c.tell(ev.PoolChanged(make.pool("n", PoolState.LOADING)))
    c.tell(ev.PoolChanged(make.pool("m", PoolState.COLD)))
    assert c.tell(ev.PoolChanged(make.pool("n"))) == [Grant(9)]


def test_nobody_is_stopped_for_a_switch_that_has_to_wait_for_somebody(two: Any) -> None:
    c = two()
    c.arrive(1, **EXACT)
    c.arrive(2)
    assert come(c, 9, "chat", pool="n") == [Queue(9)]
    assert c.end(2) == [Preempt(1)]


def test_a_class_that_does_not_preempt_waits_for_its_switch(two: Any) -> None:
    c = two(chat={"preempts": False})
    c.arrive(1, **EXACT)
    assert come(c, 9, "chat", pool="n") == [Queue(9)]
    assert c.end(1) == [LoadPool("n")]


def test_work_of_ones_own_rank_is_not_stopped_for_a_switch(two: Any) -> None:
    c = two()
    c.arrive(1, "chat", **EXACT)
    assert come(c, 9, "chat", pool="n") == [Queue(9)]


# --- a reservation that grows ---------------------------------------------------------------------


def test_whoever_overshoots_the_cache_makes_room_before_the_engine_chooses(
    core: Any, make: Any
) -> None:
    c = core(make.pool(seats=4, kv_tok=100, block_tok=10), classes=make.preempting())
    for rid, class_ in ((1, "chat"), (2, "batch"), (3, "batch")):
        c.arrive(rid, class_, prompt_tok=10, max_tok=20, **EXACT)
        c.tell(ev.Produced(rid, 15))
    assert c.tell(ev.Produced(1, 20)) == []
    assert c.tell(ev.Produced(1, 35)) == [Preempt(3)], "one more block than there is"
    assert c.tell(ev.Produced(1, 45)) == [], "one at a time"
    assert c.tell(ev.Requeued(3, 15)) == []


def test_the_last_one_goes_on_whatever_it_holds(core: Any, make: Any) -> None:
    c = core(make.pool(seats=4, kv_tok=100, block_tok=10), classes=make.preempting())
    c.arrive(1, prompt_tok=10, max_tok=20, **EXACT)
    assert c.tell(ev.Produced(1, 200)) == []


def test_what_cannot_be_stopped_overshoots(core: Any, make: Any) -> None:
    c = core(make.pool(seats=4, kv_tok=60, block_tok=10), classes=make.preempting())
    c.arrive(1, prompt_tok=10, max_tok=20)
    c.arrive(2, prompt_tok=10, max_tok=20, **EXACT)
    assert c.tell(ev.Produced(1, 60)) == []


def test_a_question_stops_nobody(busy: Any) -> None:
    c = busy()
    assert c.ask("chat").position == 1
    assert c.tell(ev.Tick()) == []


def test_limits_that_change_hold_from_then_on(busy: Any, make: Any) -> None:
    c = busy(of_class={"batch": {"preemptible": False}})
    assert come(c, 9, "chat") == [Queue(9)]
    assert c.tell(ev.LimitsChanged(c.limits, make.preempting())) == [Preempt(1)]
