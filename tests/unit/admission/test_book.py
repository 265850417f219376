"""The core's state: who may start, what refuses a newcomer, and what is wrong with it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission.line import Member
from onegate.admission.model import Binding, PoolState, Refused, Reservation
from onegate.admission.queue import Backpressure

S = 10**9
NOW = 2 * S


@pytest.fixture
def book(
    make_book: Callable[..., Any], class_spec: Callable[..., Any], pool_spec: Callable[..., Any]
) -> Any:
    """Three classes, two pools with one seat each."""
    return make_book(
        (
            class_spec(name="batch", rank=2, floor_share=0.1),
            class_spec(name="chat", rank=0),
            class_spec(name="loop", rank=1, waits_when_closed=True),
        ),
        (pool_spec("a", max_seqs=1), pool_spec("b", max_seqs=1)),
    )


# --- classes and pools ----------------------------------------------------------------------------


def test_classes_stand_in_the_order_of_their_ranks(book: Any) -> None:
    assert list(book.queues) == ["chat", "loop", "batch"]
    assert [queue.spec.rank for queue in book.queues.values()] == [0, 1, 2]
    assert list(book.floors) == ["batch"]


def test_new_limits_of_a_class_keep_what_waits_and_its_rate(
    book: Any, class_spec: Callable[..., Any], request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "loop"))
    queues = dict(book.queues)
    book.floors["batch"].earn(100, 100)
    book.set_classes(
        (
            class_spec(name="loop", rank=0, max_queued_tok=7),
            class_spec(name="chat", rank=1, floor_share=0.3),
            class_spec(name="batch", rank=2, floor_share=0.5),
        )
    )
    assert list(book.queues) == ["loop", "chat", "batch"]
    assert all(book.queues[name] is queue for name, queue in queues.items())
    assert book.queues["loop"].spec.max_queued_tok == 7
    assert len(book.queues["loop"]) == 1
    assert (book.floors["batch"].share, book.floors["batch"].credit_tok) == (0.5, 10)
    assert book.floors["chat"].share == 0.3


def test_a_floor_ends_with_its_share(book: Any, class_spec: Callable[..., Any]) -> None:
    book.set_classes(
        (
            class_spec(name="chat", rank=0),
            class_spec(name="loop", rank=1),
            class_spec(name="batch", rank=2),
        )
    )
    assert book.floors == {}


def test_a_class_may_come_and_none_may_go(book: Any, class_spec: Callable[..., Any]) -> None:
    specs = [queue.spec for queue in book.queues.values()]
    book.set_classes((*specs, class_spec(name="night", rank=3)))
    assert list(book.queues) == ["chat", "loop", "batch", "night"]
    with pytest.raises(AssertionError, match="cannot be removed"):
        book.set_classes(tuple(specs))
    assert "night" in book.queues


def test_no_two_classes_have_one_rank(
    make_book: Callable[..., Any], class_spec: Callable[..., Any]
) -> None:
    with pytest.raises(AssertionError, match="share a rank"):
        make_book((class_spec(name="chat", rank=1), class_spec(name="loop", rank=1)))


@pytest.mark.parametrize("state", PoolState)
def test_it_is_known_whether_all_pools_are_ready(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any], state: PoolState
) -> None:
    book = make_book(pools=(pool_spec("a"), pool_spec("b", state)))
    assert book.all_ready is (state is PoolState.READY)
    book.pools["b"].become(pool_spec("b"), 0)
    book.pools_changed()
    assert book.all_ready


def test_tokens_of_all_classes_add_up(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "chat", prompt_tok=5))
    wait(book, request_spec(2, "batch", "b", prompt_tok=50))
    assert book.queued_tok == 75


# --- who waits ------------------------------------------------------------------------------------


def test_only_what_waits_for_the_pool_in_an_open_class_waits(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "loop"))
    assert book.waits("loop", "a")
    assert not book.waits("loop", "b")
    assert not book.waits("chat", "a")
    book.closed["loop"] = None
    assert not book.waits("loop", "a")


def test_somebody_better_waits(book: Any, request_spec: Callable[..., Any], wait: Any) -> None:
    wait(book, request_spec(1, "loop"))
    assert [book.better_waits(name, "a") for name in book.queues] == [False, False, True]
    assert not book.better_waits("batch", "b")
    book.closed["loop"] = None
    assert not book.better_waits("batch", "a")


def test_nobody_is_better_than_a_class_that_does_not_exist(book: Any) -> None:
    with pytest.raises(KeyError):
        book.better_waits("nothing", "a")


# --- who is next ----------------------------------------------------------------------------------


def test_the_floor_is_heeded_unless_asked_for_rank_alone(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    chat, batch = wait(book, request_spec(1)), wait(book, request_spec(2, "batch"))
    book.floors["batch"].repay(20)
    assert book.next_for(book.pools["a"]).record is batch
    assert book.best_for(book.pools["a"]).record is chat


def test_a_quantum_is_that_of_the_limits(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
) -> None:
    classes = (class_spec(name="chat"), class_spec(name="batch", rank=1, floor_share=0.1))
    book = make_book(classes, floor_quantum_tok=15)
    wait(book, request_spec(1))
    batch = wait(book, request_spec(2, "batch", prompt_tok=500))
    book.floors["batch"].repay(15)
    assert book.next_for(book.pools["a"]).record is batch


def test_nobody_starts_where_nobody_waits(book: Any) -> None:
    assert book.next_to_start() is None


@pytest.mark.parametrize(("chat_pool", "batch_pool"), [("a", "b"), ("b", "a")])
def test_the_best_of_all_pools_starts_first(
    book: Any, request_spec: Callable[..., Any], wait: Any, chat_pool: str, batch_pool: str
) -> None:
    wait(book, request_spec(1, "batch", batch_pool))
    chat = wait(book, request_spec(2, "chat", chat_pool))
    assert book.next_to_start().record is chat


def test_a_full_pool_does_not_hold_up_another(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    wait(book, request_spec(2))
    batch = wait(book, request_spec(3, "batch", "b"))
    assert book.next_to_start().record is batch


def test_what_does_not_fit_does_not_start_nor_what_is_behind_it(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
    seat: Any,
) -> None:
    book = make_book(pools=(pool_spec("a", kv_tok=100),))
    seat(book, request_spec(1))
    wait(book, request_spec(2, prompt_tok=71))
    wait(book, request_spec(3, prompt_tok=1))
    assert book.next_to_start() is None
    book.records[2].prompt_tok = 70
    assert book.next_to_start().record.rid == 2


def test_while_a_switch_is_under_way_nothing_starts_elsewhere(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1))
    batch = wait(book, request_spec(2, "batch", "b"))
    book.switching_to = "b"
    assert book.next_to_start().record is batch
    assert book.in_the_way("chat", "a", 1, 1) is Binding.LOADING
    assert book.in_the_way("chat", "b", 1, 1) is None


# --- what is in the way ---------------------------------------------------------------------------


def test_what_is_in_the_way_of_a_request(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> None:
    book = make_book(
        (class_spec(name="chat"), class_spec(name="batch", rank=1)),
        (pool_spec("a", kv_tok=100, max_step_tok=50),),
        max_in_flight=2,
    )
    seat(book, request_spec(1, "batch", prompt_tok=30))
    assert book.in_the_way("batch", "a", 20, 10) is None
    assert book.in_the_way("batch", "a", 20, 41) is Binding.KV
    assert book.in_the_way("batch", "a", 21, 10) is Binding.STEP_TOK
    assert book.in_the_way("chat", "a", 21, 10) is None
    seat(book, request_spec(2))
    assert book.in_the_way("chat", "a", 1, 1) is Binding.IN_FLIGHT


def test_nothing_limits_a_pool_for_which_nobody_waits(book: Any) -> None:
    assert book.limited_by(book.pools["a"]) is None


def test_a_pool_is_limited_by_what_its_next_meets(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    assert book.limited_by(book.pools["a"]) is None
    wait(book, request_spec(2))
    assert book.limited_by(book.pools["a"]) is Binding.SEATS
    assert book.limited_by(book.pools["b"]) is None


def test_nothing_limits_who_could_start(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1))
    assert book.limited_by(book.pools["a"]) is None


def test_only_closed_classes_wait(book: Any, request_spec: Callable[..., Any], wait: Any) -> None:
    wait(book, request_spec(1, "loop"))
    book.closed["loop"] = None
    assert book.limited_by(book.pools["a"]) is Binding.CLOSED
    assert book.limited_by(book.pools["b"]) is None


def floor_goes_first(book: Any, request_spec: Any, wait: Any) -> None:
    """Batch, which does not fit, holds the place of chat, which would."""
    wait(book, request_spec(11, "chat"))
    wait(book, request_spec(12, "batch", prompt_tok=500))
    book.floors["batch"].repay(100)


def test_the_floor_limits_whoever_could_start_without_it(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
    seat: Any,
) -> None:
    classes = (class_spec(name="chat"), class_spec(name="batch", rank=1, floor_share=0.1))
    book = make_book(classes, (pool_spec("a", max_seqs=2, kv_tok=100),))
    seat(book, request_spec(1))
    floor_goes_first(book, request_spec, wait)
    assert book.limited_by(book.pools["a"]) is Binding.FLOOR


def test_the_floor_does_not_limit_who_could_not_start_anyway(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    floor_goes_first(book, request_spec, wait)
    assert book.limited_by(book.pools["a"]) is Binding.SEATS


# --- newcomers ------------------------------------------------------------------------------------


def door(book: Any, class_: str = "chat", prompt_tok: int = 10, max_tok: int = 10) -> Any:
    return book.door(class_, "a", prompt_tok, max_tok)


def test_the_door_is_open(book: Any) -> None:
    assert door(book) is None


def test_a_daemon_that_shuts_down_takes_nobody(book: Any) -> None:
    book.draining = True
    assert door(book).reason is Refused.SHUTTING_DOWN


def test_a_closed_class_takes_nobody_unless_it_lets_them_wait(book: Any) -> None:
    book.closed.update({"chat": None, "loop": None})
    refusal = door(book, "chat")
    assert (refusal.reason, refusal.limited_by) == (Refused.PAUSED, Binding.CLOSED)
    assert "chat" in refusal.message
    assert door(book, "loop") is None
    assert door(book, "batch") is None


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (PoolState.RELEASED, Refused.RELEASED),
        (PoolState.FAILED, Refused.ENGINE_UNAVAILABLE),
        (PoolState.COLD, None),
        (PoolState.LOADING, None),
    ],
)
def test_a_pool_that_will_not_come_takes_nobody(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    state: PoolState,
    reason: Refused | None,
) -> None:
    refusal = door(make_book(pools=(pool_spec("a", state),)))
    assert (None if refusal is None else refusal.reason) is reason
    assert refusal is None or "model a" in refusal.message


def test_a_request_fits_into_the_context(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    book = make_book(pools=(pool_spec("a", max_context_tok=100),))
    assert door(book, prompt_tok=90) is None
    refusal = door(book, prompt_tok=91)
    assert (refusal.reason, refusal.limit, refusal.used) == (Refused.TOO_LARGE, 100, 101)
    assert "need 101 tokens, the model's context holds 100" in refusal.message


def test_a_request_fits_into_the_whole_cache(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    book = make_book(pools=(pool_spec("a", kv_tok=64, block_tok=16),))
    assert door(book, prompt_tok=54) is None
    refusal = door(book, prompt_tok=55)
    assert (refusal.reason, refusal.limit, refusal.used) == (Refused.TOO_LARGE, 64, 80)
    assert "the engine's cache holds 64" in refusal.message


def test_a_request_that_fills_the_context_must_fit_into_the_cache_too(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    book = make_book(pools=(pool_spec("a", max_context_tok=100, kv_tok=64),))
    assert door(book, prompt_tok=90).limit == 64


def test_a_request_that_is_too_long_for_both_hears_of_the_context(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    refusal = door(make_book(pools=(pool_spec("a", kv_tok=64),)), prompt_tok=10**6)
    assert refusal.limit == 1000


def test_a_slot_has_no_cache_to_fit_into(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    spec = pool_spec("a", kv_tok=64, reservation=Reservation.PER_SLOT)
    assert door(make_book(pools=(spec,)), prompt_tok=500) is None


@pytest.fixture
def crowded(make_book: Callable[..., Any], class_spec: Callable[..., Any]) -> Callable[..., Any]:
    """Two classes under one bound, nobody's share smaller than all."""

    def build(**limits: Any) -> Any:
        classes = (
            class_spec(name="chat", rank=0, per_principal_share=1.0),
            class_spec(name="batch", rank=1, per_principal_share=1.0),
        )
        return make_book(classes, **limits)

    return build


