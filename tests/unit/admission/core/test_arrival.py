"""What a newcomer gets at the door: a grant, a place, or a typed no."""

from typing import Any

import pytest

from onegate.admission import events as ev
from onegate.admission.effects import Grant, Queue, Refuse
from onegate.admission.lifecycle import IllegalMove
from onegate.admission.model import Binding, PoolState, Refused, Reservation

S = 10**9


def test_granted_while_there_is_a_seat_queued_after_that(core: Any) -> None:
    c = core()
    assert c.arrive(1) == [Grant(1)]
    assert c.arrive(2) == [Queue(2)]


def test_a_rid_comes_once(core: Any) -> None:
    c = core()
    c.arrive(1)
    with pytest.raises(IllegalMove):
        c.arrive(1)
    c.tell(ev.Settled(1, 0, finished=True))
    with pytest.raises(IllegalMove):  # its seat is not free yet
        c.arrive(1)
    c.tell(ev.SeatFreed(1))
    assert c.arrive(1) == [Grant(1)]


@pytest.mark.parametrize("fields", [{"pool": "nowhere"}, {"class_": "nobody"}])
def test_what_no_shell_can_say_changes_nothing(core: Any, make: Any, fields: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, deadline_ns=S)
    before = c.view()
    c.now = 2 * S
    with pytest.raises(KeyError):
        c.tell(ev.Arrived(make.request(3, **({"class_": "batch"} | fields))))
    assert c.view() == before
    assert c.tell(ev.Tick()) != []


def test_a_deadline_that_has_passed_is_refused_at_the_door(core: Any) -> None:
    c = core()
    c.now = 5
    assert c.refusal(1, deadline_ns=5).reason is Refused.DEADLINE_EXCEEDED
    assert c.refusal(2, ttft_deadline_ns=5).reason is Refused.TTFT_DEADLINE_EXCEEDED
    assert c.arrive(3, deadline_ns=6, ttft_deadline_ns=6) == [Grant(3)]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (PoolState.RELEASED, Refused.RELEASED),
        (PoolState.FAILED, Refused.ENGINE_UNAVAILABLE),
        (PoolState.LOADING, None),
        (PoolState.COLD, None),
    ],
)
def test_a_pool_that_takes_nothing(
    core: Any, make: Any, state: PoolState, reason: Refused | None
) -> None:
    c = core(make.pool(state=state))
    *_, last = c.arrive(1)
    assert isinstance(last, Refuse if reason else Queue)
    if reason:
        assert last.refusal.reason is reason


# --- too large for ever ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reservation", "prompt_tok", "max_tok", "fits"),
    [
        (Reservation.GROW, 100, 100, True),
        (Reservation.GROW, 101, 100, False),
        (Reservation.FULL, 100, 101, False),
        (Reservation.PER_SLOT, 100, 100, True),
        (Reservation.PER_SLOT, 101, 100, False),
    ],
)
def test_more_than_the_context(
    core: Any, make: Any, reservation: Reservation, prompt_tok: int, max_tok: int, fits: bool
) -> None:
    c = core(make.pool(max_context_tok=200, reservation=reservation))
    if fits:
        assert c.arrive(1, prompt_tok=prompt_tok, max_tok=max_tok) == [Grant(1)]
    else:
        no = c.refusal(1, prompt_tok=prompt_tok, max_tok=max_tok)
        assert (no.reason, no.limit, no.used) == (Refused.TOO_LARGE, 200, 201)
        assert "context" in no.message
        assert "201" in no.message
        assert "200" in no.message


@pytest.mark.parametrize(
    ("reservation", "max_tok", "used"),
    [
        (Reservation.GROW, 150, None),
        (Reservation.GROW, 151, 176),  # whole blocks
        (Reservation.FULL, 151, 176),
        (Reservation.PER_SLOT, 5000, None),
    ],
)
def test_more_than_the_cache(
    core: Any, make: Any, reservation: Reservation, max_tok: int, used: int | None
) -> None:
    c = core(make.pool(kv_tok=160, block_tok=16, reservation=reservation))
    if used is None:
        assert c.arrive(1, max_tok=max_tok) == [Grant(1)]
    else:
        no = c.refusal(1, max_tok=max_tok)
        assert (no.reason, no.limit, no.used) == (Refused.TOO_LARGE, 160, used)
        assert "cache" in no.message


