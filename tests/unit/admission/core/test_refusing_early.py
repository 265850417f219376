"""Who will not be in time is told so at once; and what keeps that from locking the box."""

from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Queue
from onegate.admission.estimate.step_model import AGE_NS
from onegate.admission.foresight import LEAST_FORECASTS
from onegate.admission.model import PoolState, Refused, Resume

S = 10**9
MS = 1_000_000


def own(core: Any, in_ns: int) -> dict[str, Any]:
    return {"ttft_deadline_ns": core.now + in_ns, "ttft_is_own": True}


def trust(c: Any) -> Any:
    """Predictions have come true until now."""
    for _ in range(LEAST_FORECASTS):
        c.controller._book.queues["chat"].foresight.learn(S, S)
    return c


def busy(core: Any, *, waiting: int = 5, **fields: Any) -> Any:
    """Chats of 20 tokens each are served at one a second, and that many wait. They have 5.6 s
    left."""
    c = core(**fields)
    c.arrive(0, "chat")
    for rid in range(1, 5 + waiting):
        c.arrive(rid, "chat", principal=f"p{rid}", **own(c, 9_600 * MS))
    for rid in range(4):
        c.now += S
        c.end(rid)
    assert c.view().queued == waiting
    return trust(c)


def test_one_that_will_be_late_is_told_at_once(core: Any) -> None:
    c = busy(core)
    no = c.refusal(20, "chat", principal="q", **own(c, 5_700 * MS))
    assert (no.reason, no.limit, no.used) == (Refused.WONT_MEET_DEADLINE, 5_700, 6_000)
    assert no.retry_after_ns >= 300 * MS
    assert c.view().queued == 5


def test_one_that_will_be_in_time_waits(core: Any) -> None:
    c = busy(core)
    assert c.arrive(20, "chat", principal="q", **own(c, 6 * S)) == [Queue(20, 6 * S)]


def test_one_whose_time_ends_first_goes_first_unless_others_would_be_late_for_it(
    core: Any,
) -> None:
    c = busy(core)
    no = c.refusal(20, "chat", principal="q", **own(c, 3 * S))
    assert no.reason is Refused.TOKENS_FULL
    assert "promised" in no.message
    c = busy(core, waiting=4)
    assert c.arrive(21, "chat", principal="q", **own(c, 1_500 * MS)) == [Queue(21, S)]
    c.now += S
    assert c.end(4) == [Grant(21)]


def test_a_deadline_that_comes_near_passes_the_fair_order(core: Any) -> None:
    c = busy(core, waiting=3)
    c.arrive(20, "chat", principal="q", **own(c, 60 * S))
    for rid in (5, 6, 7):
        c.tell(ev.Withdrawn(rid))
    for rid in (30, 31, 32):
        c.arrive(rid, "chat", principal=f"p{rid}")
    c.tell(ev.Produced(4, 1))
    c.now += 57 * S
    assert c.end(4) == [Grant(20)]


def test_a_whole_deadline_is_looked_at_too(core: Any) -> None:
    c = busy(core)
    no = c.refusal(20, "chat", principal="q", deadline_ns=c.now + 5_700 * MS)
    assert no.reason is Refused.WONT_MEET_DEADLINE


def test_one_without_a_deadline_waits(core: Any) -> None:
    c = busy(core)
    assert isinstance(c.arrive(20, "chat", principal="q")[-1], Queue)


def test_a_retry_after_the_hint_is_in_time(core: Any) -> None:
    c = busy(core)
    no = c.refusal(20, "chat", principal="q", **own(c, 5_700 * MS))
    due_ns = c.now + no.retry_after_ns
    for rid in range(4, 9):
        if c.now + S > due_ns:
            break
        c.now += S
        c.end(rid)
    c.now = due_ns
    answer = c.arrive(21, "chat", principal="q", ticket=no.ticket, **own(c, 5_700 * MS))
    assert isinstance(answer[-1], Queue)


# --- guards ---------------------------------------------------------------------------------------


def test_what_nobody_has_measured_refuses_nobody(core: Any) -> None:
    c = trust(core())
    c.arrive(0, "chat")
    for rid in range(1, 20):
        c.arrive(rid, "chat", principal=f"p{rid}")
    assert c.arrive(20, "chat", principal="q", **own(c, MS)) == [Queue(20)]


def test_an_idle_box_refuses_nobody_whatever_it_believes(core: Any, make: Any) -> None:
    c = trust(core(make.pool("m"), make.pool("n"), max_in_flight=1))
    c.arrive(0, "chat", pool="n")
    c.arrive(1, "chat", principal="p1")
    c.arrive(2, "chat", principal="p2")
    for _ in range(2):
        c.now += S
        c.tell(ev.Tick())
    # One request ends in n and one of m starts: a rate is known, and nothing runs in n.
    c.end(0)
    no = c.refusal(3, "chat", principal="p3", **own(c, MS))
    assert no.reason is Refused.WONT_MEET_DEADLINE
    assert isinstance(c.arrive(4, "chat", pool="n", principal="p4", **own(c, MS))[-1], Queue)


def test_an_idle_seat_starts_it_whatever_the_prediction(core: Any) -> None:
    c = busy(core, waiting=1)
    c.end(4)
    c.end(5)
    assert c.arrive(20, "chat", **own(c, 1)) == [Grant(20)]


