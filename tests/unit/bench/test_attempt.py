"""What an attempt writes down, and when its caller leaves."""

from typing import Any

import pytest

from onegate.bench.attempt import Attempt
from onegate.bench.record import Record
from onegate.bench.scenario import Leave, Phase


def watched(phase: Phase | None = None) -> tuple[Attempt, Record, list[int]]:
    record = Record(0, 0, 0)
    clock = iter(range(1, 1000))
    left: list[int] = []
    attempt = Attempt(
        record, lambda: next(clock), lambda: left.append(1), phase=phase, rule=Leave(after_tok=2)
    )
    return attempt, record, left


def test_tokens_without_text_count_with_the_text_that_follows() -> None:
    attempt, record, left = watched()
    attempt.started(3.5)
    attempt.piece(1, visible=False)
    attempt.piece(1, visible=True)
    attempt.piece(1, visible=True)
    assert (record.started_ns, record.queue_ms) == (1, 3.5)
    assert record.pieces_ns == [2, 3]
    assert record.pieces_tok == [2, 1]
    assert left == []


def test_the_phase_is_known_as_far_as_the_target_tells() -> None:
    attempt, _, _ = watched()
    seen = [attempt.reached]
    attempt.started(0.0)
    seen.append(attempt.reached)
    attempt.piece(1, visible=True)
    assert [*seen, attempt.reached] == [None, "prefill", "decode"]


def test_where_no_start_is_told_the_first_text_says_that_there_was_one() -> None:
    attempt, _, left = watched("prefill")
    attempt.piece(1, visible=True)
    assert left == [1]


@pytest.mark.parametrize(
    ("phase", "at"), [("prefill", 1), ("decode", 3), ("queued", None), ("arrival", None)]
)
def test_callers_leave_in_their_phase(phase: Any, at: int | None) -> None:
    attempt, _, left = watched(phase)
    events = [lambda: attempt.started(0.0), *[lambda: attempt.piece(1, visible=True)] * 2]
    gone = None
    for number, event in enumerate(events, 1):
        event()
        if left and gone is None:
            gone = number
    assert gone == at
