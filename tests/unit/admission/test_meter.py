"""What was computed, and for whom."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import meter
from onegate.admission.lifecycle import IllegalMove, Move
from onegate.admission.model import Reservation, Resume
from onegate.admission.protect import BURST_TOK
from onegate.admission.records import WEIGH_EVERY_NS, Pool

S = 10**9


class Heard:
    """A pace that writes down what it is told."""

    def __init__(self) -> None:
        self.of: list[tuple[str, int, int]] = []

    def granted(self, rid: int, tok: int, now_ns: int) -> None:
        self.of.append(("granted", rid, tok))

    def prefilled(self, rid: int, tok: int, now_ns: int) -> None:
        self.of.append(("prefilled", rid, tok))

    def produced(self, rid: int, tok: int, now_ns: int) -> None:
        self.of.append(("produced", rid, tok))

    def step_ns(self, *, decode_seqs: int, prefill_tok: int, now_ns: int) -> float | None:
        return None


@pytest.fixture
def book(
    make_book: Callable[..., Any], class_spec: Callable[..., Any], pool_spec: Callable[..., Any]
) -> Any:
    """A pool that grows what it reserves by blocks of ten; batch has a floor of a tenth."""
    classes = (
        class_spec(name="chat"),
        class_spec(name="batch", rank=1, floor_share=0.1, preemptible=True),
    )
    book = make_book(classes, (pool_spec("a", kv_tok=1000, block_tok=10),), recompute_share=0.5)
    book.pools["a"].pace = Heard()
    book.pools["a"]._weight = 0.5
    return book


@pytest.fixture
def one(book: Any, request_spec: Callable[..., Any], seat: Any) -> Any:
    """It runs: 100 of prompt, 50 of answer, of which 20 are reserved."""
    record = seat(book, request_spec(1, prompt_tok=100, max_tok=50, resume=Resume.EXACT))
    record.reserved_tok = 20
    book.pools["a"].ledger.adjust(1, kv_tok=120)
    return record


def left_tok(book: Any) -> int:
    return book.pools["a"].ledger.unprefilled_tok


# --- counts ---------------------------------------------------------------------------------------


def test_a_count_of_what_waits_moves_the_queue(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    record = wait(book, request_spec(2, max_tok=50))
    record.reserved_tok = 20
    meter.counted(book, record, 70, 0)
    assert (record.prompt_tok, book.queues["chat"].queued_tok) == (70, 90)


def test_a_count_moves_the_cache_and_what_is_left_to_compute(book: Any, one: Any) -> None:
    meter.counted(book, one, 130, 0)
    assert (book.pools["a"].ledger.kv_tok, left_tok(book)) == (150, 130)
    assert book.pools["a"].pace.of == [("granted", 1, 130)]


def test_what_is_cached_is_not_computed(book: Any, one: Any) -> None:
    meter.counted(book, one, 100, 60)
    assert (one.computed_tok, left_tok(book)) == (60, 40)
    assert book.pools["a"].pace.of == [("granted", 1, 40)]
    assert book.allowances["chat"].left_tok == BURST_TOK, "nobody computed anything"
    meter.prefilled(book, one, 70)
    assert left_tok(book) == 30
    assert book.pools["a"].pace.of[1:] == [("prefilled", 1, 10)]


def served_tok(record: Any) -> int:
    """What its flow was charged, beside what counts against its next charges."""
    account = record.account
    assert account.parent is not None
    assert account.parent.served_tok == account.served_tok
    return int(account.served_tok - account.credit_tok)


@pytest.mark.parametrize(
    ("prompt_tok", "cached_tok", "more_tok"),
    [(100, 0, 0), (100, 60, -60), (130, 0, 30), (130, 30, 0), (80, 0, -20), (100, 5000, -100)],
)
def test_its_flow_is_charged_what_is_computed_of_its_prompt(
    book: Any, one: Any, prompt_tok: int, cached_tok: int, more_tok: int
) -> None:
    """100 are charged, as its prompt was estimated."""
    book.queues["chat"].accounts.charge(one.account, 100)
    for _ in range(2):  # said again it changes nothing
        meter.counted(book, one, prompt_tok, cached_tok)
        assert served_tok(one) == 100 + more_tok


def test_a_prompt_that_is_computed_again_was_paid_for(book: Any, one: Any) -> None:
    one.exempt = True
    meter.counted(book, one, 130, 100)
    assert served_tok(one) == 0


def test_what_is_over_is_charged_no_more(book: Any, one: Any) -> None:
    one.move(Move.SETTLE)
    meter.counted(book, one, 130, 0)
    assert served_tok(one) == 0


def test_no_more_is_cached_than_there_is(book: Any, one: Any) -> None:
    meter.counted(book, one, 100, 5000)
    assert (one.computed_tok, left_tok(book)) == (100, 0)


def test_a_count_takes_back_nothing_that_is_computed(book: Any, one: Any) -> None:
    meter.prefilled(book, one, 80)
    meter.counted(book, one, 100, 10)
    assert (one.computed_tok, left_tok(book)) == (80, 20)
    meter.produced(book, one, 1)
    meter.counted(book, one, 300, 0)
    assert left_tok(book) == 0, "its prefill is over"


def test_what_was_kept_is_cached_or_computed_again(book: Any, one: Any) -> None:
    one.kept_tok = 30
    meter.counted(book, one, 100, 110)
    assert (one.computed_tok, left_tok(book)) == (110, 20)


def test_what_was_lost_and_is_in_the_cache_was_not_lost(book: Any, one: Any) -> None:
    allowance = book.allowances["chat"]
    allowance.spend(5000)
    one.again_tok, one.lost_tok = 90, 70
    meter.counted(book, one, 100, 40)
    assert (one.again_tok, allowance.left_tok) == (70, BURST_TOK - 4980)
    meter.counted(book, one, 100, 40)
    assert (one.again_tok, allowance.left_tok) == (70, BURST_TOK - 4980), "said twice, saved once"


def test_no_more_was_saved_than_was_lost(book: Any, one: Any) -> None:
    allowance = book.allowances["chat"]
    allowance.spend(5000)
    one.again_tok, one.lost_tok = 90, 70
    meter.counted(book, one, 100, 100)
    assert (one.again_tok, allowance.left_tok) == (55, BURST_TOK - 4965)


def test_a_count_without_a_seat_is_written_down(book: Any, one: Any) -> None:
    book.pools["a"].ledger.free(1)
    meter.counted(book, one, 70, 20)
    assert (one.prompt_tok, one.computed_tok) == (70, 0)


# --- prefill --------------------------------------------------------------------------------------


def test_prefill_goes_forward(book: Any, one: Any) -> None:
    for tok, left in ((30, 70), (20, 70), (60, 40), (500, 0)):
        meter.prefilled(book, one, tok)
        assert left_tok(book) == left
    assert book.pools["a"].pace.of == [("prefilled", 1, tok) for tok in (30, 30, 40)]
    assert one.computed_tok == 100


def test_what_is_kept_is_prefilled_too(book: Any, one: Any) -> None:
    one.kept_tok = one.output_tok = 30
    book.pools["a"].ledger.leave_unprefilled(1, 130)
    meter.prefilled(book, one, 120)
    assert left_tok(book) == 10
    assert one.computed_tok == 120


def test_prefill_is_not_told_of_what_waits(
    book: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    record = wait(book, request_spec(2))
    with pytest.raises(IllegalMove):
        meter.prefilled(book, record, 1)
    with pytest.raises(IllegalMove):
        meter.produced(book, record, 1)
    assert (record.computed_tok, record.output_tok, book.pools["a"].pace.of) == (0, 0, [])


@pytest.mark.parametrize(("resume", "again_tok"), [(Resume.EXACT, 54), (Resume.RESTART, 58)])
def test_what_was_stopped_has_to_be_done_again(
    book: Any, one: Any, resume: Resume, again_tok: float
) -> None:
    one.spec = replace(one.spec, resume=resume)
    one.computed_tok, one.output_tok, one.again_tok = 100, 8, 7
    meter.lost(book, one)
    assert (one.lost_tok, one.again_tok) == (108, 7 + again_tok)
    assert book.allowances["chat"].left_tok == BURST_TOK - again_tok


# --- output ---------------------------------------------------------------------------------------


def test_the_first_token_ends_the_prefill(book: Any, one: Any) -> None:
    assert not meter.produced(book, one, 1)
    assert (left_tok(book), one.computed_tok, one.output_tok) == (0, 100, 1)
    assert book.pools["a"].pace.of == [("produced", 1, 1)]


def test_the_pace_hears_of_what_is_new(book: Any, one: Any) -> None:
    for tok in (3, 5, 2, 4):
        meter.produced(book, one, tok)
    assert [tok for _, _, tok in book.pools["a"].pace.of] == [3, 2, 2, 2], "begun anew once"


def test_what_is_told_twice_is_not_new(book: Any, one: Any) -> None:
    for tok in (3, 3):
        meter.produced(book, one, tok)
    assert [tok for _, _, tok in book.pools["a"].pace.of] == [3, 0]


def test_each_token_of_output_is_charged_to_its_flow_once(book: Any, one: Any) -> None:
    for tok in (3, 5, 2, 4, 6):
        meter.produced(book, one, tok)
    assert one.account.served_tok == 6
    assert one.account.parent.served_tok == 6


def test_a_reservation_grows_with_the_answer(book: Any, one: Any) -> None:
    ledger = book.pools["a"].ledger
    assert not meter.produced(book, one, 20)
    assert (one.reserved_tok, ledger.kv_tok) == (20, 120)
    assert meter.produced(book, one, 21)
    assert (one.reserved_tok, ledger.kv_tok) == (31, 140), "the next block, in whole blocks"
    assert not meter.produced(book, one, 31)
    assert meter.produced(book, one, 45)
    assert (one.reserved_tok, ledger.kv_tok) == (50, 150), "and no more than it may make"


def test_what_has_no_seat_reserves_nothing(book: Any, one: Any) -> None:
    book.pools["a"].ledger.free(1)
    meter.produced(book, one, 30)
    assert (one.reserved_tok, book.pools["a"].ledger.kv_tok) == (20, 0)


def test_what_is_over_grows_no_more(book: Any, one: Any, settle: Any) -> None:
    settle(book, one)
    meter.computed(book, one, 100, 30)
    assert one.reserved_tok == 20


def test_a_class_may_have_a_share_of_what_it_computes_computed_again(book: Any, one: Any) -> None:
    for allowance in book.allowances.values():
        allowance.spend(1000)
    meter.prefilled(book, one, 40)
    meter.produced(book, one, 10)
    # A hundred of prompt at half of the cost, and ten of output; half of that.
    assert book.allowances["chat"].left_tok == BURST_TOK - 1000 + 30
    assert book.allowances["batch"].left_tok == BURST_TOK - 1000


def test_a_floor_is_earned_while_its_class_waits_for_the_pool(
    book: Any, one: Any, request_spec: Callable[..., Any], wait: Any
) -> None:
    meter.produced(book, one, 10)
    assert book.floors["batch"].credit_tok == 0
    wait(book, request_spec(2, "batch"))
    meter.produced(book, one, 20)
    assert book.floors["batch"].credit_tok == 1
    book.closed["batch"] = None
    meter.produced(book, one, 30)
    assert book.floors["batch"].credit_tok == 1


@pytest.mark.parametrize(
    ("by_floor", "better", "credit_tok", "prepaid_tok"),
    [(True, True, -14, 0), (True, False, 0, 6), (False, True, 0, 6)],
)
def test_a_floor_pays_for_what_goes_before_better_ones(
    book: Any,
    request_spec: Callable[..., Any],
    wait: Any,
    seat: Any,
    by_floor: bool,
    better: bool,
    credit_tok: int,
    prepaid_tok: int,
) -> None:
    record = seat(book, request_spec(2, "batch", max_tok=50))
    record.by_floor, record.prepaid_tok = by_floor, 6
    if better:
        wait(book, request_spec(3, "chat"))
    meter.prefilled(book, record, 10)
    meter.produced(book, record, 10)
    floor = book.floors["batch"]
    assert (floor.credit_tok, record.prepaid_tok) == (credit_tok, prepaid_tok)


def test_a_quantum_is_used_bit_by_bit_and_its_end_is_told(
    book: Any, request_spec: Callable[..., Any], wait: Any, seat: Any
) -> None:
    record = seat(book, request_spec(2, "batch", max_tok=50))
    record.by_floor, record.prepaid_tok = True, 15
    wait(book, request_spec(3, "chat"))
    meter.prefilled(book, record, 4)
    assert (record.prepaid_tok, book.floors["batch"].credit_tok) == (11, 0)
    assert not meter.produced(book, record, 4), "ten of prompt, and four of output"
    assert record.prepaid_tok == 1
    assert meter.produced(book, record, 5)
    assert not meter.produced(book, record, 6)


def test_what_is_given_anyway_counts_as_served(
    book: Any, request_spec: Callable[..., Any], seat: Any
) -> None:
    record = seat(book, request_spec(2, "batch", max_tok=50))
    book.floors["batch"].credit_tok = 30
    meter.produced(book, record, 5)
    assert book.floors["batch"].credit_tok == 15


# --- how predictions come out ---------------------------------------------------------------------


class Foresight:
    """What was learned."""

    def __init__(self) -> None:
        self.of: list[tuple[int, int]] = []

    def learn(self, predicted_ns: int, actual_ns: int) -> None:
        self.of.append((predicted_ns, actual_ns))


@pytest.fixture
def foresight(book: Any) -> Foresight:
    book.now_ns = 9 * S
    book.queues["chat"].foresight = Foresight()
    return book.queues["chat"].foresight


def test_the_first_token_says_how_a_prediction_came_out(
    book: Any, request_spec: Callable[..., Any], seat: Any, foresight: Foresight
) -> None:
    record = seat(book, request_spec(2, arrived_ns=2 * S))
    record.predicted_ns = 5 * S
    meter.prefilled(book, record, 3)
    assert foresight.of == []
    for tok in (1, 2):
        meter.produced(book, record, tok)
    assert foresight.of == [(5 * S, 7 * S)]


@pytest.mark.parametrize("why", ["nothing predicted", "in the engine before"])
def test_what_says_nothing_of_predictions(
    book: Any, one: Any, foresight: Foresight, why: str
) -> None:
    one.predicted_ns = None if why == "nothing predicted" else S
    one.exempt = why == "in the engine before"
    meter.produced(book, one, 1)
    assert foresight.of == []


def test_who_gave_up_waited_at_least_so_long(
    book: Any, request_spec: Callable[..., Any], wait: Any, foresight: Foresight
) -> None:
    record = wait(book, request_spec(2))
    record.predicted_ns = S
    meter.waited(book, record)
    assert foresight.of == [(S, 9 * S)]


# --- how long answers are -------------------------------------------------------------------------


class Lengths:
    """What was learned."""

    def __init__(self) -> None:
        self.of: list[tuple[str, str, str, int, bool]] = []

    def ended(
        self, class_: str, principal: str, flow: str, output_tok: int, *, finished: bool
    ) -> None:
        self.of.append((class_, principal, flow, output_tok, finished))


@pytest.mark.parametrize(
    ("output_tok", "finished", "learned"),
    [
        (30, True, [(30, True)]),
        (30, False, [(30, False)]),
        (50, True, [(50, False)]),  # it came to its limit, and would have gone on
        (0, True, [(0, True)]),
        (0, False, []),  # it never began
    ],
)
def test_what_an_answer_says_of_the_next_ones(
    book: Any, one: Any, output_tok: int, finished: bool, learned: list[tuple[int, bool]]
) -> None:
    pool = book.pools["a"]
    pool.lengths = Lengths()
    one.move(Move.START)
    one.output_tok = output_tok
    meter.learn(pool, one, finished)
    assert pool.lengths.of == [("chat", "alice", "", *what) for what in learned]


def test_a_slot_grows_nothing(
    make_book: Callable[..., Any],
    pool_spec: Callable[..., Any],
    request_spec: Callable[..., Any],
    seat: Any,
) -> None:
    book = make_book(pools=(pool_spec("a", reservation=Reservation.PER_SLOT),))
    record = seat(book, request_spec(1, max_tok=50))
    meter.produced(book, record, 50)
    assert book.pools["a"].ledger.kv_tok == 0


def test_how_fast_full_seats_turn_over_is_learned_now_and_then(
    book: Any, one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = book.queues["chat"]
    queue.prompt_tok = 30.0
    asked: list[tuple[str, float, int]] = []
    known = {"chat": 3.0, "batch": None}

    def turnover(_pool: Pool, class_: str, prompt_tok: float, now_ns: int) -> float | None:
        asked.append((class_, prompt_tok, now_ns))
        return known[class_]

    monkeypatch.setattr(Pool, "turnover", turnover)
    meter.produced(book, one, 1)
    assert asked == [("chat", 30.0, book.now_ns), ("batch", 0.0, book.now_ns)]
    assert (queue.turnover, book.queues["batch"].turnover) == ({"a": 3.0}, {})
    known["chat"] = None
    meter.produced(book, one, 2)
    assert queue.turnover == {"a": 3.0}, "just now"
    book.now_ns += WEIGH_EVERY_NS
    meter.produced(book, one, 3)
    assert queue.turnover == {}, "what is not known any more is not kept"
