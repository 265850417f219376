"""Whole numbers by their digits."""

import pytest
from tests.unit.engines.host.grammar.conftest import allows

from onegate.engines.host.grammar.integers import MOST, between
from onegate.engines.host.grammar.nodes import Grammar

BOUNDS = [
    (0, 0), (0, 9), (0, 10), (1, 9), (1, 10), (7, 123), (99, 100), (100, 199), (123, 129),
    (-1, 1), (-9, -1), (-10, 0), (-123, -7), (-120, 45), (90, 1009), (5, 5), (-5, -5),
]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_exactly_the_numbers_between(low, high):
    grammar = Grammar(between(low, high), {})
    near = {0, low, high} | {n + d for n in (low, high) for d in (-11, -10, -9, -1, 1, 9, 10, 11)}
    for number in near | set(range(-15, 16)):
        assert allows(grammar, str(number)) == (low <= number <= high), number


@pytest.mark.parametrize("text", ["", "-", "-0", "00", "01", "+1", "1.0", " 1"])
def test_no_other_way_to_write_one(text):
    assert not allows(Grammar(between(-20, 20), {}), text)


def test_up_to_what_every_reader_holds_exactly():
    grammar = Grammar(between(-MOST, MOST), {})
    assert MOST < 2**53
    for number in (MOST, -MOST, 10**14):
        assert allows(grammar, str(number))
    assert not allows(grammar, str(MOST + 1))
    assert len(grammar.ebnf()) < 100