@pytest.mark.parametrize("asked", [False, True])
def test_a_cold_pool_is_waited_for_unless_the_load_is_longer(
    core: Any, make: Any, asked: bool
) -> None:
    c = trust(core(make.pool(state=PoolState.COLD, switch_ns=10 * S)))
    left_ns = 10 * S
    if asked:
        c.arrive(1, "chat")
        c.now = 4 * S
        left_ns = 6 * S
    no = c.refusal(2, "chat", principal="q", **own(c, left_ns - MS))
    assert (no.reason, no.used) == (Refused.WONT_MEET_DEADLINE, left_ns // MS)
    assert isinstance(c.arrive(3, "chat", principal="q", **own(c, left_ns))[-1], Queue)
    default = {"ttft_deadline_ns": c.now + MS}
    assert isinstance(c.arrive(4, "chat", principal="q", **default)[-1], Queue)


def test_a_default_bounds_only_the_wait_of_others_making(core: Any, make: Any) -> None:
    """A prompt that takes two seconds: too long for one's own limit, none of a default's."""
    c = core(make.pool(seats=1))
    for rid in range(100, 140):
        c.arrive(rid, "chat", prompt_tok=2_000)
        c.now += S
        c.tell(ev.Produced(rid, 1))
        for tok in range(2, 5):
            c.now += 10 * MS
            c.tell(ev.Produced(rid, tok))
        c.end(rid, output_tok=4)
    trust(c).arrive(0, "chat", prompt_tok=10)
    c.tell(ev.Produced(0, 1))
    long = {"prompt_tok": 900, "principal": "q", "max_tok": 50}
    # The one that runs makes nine more tokens.
    no = c.refusal(1, "chat", **own(c, 300 * MS), **long)
    assert no.reason is Refused.WONT_MEET_DEADLINE
    default = {"ttft_deadline_ns": c.now + 300 * MS}
    assert isinstance(c.arrive(2, "chat", **default, **long)[-1], Queue)


def test_a_rate_is_forgotten_with_its_backlog(core: Any) -> None:
    """A slow hour says nothing once the queue has been empty."""
    c = busy(core, waiting=2)
    c.now += 5 * S
    for rid in (4, 5, 6):
        c.end(rid)
    c.arrive(30, "chat")
    c.arrive(31, "chat", principal="p31")
    assert isinstance(c.arrive(32, "chat", principal="q", **own(c, MS))[-1], Queue)


def polluted(core: Any, make: Any) -> Any:
    """A swap stall taught it that a step takes a second; one request runs, and nobody waits."""
    c = core(make.pool(seats=1))
    for rid in range(100, 140):
        c.arrive(rid, "chat", principal=f"p{rid % 5}", max_tok=500)
        for tok in range(1, 4):
            c.now += S
            c.tell(ev.Produced(rid, tok))
        c.end(rid, output_tok=100)
    c.arrive(0, "chat", max_tok=500)
    c.tell(ev.Produced(0, 1))
    return trust(c)


def test_polluted_estimates_age_out(core: Any, make: Any) -> None:
    c = polluted(core, make)
    assert c.refusal(1, "chat", principal="q", **own(c, 5 * S)).reason is (
        Refused.WONT_MEET_DEADLINE
    )
    c.now += AGE_NS - 1
    assert c.refusal(2, "chat", principal="q", **own(c, 5 * S)).reason is (
        Refused.WONT_MEET_DEADLINE
    )
    c.now += 2
    assert isinstance(c.arrive(3, "chat", principal="q", **own(c, 5 * S))[-1], Queue)


def test_what_was_learned_of_another_model_is_forgotten(core: Any, make: Any) -> None:
    c = polluted(core, make)
    c.tell(ev.PoolChanged(replace(make.pool(seats=1), identity="other")))
    assert isinstance(c.arrive(1, "chat", principal="q", **own(c, 5 * S))[-1], Queue)


def test_the_same_model_with_more_seats_is_remembered(core: Any, make: Any) -> None:
    c = polluted(core, make)
    c.tell(ev.PoolChanged(make.pool(seats=1, max_context_tok=5_000)))
    assert c.refusal(1, "chat", principal="q", **own(c, 5 * S)).reason is (
        Refused.WONT_MEET_DEADLINE
    )


def test_after_some_refusals_one_is_let_in_to_see(core: Any, make: Any) -> None:
    c = polluted(core, make)
    told = []
    for rid in range(1, 21):
        effects = c.arrive(rid, "chat", principal="q", **own(c, 5 * S))
        told.append(isinstance(effects[-1], Queue))
        if told[-1]:
            c.tell(ev.Withdrawn(rid))
    assert told == ([False] * c.limits.probe_after + [True]) * 2 + [False, False]


def test_nobody_starts_who_is_out_of_time(core: Any) -> None:
    """What was let in to see expires where it waits, as ever."""
    c = busy(core)
    c.arrive(20, "chat", principal="q", **own(c, 20 * S))
    c.now += 20 * S
    refused = {effect.rid: effect.refusal.reason for effect in c.tell(ev.Tick())}
    assert refused[20] is Refused.TTFT_DEADLINE_EXCEEDED
    assert c.view().queued == 0


def test_a_preempting_class_does_not_wait_for_seats_that_it_may_have_stopped(
    core: Any, make: Any
) -> None:
    c = core(make.pool(seats=1), classes=make.preempting())
    c.arrive(1, "batch", max_tok=500, resume=Resume.EXACT)
    queued, _ = c.arrive(9, "chat", **own(c, MS))
    assert queued == Queue(9, predicted_ns=0)
