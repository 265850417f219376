"""What the core says about itself, and that asking changes nothing."""

from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Queue
from onegate.admission.model import Binding, PoolState, Refused

S = 10**9


# --- standing -------------------------------------------------------------------------------------


def test_nobody_stands_who_does_not_wait(core: Any) -> None:
    c = core()
    c.arrive(1)
    assert c.standing(1) is None
    assert c.standing(9) is None


def test_those_who_would_start_earlier_are_ahead(core: Any, make: Any) -> None:
    c = core(make.pool("m"), make.pool("n"))
    c.arrive(1)
    c.arrive(2, pool="n")
    for rid, class_, pool in (
        (3, "batch", "m"),
        (4, "batch", "n"),
        (5, "batch", "m"),
        (6, "chat", "m"),
        (7, "loop", "m"),
        (8, "loop", "n"),
        (9, "batch", "m"),
    ):
        c.arrive(rid, class_, pool=pool)
    standing = c.standing(5)
    assert standing.ahead == {"chat": 1, "loop": 1, "batch": 1}
    assert standing.position == 4
    assert (c.standing(6).position, c.standing(6).ahead) == (1, {})
    c.tell(ev.ClassClosed("chat", None))
    assert c.standing(5).ahead == {"loop": 1, "batch": 1}
    assert c.standing(6).limited_by is Binding.CLOSED
    assert c.standing(6).opens_in_ns is None


def drained(core: Any) -> Any:
    """Ten tokens a second leave batch; three requests of 20 wait, and a chat of 20."""
    c = core()
    for rid in range(1, 6):
        c.arrive(rid)
    for rid in (1, 2):
        c.now += 2 * S
        c.end(rid)
    c.arrive(6)
    c.arrive(10, "chat")
    return c


def test_the_expected_wait_is_what_is_ahead_over_the_rate(core: Any) -> None:
    c = drained(core)
    assert c.standing(4).expected_wait_ns == 4 * S, "a chat and itself"
    assert c.standing(6).expected_wait_ns == 8 * S
    assert c.standing(10).expected_wait_ns is None, "no chat has been seen to wait"
    c.tell(ev.ClassClosed("chat", None))
    assert c.standing(4).expected_wait_ns == 2 * S
    c.tell(ev.ClassClosed("batch", None))
    assert c.standing(4).expected_wait_ns is None


def test_rates_of_better_classes_add_up(core: Any) -> None:
    c = core()
    c.arrive(0)
    for rid in range(1, 4):
        c.arrive(rid, "batch")
        c.arrive(10 + rid, "chat")
    c.now = 2 * S
    c.end(0)  # the first chat: ten tokens a second
    c.now = 4 * S
    c.end(11)
    c.now = 4 * S
    c.end(12)
    c.arrive(14, "chat")
    c.end(13)
    c.now = 8 * S
    c.end(14)
    assert c.standing(2).expected_wait_ns is not None


# --- ask ------------------------------------------------------------------------------------------


def test_it_would_start(core: Any) -> None:
    c = core()
    verdict = c.ask()
    assert (verdict.position, verdict.limited_by, verdict.refusal) == (0, None, None)
    assert c.arrive(1) == [Grant(1)]


def test_it_would_wait(core: Any) -> None:
    c = drained(core)
    verdict = c.ask()
    # Behind the chat, and as it came, since nobody was served much.
    assert (verdict.position, verdict.limited_by) == (5, Binding.SEATS)
    assert verdict.expected_wait_ns == 10 * S
    assert c.ask("chat").position == 2
    assert c.ask("loop").position == 2


def test_it_would_be_first_and_wait(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100))
    c.arrive(1, max_tok=60)
    verdict = c.ask(max_tok=50)
    assert (verdict.position, verdict.limited_by) == (1, Binding.KV)
    assert c.ask(max_tok=20).position == 0


def test_a_chat_would_pass_the_batch_that_is_in_its_own_way(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=100))
    c.arrive(1, max_tok=60)
    c.arrive(2, max_tok=60)
    assert c.ask("chat").position == 0
    assert c.arrive(3, "chat") == [Grant(3)]


def test_unless_a_floor_holds_the_place(core: Any, make: Any) -> None:
    c = core(make.pool(seats=8, kv_tok=2000), classes=make.with_floor(batch=0.1))
    c.arrive(1, "chat", prompt_tok=0, max_tok=1500)
    c.arrive(2, "batch", max_tok=900)
    c.tell(ev.Produced(1, 1500))
    verdict = c.ask("chat")
    assert (verdict.position, verdict.limited_by) == (1, Binding.FLOOR)
    assert c.arrive(3, "chat") == [Queue(3)]
    assert c.standing(3).limited_by is Binding.FLOOR