# --- room -----------------------------------------------------------------------------------------


def test_what_can_start_at_once_needs_no_room(core: Any) -> None:
    c = core()
    assert c.arrive(1, "chat", prompt_tok=5_000, max_tok=50_000) == [Grant(1)]


@pytest.mark.parametrize(
    ("fields", "limit"),
    [({"max_tok": 991}, 1_000), ({"class_": "batch", "max_tok": 8_991}, 9_000)],
)
def test_what_could_never_wait_is_too_large_when_it_would_have_to(
    core: Any, fields: Any, limit: int
) -> None:
    c = core()
    c.arrive(1)
    no = c.refusal(2, **({"class_": "chat"} | fields))
    assert (no.reason, no.limit, no.used) == (Refused.TOO_LARGE, limit, limit + 1)
    assert no.retry_after_ns is None
    assert no.limited_by is Binding.SEATS or no.limited_by is None


def test_more_than_the_whole_queue_is_too_large_too(core: Any) -> None:
    c = core(max_queued_tok=500)
    c.arrive(1)
    assert c.arrive(2, max_tok=490) == [Queue(2)]
    # Named before any bound that time would cure.
    no = c.refusal(3, max_tok=491)
    assert (no.reason, no.limit, no.used) == (Refused.TOO_LARGE, 500, 501)


def test_ones_own_share_of_the_class_in_tokens(core: Any) -> None:
    c = core()
    c.arrive(1)
    for rid in range(2, 11):
        assert c.arrive(rid, "chat", max_tok=90) == [Queue(rid)]
    assert c.arrive(11, "chat", max_tok=90) == [Queue(11)]
    no = c.refusal(12, "chat", max_tok=1)
    assert (no.reason, no.limit, no.used) == (Refused.PEER_QUOTA, 1_000, 1_000)
    assert "1000 tokens of yours are waiting, 1000 is the most" in no.message
    assert no.limited_by is Binding.SEATS
    assert c.arrive(13, "chat", principal="q") == [Queue(13)]
    assert c.arrive(14, "loop") == [Queue(14)], "each class has its own share"


def test_ones_own_share_of_the_places(core: Any) -> None:
    c = core(max_queued_requests=4)
    c.arrive(1)
    assert [c.arrive(rid, "chat")[-1] for rid in (2, 3)] == [Queue(2), Queue(3)]
    no = c.refusal(4, "chat")
    assert (no.reason, no.limit, no.used) == (Refused.PEER_QUOTA, 2, 2)
    assert "2 requests of yours" in no.message
    assert c.arrive(5, "chat", principal="q") == [Queue(5)]


def test_the_class_in_tokens(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, "chat", principal="q", max_tok=990)
    c.arrive(3, "chat", principal="r", max_tok=980)
    assert c.arrive(4, "chat", principal="s", prompt_tok=1, max_tok=9) == [Queue(4)]
    no = c.refusal(5, "chat", principal="t", prompt_tok=1, max_tok=0)
    assert (no.reason, no.limit, no.used) == (Refused.TOKENS_FULL, 2_000, 2_000)
    assert c.arrive(6, "loop") == [Queue(6)]


