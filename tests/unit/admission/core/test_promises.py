"""Coming back with a ticket: the promise holds, once, and costs others a share at most."""

from typing import Any

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Queue
from onegate.admission.model import Refused
from onegate.admission.tickets import EARLY_NS

S = 10**9


def full(core: Any) -> Any:
    """Chats of 100 tokens leave at one a second; 2000 tokens wait, and no more may."""
    c = core()
    c.arrive(0, "chat")
    for rid in range(1, 21):
        c.arrive(rid, "chat", principal=f"p{rid}", max_tok=90)
    for rid in range(3):
        c.now += S
        c.end(rid)
    for rid in (31, 32, 33):
        c.arrive(rid, "chat", principal=f"p{rid}", max_tok=90)
    assert c.view().classes[0].queued_tok == 2_000
    return c


def goes_on(c: Any, until_ns: int, rid: int = 3) -> int:
    """One ends each second until then; returns who is next to end."""
    while c.now + S <= until_ns:
        c.now += S
        c.end(rid)
        rid += 1
    c.now = until_ns
    return rid


def test_a_retry_at_the_hint_is_let_in(core: Any) -> None:
    c = full(core)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    goes_on(c, c.now + no.retry_after_ns)
    assert isinstance(c.arrive(50, "chat", principal="q", max_tok=90, ticket=no.ticket)[-1], Queue)
    assert c.refusal(51, "chat", principal="r", max_tok=90, ticket=no.ticket).ticket != no.ticket


def test_the_promise_holds_though_the_queue_drained_a_little_slower(core: Any) -> None:
    c = full(core)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    c.now += no.retry_after_ns  # nobody left meanwhile: 100 of the 2000 are the grace
    assert c.refusal(49, "chat", principal="r", max_tok=90).reason is Refused.TOKENS_FULL
    assert isinstance(c.arrive(50, "chat", principal="q", max_tok=90, ticket=no.ticket)[-1], Queue)


def test_the_room_that_comes_free_is_for_those_who_were_promised_it(core: Any) -> None:
    c = full(core)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    c.now += S
    c.end(3)
    assert c.view().classes[0].queued_tok == 1_900
    late = c.refusal(51, "chat", principal="r", max_tok=90)
    assert (late.reason, late.used) == (Refused.TOKENS_FULL, 1_900)
    assert "promised" in late.message
    c.now += no.retry_after_ns - S
    assert isinstance(c.arrive(50, "chat", principal="q", max_tok=90, ticket=no.ticket)[-1], Queue)


def test_a_newcomer_goes_in_where_a_seat_would_idle(core: Any, make: Any) -> None:
    c = full(core)
    c.refusal(50, "chat", principal="q", max_tok=90)
    c.tell(ev.PoolChanged(make.pool(seats=40)))
    assert c.view().queued == 0
    assert c.arrive(51, "chat", principal="r", max_tok=90) == [Grant(51)]


def test_who_is_too_early_is_told_the_rest_and_keeps_the_promise(core: Any) -> None:
    c = full(core)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    due_ns = c.now + no.retry_after_ns
    c.now = due_ns - EARLY_NS - 1
    again = c.refusal(50, "chat", principal="q", max_tok=90, ticket=no.ticket)
    assert (again.ticket, again.retry_after_ns) == (no.ticket, EARLY_NS + 1)
    c.now += 1
    assert isinstance(c.arrive(50, "chat", principal="q", max_tok=90, ticket=no.ticket)[-1], Queue)


def test_a_promise_is_no_ones_but_its_owners(core: Any) -> None:
    c = full(core)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    c.now += no.retry_after_ns
    for fields in ({"principal": "thief"}, {"max_tok": 91}, {"prompt_bytes": 1}):
        plain = {"principal": "q", "max_tok": 90, "ticket": no.ticket}
        told = c.refusal(60, "chat", **(plain | fields))
        assert told.reason is Refused.TOKENS_FULL, fields


def test_one_that_starts_at_once_needs_no_promise_and_uses_none(core: Any) -> None:
    c = full(core)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    for rid in (*range(3, 21), 31, 32, 33):
        c.end(rid)
    assert c.arrive(50, "chat", principal="q", max_tok=90, ticket=no.ticket) == [Grant(50)]


def test_one_that_waits_has_used_its_promise(core: Any) -> None:
    c = full(core)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    c.now += no.retry_after_ns
    c.arrive(50, "chat", principal="q", max_tok=90, ticket=no.ticket)
    c.tell(ev.Withdrawn(50))
    assert len(c.controller._book.tickets) == 0


def test_a_uid_that_is_refused_ten_thousand_times_moves_others_by_its_share(core: Any) -> None:
    c = full(core)
    alone = c.ask("chat", principal="q", max_tok=90).refusal.retry_after_ns
    for rid in range(10_000):
        effects = c.controller.handle(
            ev.Arrived(c.spec(100 + rid, "chat", principal="flood", max_tok=90)), c.now
        )
        assert effects[-1].refusal.reason is Refused.TOKENS_FULL
    c.controller.validate()
    after = c.ask("chat", principal="q", max_tok=90).refusal.retry_after_ns
    # Half of the queue of 2000, at 100 a second.
    assert alone == S
    assert after == S + 10 * S


def test_refusals_for_ones_own_quota_move_nobody(core: Any) -> None:
    c = full(core)
    for rid in range(40, 60):
        c.end(_running(c))
        c.arrive(rid, "chat", principal="flood", max_tok=90)
    before = c.view().classes[0].queued_tok
    for rid in range(100, 200):
        c.refusal(rid, "chat", principal="flood", max_tok=990)
    assert c.view().classes[0].queued_tok == before
    assert not c.controller._book.tickets.are_out("chat", c.now)


def _running(c: Any) -> int:
    (rid,) = (r.rid for r in c.controller._book.records.values() if r.held)
    return rid


def test_a_shutdown_promises_nothing(core: Any) -> None:
    c = full(core)
    for refuse in c.tell(ev.DrainStarted()):
        assert refuse.refusal.ticket is None
        assert refuse.refusal.retry_after_ns > 0


def test_without_a_measured_rate_there_is_no_hint(core: Any) -> None:
    c = core()
    c.arrive(0, "chat")
    for rid in range(1, 21):
        c.arrive(rid, "chat", principal=f"p{rid}", max_tok=90)
    no = c.refusal(50, "chat", principal="q", max_tok=90)
    assert (no.retry_after_ns, no.ticket) == (None, None)
