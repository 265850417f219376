"""Tokens of pieces of which only the sum is known."""

from typing import Any

import pytest

from onegate.bench.pieces import recounted, spread_tok, tok_per_piece
from onegate.bench.record import Outcome


@pytest.mark.parametrize(
    ("total", "pieces", "expected"),
    [(6, 3, [2, 2, 2]), (7, 3, [2, 3, 2]), (2, 3, [1, 0, 1]), (3, 1, [3]), (4.5, 3, [2, 1, 1])],
)
def test_tokens_are_spread_as_evenly_as_they_go(
    total: float, pieces: int, expected: list[int]
) -> None:
    assert spread_tok(total, pieces) == expected
    assert sum(expected) == round(total)


def test_a_finished_answer_has_the_tokens_that_were_told(made: Any) -> None:
    record = recounted(made.record(0, (10, 20, 30), output_tok=12), 99.0)
    assert record.pieces_tok == [4, 4, 4]
    # From the first piece to the last, 8 tokens came in 20 ms.
    assert record.tpot_ms == 2.5


def test_what_was_told_nothing_has_as_many_as_others_had(made: Any) -> None:
    left = made.record(0, (10, 20), outcome=Outcome.LEFT)
    assert recounted(left, 4.0).tokens == 8
    assert recounted(left, None).tokens == 2
    assert recounted(made.record(0, ()), 4.0).pieces_tok == []


def test_the_mean_is_of_what_was_told(made: Any) -> None:
    records = [
        made.record(0, (1, 2), output_tok=6),
        made.record(0, (1, 2, 3), output_tok=9),
        made.record(0, (1,) * 50),
        made.record(0, (), output_tok=100),
    ]
    assert tok_per_piece(records) == 3.0
    assert tok_per_piece(records[2:]) is None
