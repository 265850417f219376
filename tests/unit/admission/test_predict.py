"""When a request that waits will have its first token."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission.model import Binding, Resume
from onegate.admission.predict import Prediction, predict

MS = 1_000_000
S = 10**9
NOW = 2 * S


class FixedPace:
    """A step takes 10 ms and a prompt token 1 ms, whatever else there is."""

    def __init__(self) -> None:
        self.step: float | None = 10.0 * MS
        self.prefill: float | None = 1.0 * MS
        self.asked: list[int] = []

    def step_ns(self, *, decode_seqs: int, prefill_tok: int, now_ns: int) -> float | None:
        assert (prefill_tok, now_ns) == (0, NOW)
        self.asked.append(decode_seqs)
        return self.step

    def prefill_ns(self, tok: int, now_ns: int) -> float | None:
        assert now_ns == NOW
        return None if self.prefill is None else self.prefill * tok


@pytest.fixture
def book(
    make_book: Callable[..., Any],
    class_spec: Callable[..., Any],
    pool_spec: Callable[..., Any],
) -> Any:
    """Three seats; loop may stop batch."""
    classes = (
        class_spec(name="chat"),
        class_spec(name="loop", rank=1, preempts=True),
        class_spec(name="batch", rank=2, preemptible=True),
    )
    book = make_book(classes, (pool_spec("a", max_seqs=3),))
    book.pools["a"].pace = FixedPace()
    return book


@pytest.fixture
def run(book: Any, request_spec: Callable[..., Any], seat: Any) -> Callable[..., Any]:
    """One that decodes."""

    def build(rid: int, output_tok: int, class_: str = "chat", **fields: Any) -> Any:
        record = seat(book, request_spec(rid, class_, **({"max_tok": 100} | fields)))
        record.output_tok = output_tok
        book.pools["a"].ledger.leave_unprefilled(rid, 0)
        return record

    return build


def learn(book: Any, output_tok: int = 100, class_: str = "chat") -> None:
    """Answers of that class are all so long."""
    for i in range(40):
        book.pools["a"].lengths.ended(class_, f"p{i % 3}", "", output_tok, finished=True)


def drains(book: Any, class_: str, tok: int) -> None:
    book.queues[class_].rate.backlog(True, 0)
    book.queues[class_].rate.released(tok, S)


def test_first_is_wait_and_prefill() -> None:
    assert Prediction(3, 4, 5).first_ns == 7


def test_nothing_is_known_at_first(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    run(1, 5)
    book.pools["a"].pace.step = None
    assert predict(book, wait(book, request_spec(9)), NOW) is None


def test_the_wait_by_the_rate_of_the_class(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    run(1, 5)
    drains(book, "chat", 40)
    two = [wait(book, request_spec(rid)) for rid in (8, 9)]
    assert [predict(book, record, NOW).wait_ns for record in two] == [S, 2 * S]


def test_the_own_prompt_and_those_before_it_at_the_engine_are_computed(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    run(1, 5)
    book.pools["a"].ledger.leave_unprefilled(1, 30)
    run(2, 5, "batch")
    book.pools["a"].ledger.leave_unprefilled(2, 500)
    drains(book, "loop", 40)
    record = wait(book, request_spec(9, "loop", prompt_tok=12))
    record.kept_tok = 3
    assert predict(book, record, NOW).prefill_ns == 45 * MS
    book.pools["a"].pace.prefill = None
    assert predict(book, record, NOW).prefill_ns == 0


def test_the_answer_at_the_pace_of_a_full_pool(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    run(1, 5)
    drains(book, "chat", 40)
    record = wait(book, request_spec(9, max_tok=900))
    assert predict(book, record, NOW).decode_ns == 0, "how long it is nobody knows"
    learn(book)
    usual_tok = book.pools["a"].lengths.of("chat", "alice", "").quantile(0.5)
    book.pools["a"].pace.asked.clear()
    assert predict(book, record, NOW).decode_ns == usual_tok * 10 * MS
    assert book.pools["a"].pace.asked == [3]
    record.spec = replace(record.spec, max_tok=7)
    assert predict(book, record, NOW).decode_ns == 70 * MS
    book.pools["a"].pace.step = None
    assert predict(book, record, NOW).decode_ns == 0


# --- by the seats ---------------------------------------------------------------------------------


def in_steps(prediction: Prediction | None) -> float:
    assert prediction is not None
    return prediction.wait_ns / (10 * MS)


def test_the_seat_that_is_expected_next(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book)
    for rid, made in ((1, 90), (2, 50), (3, 10)):
        run(rid, made, max_tok=500)
    book.pools["a"].pace.asked.clear()
    one, two, three = (wait(book, request_spec(rid)) for rid in (7, 8, 9))
    # The answers are of about a hundred tokens, and the shortest of three waits is no mean.
    assert 5 <= in_steps(predict(book, one, NOW)) <= 30
    assert 40 <= in_steps(predict(book, two, NOW)) <= 65
    assert 75 <= in_steps(predict(book, three, NOW)) <= 100
    assert 3 in book.pools["a"].pace.asked, "as many decode as hold a seat"


def test_what_they_may_still_make_bounds_the_wait(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book)
    for rid in (1, 2, 3):
        run(rid, 10, max_tok=14)
    assert in_steps(predict(book, wait(book, request_spec(9)), NOW)) == 4


def test_whose_length_nobody_knows_says_nothing(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    run(1, 10)
    assert predict(book, wait(book, request_spec(9)), NOW) is None


def test_better_ones_come_first_unless_they_are_closed(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book)
    run(1, 90, max_tok=500)
    run(2, 20, max_tok=500)
    wait(book, request_spec(8, "chat"))
    record = wait(book, request_spec(9, "loop"))
    late = in_steps(predict(book, record, NOW))
    book.closed["chat"] = None
    soon = in_steps(predict(book, record, NOW))
    assert 5 <= soon <= 30 < 60 <= late


def test_nobody_knows_how_long_a_closed_class_waits(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book)
    run(1, 90, max_tok=500)
    record = wait(book, request_spec(9))
    book.closed["chat"] = None
    assert predict(book, record, NOW) is None


def test_more_turns_than_seats_take_rounds(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book)
    for rid in (1, 2):
        run(rid, 50, max_tok=60)
    records = [wait(book, request_spec(rid)) for rid in range(10, 15)]
    assert [in_steps(predict(book, record, NOW)) for record in records] == [10, 10, 20, 20, 30]


def test_a_round_of_which_too_little_is_known_says_nothing(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book)
    run(1, 50, max_tok=500)
    run(2, 50, max_tok=500)
    run(3, 50, "batch", max_tok=500)
    records = [wait(book, request_spec(rid)) for rid in range(10, 14)]
    assert predict(book, records[0], NOW) is not None
    assert predict(book, records[3], NOW) is None


def test_seats_that_may_be_had_by_stopping_are_not_waited_for(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book, class_="batch")
    run(1, 90, "batch", max_tok=500, resume=Resume.EXACT)
    for rid in (2, 3):
        run(rid, 20, "batch", max_tok=500)
    one, two = (wait(book, request_spec(rid, "loop")) for rid in (7, 8))
    assert predict(book, one, NOW).wait_ns == 0
    assert in_steps(predict(book, two, NOW)) > 0
    mine = wait(book, request_spec(9, "batch"))
    assert in_steps(predict(book, mine, NOW)) > 0, "batch stops nobody"


def test_where_seats_are_not_what_is_short_stopping_makes_no_wait_shorter(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book, class_="batch")
    run(1, 90, "batch", max_tok=500, resume=Resume.EXACT)
    run(2, 20, "batch", max_tok=500)
    record = wait(book, request_spec(7, "loop", prompt_tok=900))
    pool = book.pools["a"]
    pool.spec = replace(pool.spec, capacity=replace(pool.capacity, kv_tok=1500))
    assert book.limited_by(pool) is Binding.KV
    assert in_steps(predict(book, record, NOW)) > 0


def test_a_permit_may_be_had_by_stopping_too(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    learn(book, class_="batch")
    run(1, 90, "batch", max_tok=500, resume=Resume.EXACT)
    record = wait(book, request_spec(7, "loop"))
    book.limits = replace(book.limits, max_in_flight=1)
    assert predict(book, record, NOW).wait_ns == 0


def test_whom_nobody_waits_long_enough_for_counts_as_running(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any
) -> None:
    """With a grace to be waited first a seat is not had at once."""
    learn(book, class_="batch")
    queue = book.queues["batch"]
    queue.spec = replace(queue.spec, preempt_grace_ns=1)
    for rid in (1, 2, 3):
        run(rid, 20, "batch", max_tok=500, resume=Resume.EXACT)
    assert in_steps(predict(book, wait(book, request_spec(7, "loop")), NOW)) > 0


def test_a_seat_that_nobody_holds_says_nothing(
    book: Any, request_spec: Callable[..., Any], wait: Any, run: Any, settle: Any
) -> None:
    settle(book, run(1, 90))
    assert predict(book, wait(book, request_spec(9)), NOW) is None
