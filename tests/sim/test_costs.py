"""The arithmetic of the fit."""

import pytest
from tests.sim.costs import Costs, Row, decoding, fit, middle, mixed, pace, reading

COSTS = Costs(
    step_ns=20e6,
    many_ns=8e6,
    mixed_ns=9e6,
    change_ns=5e6,
    seq_ns=3e6,
    prompt_tok_ns=0.5e6,
    attend_ns=200.0,
    read_ns=5e3,
)
SHAPES = [
    *(decoding(seqs, seqs * read_tok) for seqs, read_tok in ((1, 30), (2, 30), (8, 30), (4, 500))),
    decoding(8, 240, change=True),
    *(reading(prompt_tok, 256) for prompt_tok in (32, 128, 256, 512, 1024)),
    *(mixed(64, seqs, seqs * 30) for seqs in (1, 4)),
]


def taking(costs: Costs) -> list[Row]:
    return [Row(shape, costs.of(shape)) for shape in SHAPES]


def test_costs_that_were_planted_are_found() -> None:
    assert fit(taking(COSTS)) == pytest.approx(COSTS)


def test_one_wrong_time_of_many_moves_nothing() -> None:
    rows = taking(COSTS) * 5
    rows[0] = Row(rows[0].shape, rows[0].took_ns * 3)
    assert fit(middle(rows)) == pytest.approx(COSTS)


def test_no_cost_is_negative() -> None:
    """Times that fall with more sequences are noise, and cost nothing by the sequence."""
    found = fit(taking(COSTS._replace(seq_ns=-1e6)))
    assert min(found) >= 0
    assert found.seq_ns == 0


def test_a_prompt_alone_is_as_many_steps_as_it_needs() -> None:
    assert reading(256, 256)[:5] == (1, 1, 0, 1, 1)
    assert reading(512, 256)[:5] == (2, 2, 0, 1, 2)
    assert mixed(64, 4, 120)[:5] == (1, 1, 1, 1, 5)


def test_the_pace_is_that_of_most() -> None:
    rows = [Row(row.shape, row.took_ns * 2) for row in taking(COSTS)]
    rows[0] = Row(rows[0].shape, rows[0].took_ns * 50)
    assert pace(rows, COSTS) == pytest.approx(2)
    assert COSTS.times(2).of(SHAPES[3]) == pytest.approx(2 * COSTS.of(SHAPES[3]))