def test_what_is_larger_than_all_that_may_wait_is_too_large(crowded: Any) -> None:
    book = crowded(max_queued_tok=100)
    assert book.room("chat", "alice", 100) == ()
    assert book.room("chat", "alice", 101) == Backpressure(
        Refused.TOO_LARGE, "tokens", 100, 101, 0.0
    )


def test_the_bounds_of_the_class_hold(
    crowded: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    book = crowded()
    wait(book, request_spec(1, prompt_tok=970))
    full = book.room("chat", "bob", 21)
    assert (full.reason, full.limit) == (Refused.TOKENS_FULL, 1000)


def test_tokens_of_all_classes_count_and_lower_ones_leave(
    crowded: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    book = crowded(max_queued_tok=100)
    wait(book, request_spec(1, "chat", prompt_tok=20))
    wait(book, request_spec(2, "batch", prompt_tok=20))
    assert book.room("batch", "bob", 40) == ()
    assert book.room("batch", "bob", 41) == Backpressure(
        Refused.TOKENS_FULL, "tokens", 100, 60, excess_tok=1
    )
    assert book.room("chat", "bob", 40) == ()
    assert book.room("chat", "bob", 41) == (2,)
    assert book.room("chat", "bob", 60) == (2,)
    # All that is lower would not be enough: nobody leaves for nothing.
    assert book.room("chat", "bob", 71) == Backpressure(
        Refused.TOKENS_FULL, "tokens", 100, 60, excess_tok=31
    )


def test_without_displacement_nobody_leaves(
    crowded: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    book = crowded(max_queued_tok=100, displaces=False)
    wait(book, request_spec(1, "batch", prompt_tok=50))
    assert book.room("chat", "bob", 40) == ()
    assert book.room("chat", "bob", 41).reason is Refused.TOKENS_FULL


def test_requests_of_all_classes_count_and_lower_ones_leave(
    crowded: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    book = crowded(max_queued_requests=3)
    for rid, class_ in enumerate(("chat", "batch", "batch")):
        assert book.room("batch", "bob", 5) == ()
        wait(book, request_spec(rid, class_, prompt_tok=20))
    assert book.room("batch", "bob", 5) == Backpressure(
        Refused.CLASS_FULL, "requests", 3, 3, excess_tok=30.0
    )
    assert book.room("chat", "bob", 5) == (2,)


def test_a_promise_makes_the_whole_queue_wider_but_not_its_memory(
    crowded: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    book = crowded(max_queued_tok=100, max_queued_requests=2)
    wait(book, request_spec(1, "chat", prompt_tok=80))
    assert book.room("chat", "bob", 11).reason is Refused.TOKENS_FULL
    assert book.room("chat", "bob", 35, 0.25) == ()
    full = book.room("chat", "bob", 36, 0.25)
    assert (full.reason, full.limit, full.excess_tok) == (Refused.TOKENS_FULL, 100, 1)
    wait(book, request_spec(2, "chat", prompt_tok=1, max_tok=1))
    assert book.room("chat", "bob", 1, 0.25).reason is Refused.CLASS_FULL


def test_the_lowest_class_leaves_first_and_no_more_than_need_be(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
) -> None:
    classes = [
        class_spec(name=name, rank=rank, per_principal_share=1.0)
        for rank, name in enumerate(("chat", "loop", "batch"))
    ]
    book = make_book(tuple(classes), max_queued_tok=120, max_queued_requests=5)
    for rid, class_ in enumerate(("loop", "batch", "batch", "loop"), 1):
        wait(book, request_spec(rid, class_, prompt_tok=20))
    assert book.room("chat", "bob", 30) == (3,)
    assert book.room("chat", "bob", 31) == (3, 2)
    assert book.room("chat", "bob", 61) == (3, 2, 4)
    assert book.room("chat", "bob", 120) == (3, 2, 4, 1)
    assert book.room("loop", "bob", 30) == (3,)
    wait(book, request_spec(5, "chat", prompt_tok=0, max_tok=1))
    assert book.room("chat", "bob", 1) == (3,), "the guard of memory"


# --- steps, held places, kept seats ---------------------------------------------------------------


class FixedPace:
    """A step takes 10 ms for each sequence."""

    def step_ns(self, *, decode_seqs: int, prefill_tok: int, now_ns: int) -> float | None:
        return decode_seqs * 0.01 * S


@pytest.fixture
def paced(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> Any:
    """Chat wants 25 ms, and one of it runs."""
    classes = (
        class_spec(name="chat", itl_target_ns=S // 40),
        class_spec(name="batch", rank=1, floor_share=0.1),
    )
    book = make_book(classes, (pool_spec("a", max_seqs=9),))
    book.pools["a"].pace = FixedPace()
    seat(book, request_spec(1))
    return book


def test_lower_classes_get_the_seats_that_steps_allow(
    paced: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    assert paced.in_the_way("batch", "a", 1, 1) is None
    seat(paced, request_spec(2, "batch"))
    assert paced.in_the_way("batch", "a", 1, 1) is Binding.ITL
    assert paced.in_the_way("chat", "a", 1, 1) is None
    wait(paced, request_spec(3, "batch"))
    assert paced.next_to_start() is None
    assert paced.limited_by(paced.pools["a"]) is Binding.ITL
    paced.queues["chat"].running = 0
    assert paced.next_to_start().record.rid == 3


def test_steps_of_another_pool_are_its_own(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> None:
    classes = (class_spec(name="chat", itl_target_ns=S // 40), class_spec(name="batch", rank=1))
    book = make_book(classes, (pool_spec("a", max_seqs=9), pool_spec("b", max_seqs=9)))
    for pool in book.pools.values():
        pool.pace = FixedPace()
    seat(book, request_spec(1, "chat", pool="b"))
    for rid in (2, 3):
        seat(book, request_spec(rid, "batch"))
    assert book.in_the_way("batch", "a", 1, 1) is None
    seat(book, request_spec(4, "batch", pool="b"))
    assert book.in_the_way("batch", "b", 1, 1) is Binding.ITL


def test_a_step_that_is_just_as_long_is_allowed(paced: Any, request_spec: Any, seat: Any) -> None:
    paced.queues["chat"].spec = replace(paced.queues["chat"].spec, itl_target_ns=S // 50)
    assert paced.in_the_way("batch", "a", 1, 1) is None
    seat(paced, request_spec(2, "batch"))
    paced.queues["chat"].spec = replace(paced.queues["chat"].spec, itl_target_ns=None)
    assert paced.in_the_way("batch", "a", 1, 1) is None


def test_a_floor_is_not_bound_by_steps(
    paced: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(paced, request_spec(2, "batch"))
    wait(paced, request_spec(3, "batch"))
    wait(paced, request_spec(4, "chat", prompt_tok=900))
    paced.floors["batch"].repay(1000)
    assert paced.next_to_start().record.rid == 3


def held(book: Any, class_: str = "chat") -> Any:
    return book.queues[class_]._lines["a"]._held


def test_whoever_is_next_and_finds_no_cache_is_held(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
    seat: Any,
) -> None:
    book = make_book(pools=(pool_spec("a", kv_tok=100),))
    seat(book, request_spec(1))
    wait(book, request_spec(2, prompt_tok=71))
    book.hold(book.heads())
    assert held(book) == 2


def test_nobody_is_held_who_could_start_or_for_a_seat(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
    seat: Any,
) -> None:
    book = make_book(pools=(pool_spec("a", max_seqs=1, kv_tok=100),))
    wait(book, request_spec(2, prompt_tok=71))
    book.hold(book.heads())
    assert held(book) is None
    seat(book, request_spec(1))
    book.hold(book.heads())
    assert held(book) is None


@pytest.mark.parametrize(
    ("kept", "chats", "loops", "left"),
    [
        ([0], 1, 0, [0]),
        ([0], 0, 1, []),
        ([1], 0, 1, [1]),
        ([1], 1, 0, [1]),
        ([0, 1], 1, 1, [0, 1]),
        ([0, 1], 0, 1, [0][:0]),
        ([0, 0, 1], 1, 1, [0]),
        ([1, 1], 1, 0, [1]),
    ],
)
def test_seats_are_kept_for_those_who_wait(
    book: Any,
    request_spec: Callable[..., Any],
    wait: Any,
    kept: list[int],
    chats: int,
    loops: int,
    left: list[int],
) -> None:
    for rid in range(chats):
        wait(book, request_spec(rid, "chat"))
    for rid in range(loops):
        wait(book, request_spec(10 + rid, "loop"))
    wait(book, request_spec(20, "batch"))
    wait(book, request_spec(21, "chat", "b"))
    book.pools["a"].kept = kept
    book.give_up_kept()
    assert book.pools["a"].kept == left


def test_no_seat_is_kept_for_a_closed_class(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "chat"))
    book.pools["a"].kept = [0]
    book.closed["chat"] = None
    book.give_up_kept()
    assert book.pools["a"].kept == []


def test_a_floor_that_may_not_begin_leaves_its_place_to_the_best(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    chat, batch = wait(book, request_spec(1)), wait(book, request_spec(2, "batch"))
    book.floors["batch"].repay(20)
    pool = book.pools["a"]
    assert book.next_for(pool).record is batch
    pool.kept = [0]
    assert book.next_for(pool).record is chat


# --- how long -------------------------------------------------------------------------------------


def drains(book: Any, class_: str, tok: int) -> None:
    """So many tokens in the two seconds before `NOW`."""
    book.queues[class_].rate.backlog(True, 0)
    book.queues[class_].rate.released(tok, S)


def test_a_wait_is_unknown_without_a_rate(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "loop"))
    drains(book, "chat", 100)
    assert book.expected_wait_ns("loop", "a", 0, NOW) is None


def test_a_wait_is_the_tokens_up_to_ones_place_over_the_rate(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    for rid in (1, 2):
        wait(book, request_spec(rid, "loop"))
    drains(book, "loop", 40)
    assert [book.expected_wait_ns("loop", "a", place, NOW) for place in (0, 1)] == [S, 2 * S]


def test_better_ranks_count_with_what_they_wait_for_and_what_they_are_given(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "chat"))
    wait(book, request_spec(2, "loop"))
    wait(book, request_spec(3, "batch"))
    drains(book, "loop", 40)
    assert book.expected_wait_ns("loop", "a", 0, NOW) == 2 * S
    assert book.expected_wait_ns("loop", "b", 0, NOW) == S
    drains(book, "chat", 40)
    assert book.expected_wait_ns("loop", "a", 0, NOW) == S


def test_a_closed_better_class_is_not_waited_for(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "chat"))
    wait(book, request_spec(2, "loop"))
    drains(book, "loop", 40)
    book.closed["chat"] = None
    assert book.expected_wait_ns("loop", "a", 0, NOW) == S


def test_nobody_knows_how_long_a_closed_class_waits(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "loop"))
    drains(book, "loop", 40)
    book.closed["loop"] = None
    assert book.expected_wait_ns("loop", "a", 0, NOW) is None


# --- invariants -----------------------------------------------------------------------------------


@pytest.fixture
def full_book(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any, settle: Any
) -> Any:
    """1 runs, 2 waits for its seat, 3 is over and its seat not yet free."""
    seat(book, request_spec(1))
    wait(book, request_spec(2))
    settle(book, seat(book, request_spec(3, "batch", "b")))
    return book


def put(book: Any, class_: str, rid: int, of: int) -> None:
    """`rid` stands in that queue, on the account of request `of`."""
    book.queues[class_].add(Member(rid, rid, book.records[of].account, 5), "a")


def wait_twice(book: Any) -> None:
    put(book, "loop", 2, of=2)


def lose_a_total(book: Any) -> None:
    book.queues["chat"].queued_tok += 1


def lose_a_permit_of_a_class(book: Any) -> None:
    book.queues["loop"].running = 1


def count_a_permit_of_another_class(book: Any) -> None:
    book.queues["chat"].running, book.queues["loop"].running = 0, 1


def wait_unknown(book: Any) -> None:
    put(book, "loop", 9, of=1)
    book.queued += 1


def lose_count_of_waiting(book: Any) -> None:
    book.queued += 1


def lose_count_of_permits(book: Any) -> None:
    book.in_flight += 1


def confuse_names(book: Any) -> None:
    book.records[4] = book.records.pop(1)


def wait_nowhere(book: Any) -> None:
    book.queues["chat"].remove(2, "a")
    book.queued -= 1


def wait_elsewhere(book: Any) -> None:
    book.queues["chat"].remove(2, "a")
    put(book, "loop", 2, of=2)


def wait_with_a_seat(book: Any) -> None:
    book.pools["a"].ledger.charge(2, rank=0, kv_tok=0, prompt_tok=0)


def wait_with_a_prepaid_quantum(book: Any) -> None:
    book.records[2].prepaid_tok = 1


def run_and_wait(book: Any) -> None:
    put(book, "chat", 1, of=1)
    book.queued += 1


def be_over_and_remembered(book: Any) -> None:
    book.pools["b"].ledger.free(3)


def be_over_with_a_prepaid_quantum(book: Any) -> None:
    book.records[3].prepaid_tok = 1


def forget_to_quarantine(book: Any) -> None:
    book.pools["b"].ledger.free(3)
    book.pools["b"].ledger.charge(3, rank=2, kv_tok=0, prompt_tok=0)


def sit_in_another_pool(book: Any) -> None:
    book.pools["b"].ledger.charge(1, rank=0, kv_tok=0, prompt_tok=0)


def close_nothing(book: Any) -> None:
    book.closed["nothing"] = None


def owe_nobody(book: Any) -> None:
    book.floors["nothing"] = book.floors["batch"]


def lose_count_of_the_stopped(book: Any) -> None:
    book.pools["a"].stopping = 1


def keep_a_seat_for_nobody(book: Any) -> None:
    book.pools["b"].kept = [0]


def owe_one_that_does_not_wait(book: Any) -> None:
    book.floors["batch"].credit_tok = 1


def lose_an_account(book: Any) -> None:
    book.queues["chat"].accounts.leave(book.records[1].account)


def lose_a_promise(book: Any) -> None:
    book.tickets._live["chat-1"] = None


def leave_a_seat_idle(book: Any) -> None:
    book.pools["a"].ledger.free(1)


@pytest.mark.parametrize(
    "spoil",
    [
        wait_twice,
        lose_a_total,
        lose_a_permit_of_a_class,
        count_a_permit_of_another_class,
        wait_unknown,
        lose_count_of_waiting,
        lose_count_of_permits,
        confuse_names,
        wait_nowhere,
        wait_elsewhere,
        wait_with_a_seat,
        wait_with_a_prepaid_quantum,
        run_and_wait,
        be_over_and_remembered,
        be_over_with_a_prepaid_quantum,
        forget_to_quarantine,
        sit_in_another_pool,
        close_nothing,
        owe_nobody,
        lose_count_of_the_stopped,
        keep_a_seat_for_nobody,
        owe_one_that_does_not_wait,
        lose_an_account,
        lose_a_promise,
        leave_a_seat_idle,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_the_check_sees_what_is_wrong(full_book: Any, spoil: Callable[[Any], None]) -> None:
    full_book.check()
    spoil(full_book)
    with pytest.raises(AssertionError):
        full_book.check()


def test_a_permit_whose_seat_the_engine_gave_back_early_is_fine(full_book: Any) -> None:
    full_book.pools["a"].ledger.free(1)
    full_book.queues["chat"].remove(2, "a")
    full_book.queued -= 1
    full_book.queues["chat"].accounts.leave(full_book.records.pop(2).account)
    full_book.check()


def test_all_may_wait_in_closed_classes_with_floors(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
) -> None:
    book = make_book((class_spec(floor_share=0.1),))
    wait(book, request_spec(1))
    book.closed["chat"] = None
    book.check()