def test_a_floor_may_put_the_newcomer_itself_first(core: Any, make: Any) -> None:
    pools = make.pool("m", seats=2, kv_tok=100), make.pool("n")
    c = core(*pools, classes=make.with_floor(batch=0.1))
    c.arrive(1, "chat", pool="n", prompt_tok=0)
    c.arrive(2, "batch", pool="n")
    c.arrive(3, "chat", max_tok=60)
    c.arrive(4, "chat", max_tok=60)
    c.tell(ev.Produced(1, 1500))
    assert c.ask("batch").position == 0
    assert c.arrive(5, "batch") == [Grant(5)]


def test_it_would_be_refused(core: Any) -> None:
    c = core()
    c.tell(ev.ClassClosed("batch", 5 * S))
    verdict = c.ask()
    assert (verdict.position, verdict.refusal.reason) == (0, Refused.PAUSED)
    assert verdict.refusal.retry_after_ns == 5 * S
    c.arrive(1, "chat")
    verdict = c.ask("chat", max_tok=991)
    assert verdict.refusal.reason is Refused.TOO_LARGE
    assert (verdict.position, verdict.limited_by) == (1, Binding.SEATS)
    assert c.ask("chat", max_tok=990).refusal is None


def test_it_would_wait_for_the_opening(core: Any) -> None:
    c = core()
    c.tell(ev.ClassClosed("loop", None))
    verdict = c.ask("loop")
    assert (verdict.position, verdict.limited_by, verdict.refusal) == (1, Binding.CLOSED, None)


@pytest.mark.parametrize("state", [PoolState.COLD, PoolState.LOADING])
def test_it_would_wait_for_the_load(core: Any, make: Any, state: PoolState) -> None:
    c = core(make.pool(state=state))
    assert c.ask().limited_by is Binding.LOADING


def test_asking_leaves_no_trace(core: Any) -> None:
    c = drained(core)
    before, wake_ns = c.view(), c.controller.next_wake_ns()
    for _ in range(3):
        c.ask()
        c.ask("chat", max_tok=5_000)
        c.ask("chat", max_tok=600_000)
    assert c.view() == before
    assert c.controller.next_wake_ns() == wake_ns
    c.controller.validate()


# --- view -----------------------------------------------------------------------------------------


def test_the_view_of_classes(core: Any) -> None:
    c = drained(core)
    c.tell(ev.ClassClosed("loop", 50 * S))
    chat, loop, batch = c.view().classes
    assert (chat.name, chat.rank, chat.queued, chat.queued_tok) == ("chat", 0, 1, 20)
    assert (chat.max_queued_tok, chat.running, chat.closed) == (2_000, 0, False)
    assert (batch.queued, batch.queued_tok, batch.running) == (3, 60, 1)
    assert batch.expected_wait_ns == 10 * S
    assert chat.expected_wait_ns is None
    assert (loop.closed, loop.opens_at_ns, loop.expected_wait_ns) == (True, 50 * S, None)
    assert batch.opens_at_ns is None


def test_no_wait_while_the_smallest_would_start(core: Any, make: Any) -> None:
    c = core(make.pool("m"), make.pool("n"))
    assert [k.expected_wait_ns for k in c.view().classes] == [0, 0, 0]
    c.arrive(1)
    assert [k.expected_wait_ns for k in c.view().classes] == [0, 0, 0], "there is n"
    c.arrive(2, pool="n")
    assert [k.expected_wait_ns for k in c.view().classes] == [None, None, None]
    c.end(1)
    c.tell(ev.ClassClosed("chat", None))
    assert [k.expected_wait_ns for k in c.view().classes] == [None, 0, 0]


def test_someone_better_who_waits_is_before_it(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2, kv_tok=100))
    c.arrive(1, max_tok=60)
    c.arrive(2, "loop", max_tok=60)
    assert [k.expected_wait_ns for k in c.view().classes] == [0, None, None]


def test_the_view_of_pools(core: Any, make: Any) -> None:
    c = core(make.pool("m", seats=2, kv_tok=96, block_tok=16), make.pool("n", PoolState.FAILED))
    c.arrive(1, prompt_tok=10, max_tok=7)
    c.arrive(2)
    c.tell(ev.Settled(2, 0, finished=False))
    m, n = c.view().pools
    assert (m.model, m.state, m.seats, m.seats_used, m.seats_quarantined) == (
        "m",
        PoolState.READY,
        2,
        2,
        1,
    )
    assert (m.kv_tok, m.kv_tok_used, m.unprefilled_tok) == (96, 48, 10)
    assert (n.model, n.state, n.seats_used, n.kv_tok) == ("n", PoolState.FAILED, 0, None)


def test_the_view_of_all(core: Any, make: Any) -> None:
    c = core(make.pool("m"), make.pool("n"))
    assert c.view().limited_by is None
    c.arrive(1, pool="n")
    c.arrive(2, pool="n")
    view = c.view()
    assert (view.in_flight, view.queued, view.queued_tok, view.draining) == (1, 1, 20, False)
    assert view.limited_by is Binding.SEATS