def test_all_classes_in_tokens_and_lower_ones_make_room(core: Any) -> None:
    c = core(max_queued_tok=3_000)
    c.arrive(1)
    for rid in range(2, 7):
        c.arrive(rid, "loop", principal=f"{rid}", max_tok=490)
    no = c.refusal(7, "batch", max_tok=491)
    assert (no.reason, no.limit, no.used) == (Refused.TOKENS_FULL, 3_000, 2_500)
    assert c.arrive(8, "batch", max_tok=490) == [Queue(8)]
    assert c.refusal(9, "batch", prompt_tok=1, max_tok=0).reason is Refused.TOKENS_FULL
    # What waits below its rank leaves for a newcomer, and the bound holds.
    left, queued = c.arrive(10, "loop", principal="z", max_tok=490)
    assert (left.rid, left.queued, left.refusal.reason) == (8, True, Refused.DISPLACED)
    assert queued == Queue(10)
    assert c.view().queued_tok == 3_000
    assert c.refusal(11, "loop", prompt_tok=1, max_tok=0).reason is Refused.TOKENS_FULL
    *left, queued = c.arrive(12, "chat", max_tok=990)
    assert ([no.rid for no in left], queued) == ([10, 6], Queue(12))
    assert c.view().queued_tok == 3_000


def test_the_memory_guard_makes_room_so_too(core: Any) -> None:
    c = core(max_queued_requests=5)
    c.arrive(1)
    for rid in range(2, 7):
        assert c.arrive(rid, "batch", principal=f"{rid}") == [Queue(rid)]
    no = c.refusal(7, "batch", principal="z")
    assert (no.reason, no.limit, no.used) == (Refused.CLASS_FULL, 5, 5)
    assert "5 requests are waiting" in no.message
    left, queued = c.arrive(8, "chat")
    assert (left.rid, left.refusal.reason, queued) == (6, Refused.DISPLACED, Queue(8))
    assert c.view().queued == 5


def test_per_slot_reserves_no_answer(core: Any, make: Any) -> None:
    c = core(make.pool(reservation=Reservation.PER_SLOT))
    c.arrive(1)
    c.arrive(2, "chat", prompt_tok=990, max_tok=9_000)
    assert c.view().classes[0].queued_tok == 990
    c.arrive(3, "chat", prompt_tok=0)
    assert c.view().classes[0].queued_tok == 991, "nothing waits for free"


def test_a_refusal_leaves_nothing(core: Any) -> None:
    c = core()
    c.arrive(1)
    before = c.view()
    c.refusal(2, max_tok=9_000)
    assert c.view() == before
    assert c.end(1) == []


def test_a_refusal_does_not_make_a_pool_load(core: Any, make: Any) -> None:
    c = core(make.pool("m", PoolState.COLD))
    no = c.arrive(1, max_tok=9_000)
    assert no == [Refuse(1, no[0].refusal, queued=False)]


def test_the_hint_comes_from_the_measured_rate(core: Any) -> None:
    c = core()
    c.arrive(0)
    for rid in range(1, 21):
        c.arrive(rid, "chat", principal=f"{rid}", max_tok=90)
    assert c.refusal(90, "chat", principal="z", max_tok=90).retry_after_ns is None
    for rid in range(3):
        c.now += S
        c.end(rid)
    for rid in (31, 32, 33):
        c.arrive(rid, "chat", principal=f"{rid}", max_tok=90)
    # 300 tokens in three seconds; 100 must leave, and each refused one comes after the last.
    for turn in (1, 2):
        no = c.refusal(90 + turn, "chat", principal="z", max_tok=90)
        assert turn * S <= no.retry_after_ns <= turn * S * 1.05
        assert no.ticket is not None
    assert c.ask("chat", principal="z", max_tok=90).refusal.retry_after_ns == 3 * S
    assert c.ask("chat", principal="z", max_tok=90).refusal.retry_after_ns == 3 * S


def test_time_that_has_passed_is_seen_before_the_newcomer(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, deadline_ns=S)
    c.now = 2 * S
    first, last = c.arrive(3)
    assert (first.rid, first.queued) == (2, True)
    assert last == Queue(3)


def test_what_it_lets_start_starts_though_the_newcomer_is_refused(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2, kv_tok=100))
    c.arrive(1, max_tok=60)
    c.arrive(2, max_tok=80, deadline_ns=S)
    c.arrive(3)
    c.now = S
    expired, granted, refused = c.arrive(4, max_tok=100_000)
    assert (expired.rid, granted, refused.rid) == (2, Grant(3), 4)
