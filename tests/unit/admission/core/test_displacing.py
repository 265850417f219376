"""Those of a lower class leave the queue for a better one, and are promised a place."""

from typing import Any

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Preempt, Queue, Refuse
from onegate.admission.foresight import LEAST_FORECASTS
from onegate.admission.model import Refused, Resume

S = 10**9


def full(core: Any, *classes: str, **limits: Any) -> Any:
    """One runs; one request of each class waits, of 100 tokens each. No more may."""
    c = core(max_queued_tok=100 * len(classes), **limits)
    c.arrive(1, "chat", principal="z")
    for rid, class_ in enumerate(classes, 10):
        c.arrive(rid, class_, principal=f"p{rid}", max_tok=90)
    return c


def left(effects: list[Any]) -> list[int]:
    """Who left for whom, all with the right words."""
    *refused, queued = effects
    assert isinstance(queued, Queue)
    for refuse in refused:
        assert isinstance(refuse, Refuse)
        assert refuse.queued
        assert refuse.refusal.reason is Refused.DISPLACED
    return [refuse.rid for refuse in refused]


def test_a_better_one_takes_the_place_of_the_newest_of_the_lowest_class(core: Any) -> None:
    c = full(core, "loop", "batch", "batch", "loop")
    assert left(c.arrive(2, "chat", max_tok=90)) == [12]
    assert c.view().queued_tok == 400
    assert left(c.arrive(3, "loop", principal="q", max_tok=90)) == [11]
    assert c.standing(12) is None
    assert c.arrive(12, "batch", max_tok=1)[0].refusal.reason is Refused.TOKENS_FULL


def test_only_as_many_as_are_in_the_way(core: Any) -> None:
    c = full(core, "batch", "batch", "batch")
    assert left(c.arrive(2, "chat", max_tok=91)) == [12, 11]
    assert left(c.arrive(3, "chat", prompt_tok=1, max_tok=98)) == []
    assert c.view().queued_tok == 300


def test_the_own_class_and_better_ones_stay(core: Any) -> None:
    c = full(core, "chat", "loop", "loop")
    no = c.refusal(2, "loop", principal="q", max_tok=90)
    assert (no.reason, no.used, no.limit) == (Refused.TOKENS_FULL, 300, 300)
    assert c.view().queued == 3


def test_nobody_leaves_for_one_that_would_not_fit_all_the_same(core: Any) -> None:
    c = full(core, "chat", "chat", "batch")
    no = c.refusal(2, "chat", principal="q", prompt_tok=150, max_tok=0)
    assert no.reason is Refused.TOKENS_FULL
    assert c.standing(12) is not None


def test_what_has_been_in_the_engine_stays(core: Any) -> None:
    c = core(max_queued_tok=200)
    c.arrive(1, max_tok=90)
    c.arrive(2, max_tok=90)
    c.tell(ev.ClassClosed("batch", None))
    c.tell(ev.Requeued(1))
    c.arrive(9, "chat", principal="z", max_tok=50)
    assert left(c.arrive(3, "chat", max_tok=90)) == [2]
    assert c.refusal(4, "chat", principal="y", max_tok=90).reason is Refused.TOKENS_FULL
    assert c.standing(1) is not None


def test_whoever_was_served_most_leaves_first(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2), max_queued_tok=400)
    c.arrive(0, "chat", principal="z")
    c.arrive(1, principal="a")
    for rid, principal in ((10, "a"), (11, "b"), (12, "a"), (13, "b")):
        c.arrive(rid, principal=principal, max_tok=90)
    c.tell(ev.Produced(1, 5000))
    assert left(c.arrive(2, "chat", max_tok=90)) == [12]
    assert left(c.arrive(3, "chat", max_tok=90)) == [10]
    assert left(c.arrive(4, "chat", principal="y", max_tok=90)) == [13]


def test_nobody_leaves_for_one_that_starts_at_once(core: Any, make: Any) -> None:
    c = core(make.pool("m"), make.pool("n"), max_queued_tok=100)
    c.arrive(1)
    c.arrive(2, max_tok=90)
    assert c.arrive(3, "chat", pool="n", max_tok=90) == [Grant(3)]
    assert c.view().queued_tok == 100


def test_nobody_leaves_for_one_that_is_refused_for_its_own_sake(core: Any) -> None:
    c = full(core, "batch", "batch")
    c.arrive(2, "chat", max_tok=90)
    assert c.refusal(3, "chat", principal="q", prompt_tok=190, max_tok=1_000).reason is (
        Refused.TOO_LARGE
    )
    assert c.standing(10) is not None


def test_who_leaves_is_told_when_to_come_back(core: Any) -> None:
    c = core(max_queued_tok=500)
    c.arrive(0)
    for rid in range(1, 6):
        c.arrive(rid, principal=f"p{rid}", max_tok=90)
    for rid in range(3):
        c.now += S
        c.end(rid)
    # 300 tokens in three seconds have left; chat and two of batch wait.
    for rid in (11, 12, 13):
        c.arrive(rid, "chat", principal=f"p{rid}", max_tok=90)
    refuse, _ = c.arrive(14, "chat", principal="y", max_tok=90)
    assert refuse.rid == 5
    assert S <= refuse.refusal.retry_after_ns <= 1.05 * S
    assert refuse.refusal.ticket is not None


def test_the_displaced_is_the_one_that_would_have_stopped_somebody(core: Any, make: Any) -> None:
    c = core(classes=make.preempting(), max_queued_tok=100)
    c.arrive(1, "batch", max_tok=500, resume=Resume.EXACT)
    c.arrive(2, "batch", max_tok=90)
    refused, queued, stopped = c.arrive(3, "chat", max_tok=90)
    assert (refused.rid, queued.rid, stopped) == (2, 3, Preempt(1))


def test_asking_puts_nobody_out(core: Any) -> None:
    c = full(core, "batch", "batch")
    verdict = c.ask("chat", max_tok=90)
    assert verdict.refusal is None
    assert c.view().queued == 2


def test_a_refused_prediction_puts_nobody_out(core: Any) -> None:
    """One that would be too late takes nobody's place."""
    c = core(max_queued_tok=300)
    c.arrive(0, "chat")
    for rid in range(1, 8):
        c.arrive(rid, "chat", principal=f"p{rid}", prompt_tok=10, max_tok=10)
    for _ in range(LEAST_FORECASTS):
        c.controller._book.queues["chat"].foresight.learn(S, S)
    for last in range(3):
        c.now += 2 * S
        c.end(last)
    for rid in range(10, 16):
        c.arrive(rid, "batch", max_tok=20, principal=f"p{rid}")
    queued = c.view().queued
    no = c.refusal(
        20, "chat", principal="q", max_tok=100, ttft_deadline_ns=c.now + S, ttft_is_own=True
    )
    assert no.reason is Refused.WONT_MEET_DEADLINE
    assert c.view().queued == queued
