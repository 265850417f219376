"""What the core says about itself, and that asking changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.admission import views
from onegate.admission.model import (
    Binding,
    ClassView,
    PoolState,
    PoolView,
    Refused,
    Reservation,
    Standing,
    StepView,
    Verdict,
    View,
)
from onegate.admission.refusals import DRAIN_BASE_NS

S = 10**9
NOW = 2 * S


@pytest.fixture
def book(
    make_book: Callable[..., Any], class_spec: Callable[..., Any], pool_spec: Callable[..., Any]
) -> Any:
    """Three classes, two pools with one seat each."""
    return make_book(
        (
            class_spec(name="chat", rank=0),
            class_spec(name="loop", rank=1, waits_when_closed=True),
            class_spec(name="batch", rank=2, floor_share=0.1),
        ),
        (pool_spec("a", max_seqs=1), pool_spec("b", max_seqs=1)),
    )


def drains(book: Any, class_: str, tok: int) -> None:
    """So many tokens in the two seconds before `NOW`."""
    book.queues[class_].rate.backlog(True, 0)
    book.queues[class_].rate.released(tok, S)


# --- standing -------------------------------------------------------------------------------------


def test_only_who_waits_stands_somewhere(
    book: Any, request_spec: Callable[..., Any], seat: Any
) -> None:
    assert views.standing(book, 1, NOW) is None
    seat(book, request_spec(1))
    assert views.standing(book, 1, NOW) is None


def test_who_is_first_has_nobody_ahead(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    wait(book, request_spec(2))
    assert views.standing(book, 2, NOW) == Standing(1, {}, Binding.SEATS)


def test_better_ranks_and_the_own_class_stand_ahead(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    for rid in (2, 3, 4):
        wait(book, request_spec(rid, "loop"))
    wait(book, request_spec(5, "batch"))
    wait(book, request_spec(6, "chat"))
    wait(book, request_spec(7, "chat", "b"))
    standing = views.standing(book, 4, NOW)
    assert standing == Standing(4, {"chat": 1, "loop": 2}, Binding.SEATS)
    assert views.standing(book, 5, NOW) == Standing(5, {"chat": 1, "loop": 3}, Binding.SEATS)


def test_a_closed_better_class_is_not_ahead(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1, "chat"))
    wait(book, request_spec(2, "loop"))
    book.closed["chat"] = None
    standing = views.standing(book, 2, NOW)
    assert standing is not None
    assert (standing.position, standing.ahead) == (1, {})


@pytest.mark.parametrize(("until_ns", "opens_in_ns"), [(5 * S, 3 * S), (S, 0), (None, None)])
def test_who_waits_in_a_closed_class_learns_when_it_opens(
    book: Any,
    request_spec: Callable[..., Any],
    wait: Any,
    until_ns: int | None,
    opens_in_ns: int | None,
) -> None:
    for rid in (1, 2):
        wait(book, request_spec(rid, "loop"))
    drains(book, "loop", 40)
    book.closed["loop"] = until_ns
    assert views.standing(book, 2, NOW) == Standing(
        2, {"loop": 1}, Binding.CLOSED, opens_in_ns=opens_in_ns
    )


def test_a_closed_class_is_limited_by_that_whatever_else_is_in_the_way(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    wait(book, request_spec(2, "chat"))
    wait(book, request_spec(3, "loop"))
    book.closed["loop"] = None
    standing = views.standing(book, 3, NOW)
    assert standing is not None
    assert standing.limited_by is Binding.CLOSED
    assert ask(book, "loop").limited_by is Binding.CLOSED


def test_a_standing_has_the_expected_wait(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    for rid in (2, 3):
        wait(book, request_spec(rid, "loop"))
    drains(book, "loop", 40)
    waits = [views.standing(book, rid, NOW) for rid in (2, 3)]
    assert [standing.expected_wait_ns for standing in waits if standing] == [S, 2 * S]


# --- asking ---------------------------------------------------------------------------------------


def ask(book: Any, class_: str = "chat", **fields: Any) -> Verdict:
    plain: dict[str, Any] = {"pool": "a", "principal": "alice", "prompt_tok": 10, "max_tok": 10}
    seen = views.view(book, NOW), dict(book.records), dict(book.tickets._clocks)
    verdict = views.ask(book, class_=class_, now_ns=NOW, **(plain | fields))
    assert seen == (
        views.view(book, NOW),
        book.records,
        book.tickets._clocks,
    ), "asking changed something"
    assert len(book.tickets) == 0
    return verdict


def test_what_could_start_is_told_so(book: Any) -> None:
    assert ask(book) == Verdict(0)


def test_what_is_refused_at_the_door_is_told_so(book: Any) -> None:
    book.draining = True
    verdict = ask(book)
    assert verdict.refusal is not None
    assert verdict.refusal.reason is Refused.SHUTTING_DOWN
    assert verdict.refusal.retry_after_ns == DRAIN_BASE_NS
    assert (verdict.position, verdict.limited_by) == (0, None)


def test_what_would_wait_is_told_where_and_how_long(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    wait(book, request_spec(2))
    wait(book, request_spec(3, "loop"))
    drains(book, "loop", 40)
    assert ask(book, "loop") == Verdict(3, Binding.SEATS, expected_wait_ns=3 * S)
    assert ask(book, "loop", pool="b") == Verdict(0)


def test_what_would_wait_behind_nobody_is_still_limited(
    book: Any, request_spec: Callable[..., Any], seat: Any
) -> None:
    seat(book, request_spec(1))
    assert ask(book) == Verdict(1, Binding.SEATS)


def test_a_better_class_would_start_before_those_who_wait(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
    seat: Any,
) -> None:
    classes = (class_spec(name="chat", rank=0), class_spec(name="batch", rank=1))
    book = make_book(classes, (pool_spec("a", kv_tok=100),))
    seat(book, request_spec(1))
    wait(book, request_spec(2, "batch", prompt_tok=80))
    assert ask(book, "chat") == Verdict(0)
    assert ask(book, "batch", prompt_tok=1) == Verdict(2, Binding.KV)


def test_a_request_of_that_size_may_not_fit_where_a_smaller_would(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> None:
    book = make_book(pools=(pool_spec("a", kv_tok=100),))
    seat(book, request_spec(1))
    assert ask(book, prompt_tok=70) == Verdict(0)
    assert ask(book, prompt_tok=71) == Verdict(1, Binding.KV)


def test_a_class_that_lets_newcomers_wait_while_closed_says_closed(book: Any) -> None:
    book.closed["loop"] = 5 * S
    assert ask(book, "loop") == Verdict(1, Binding.CLOSED)


def test_who_comes_first_starts_first(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    wait(book, request_spec(1))
    assert ask(book, "loop").position == 2


def test_another_pool_may_be_cold(
    make_book: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    book = make_book(pools=(pool_spec("a", PoolState.COLD),))
    assert ask(book) == Verdict(1, Binding.LOADING)


def test_what_finds_no_room_is_told_so_and_pushes_nobody_back(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    wait(book, request_spec(2, "loop", prompt_tok=470))
    drains(book, "loop", 40)
    for _ in range(2):
        verdict = ask(book, "loop", prompt_tok=20)
        assert verdict.refusal is not None
        assert (verdict.refusal.reason, verdict.refusal.limit) == (Refused.PEER_QUOTA, 500)
        assert verdict.refusal.retry_after_ns == S // 2
        assert (verdict.position, verdict.limited_by) == (2, Binding.SEATS)
    assert ask(book, "loop", prompt_tok=20, principal="bob").refusal is None


def test_what_finds_no_room_may_start_all_the_same(book: Any) -> None:
    assert ask(book, prompt_tok=600) == Verdict(0)


def test_a_slot_counts_the_prompt_alone(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> None:
    book = make_book(pools=(pool_spec("a", max_seqs=1, reservation=Reservation.PER_SLOT),))
    seat(book, request_spec(1))
    assert ask(book, prompt_tok=500, max_tok=400).refusal is None
    refusal = ask(book, prompt_tok=501, max_tok=400).refusal
    assert refusal is not None
    assert refusal.reason is Refused.TOO_LARGE


def test_whatever_goes_wrong_the_asked_for_is_taken_out_again(
    book: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr(book, "next_to_start", fail)
    with pytest.raises(RuntimeError):
        ask(book)
    assert book.records == {}
    assert len(book.queues["chat"]) == 0


# --- the whole view -------------------------------------------------------------------------------


def test_an_idle_core(
    make_book: Callable[..., Any], class_spec: Callable[..., Any], pool_spec: Callable[..., Any]
) -> None:
    book = make_book((class_spec(name="chat", rank=3),), (pool_spec("a", kv_tok=500),))
    assert views.view(book, NOW) == View(
        in_flight=0,
        queued=0,
        queued_tok=0,
        limited_by=None,
        classes=(ClassView("chat", 3, 0, 0, 1000, 0, 0, closed=False, opens_at_ns=None),),
        pools=(PoolView("a", PoolState.READY, 2, 0, 0, 500, 0, 0),),
    )


def test_a_busy_core(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any, settle: Any
) -> None:
    seat(book, request_spec(1, "loop"))
    wait(book, request_spec(2, "chat"))
    wait(book, request_spec(3, "loop", prompt_tok=20))
    settle(book, seat(book, request_spec(4, "batch", "b")))
    book.closed["batch"] = 7 * S
    book.draining = True
    assert views.view(book, NOW) == View(
        in_flight=1,
        queued=2,
        queued_tok=50,
        limited_by=Binding.SEATS,
        classes=(
            ClassView("chat", 0, 1, 20, 1000, 0, None, closed=False, opens_at_ns=None),
            ClassView("loop", 1, 1, 30, 1000, 1, None, closed=False, opens_at_ns=None),
            ClassView("batch", 2, 0, 0, 1000, 0, None, closed=True, opens_at_ns=7 * S),
        ),
        pools=(
            PoolView("a", PoolState.READY, 1, 1, 0, None, 20, 10),
            PoolView("b", PoolState.READY, 1, 1, 1, None, 20, 10),
        ),
        draining=True,
    )


def test_what_is_known_of_the_steps_of_a_pool(book: Any) -> None:
    known = StepView(1.0, 2.0, 3.0, 0.1, 16, 5)
    asked: list[int] = []

    class Known:
        def view(self, now_ns: int) -> StepView:
            asked.append(now_ns)
            return known

    book.pools["b"].pace = Known()
    first, second = views.view(book, NOW).pools
    assert (first.pace, second.pace, asked) == (None, known, [NOW])


def test_a_core_is_limited_by_the_first_pool_that_is(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1, pool="b"))
    wait(book, request_spec(2, pool="b"))
    assert views.view(book, NOW).limited_by is Binding.SEATS


def expected(book: Any, class_: str) -> int | None:
    waits = {found.name: found.expected_wait_ns for found in views.view(book, NOW).classes}
    return waits[class_]


def test_a_newcomer_waits_for_nothing_where_a_seat_is_free(
    book: Any, request_spec: Callable[..., Any], seat: Any
) -> None:
    seat(book, request_spec(1))
    assert expected(book, "chat") == 0
    seat(book, request_spec(2, pool="b"))
    assert expected(book, "chat") is None


def test_room_for_the_smallest_is_enough(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> None:
    for kv_tok, wait_ns in ((22, 0), (21, None)):
        book = make_book(pools=(pool_spec("a", kv_tok=kv_tok),))
        seat(book, request_spec(1))
        assert expected(book, "chat") == wait_ns


def test_a_newcomer_waits_behind_those_who_wait(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    wait: Any,
) -> None:
    book = make_book(pools=(pool_spec("a"),))
    wait(book, request_spec(2))
    drains(book, "chat", 40)
    assert expected(book, "chat") == 2 * S


def test_of_several_pools_the_shortest_wait_counts(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    seat(book, request_spec(1))
    seat(book, request_spec(2, pool="b"))
    for rid in (3, 4):
        wait(book, request_spec(rid))
    wait(book, request_spec(5, pool="b"))
    drains(book, "chat", 40)
    assert expected(book, "chat") == 2 * S


def test_nobody_knows_how_long_a_closed_class_waits(book: Any) -> None:
    book.closed["chat"] = None
    assert expected(book, "chat") is None


def test_a_class_without_pools_waits_for_nothing_known(make_book: Callable[..., Any]) -> None:
    book = make_book(pools=())
    assert expected(book, "chat") is None
    assert views.view(book, NOW).pools == ()
