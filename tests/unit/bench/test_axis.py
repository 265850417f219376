"""Axes hold their values and name round ones."""

import pytest

from onegate.bench.axis import axis


def test_a_linear_axis_begins_at_nothing_and_has_room() -> None:
    found = axis([2.0, 10.0], begin=0.0, end=100.0)
    assert found.place(0.0) == 0
    assert found.place(10.0) == pytest.approx(95.2, abs=0.1)
    assert found.ticks() == [0, 2, 4, 6, 8, 10]


def test_what_lies_outside_is_put_on_the_edge() -> None:
    found = axis([10.0], begin=0.0, end=100.0)
    assert found.place(-5.0) == 0
    assert found.place(1000.0) == 100


@pytest.mark.parametrize("values", [[], [0.0], [3.0, 3.0]])
def test_an_axis_of_one_value_or_none_has_a_length(values: list[float]) -> None:
    for log in (False, True):
        found = axis(values, begin=0.0, end=100.0, log=log)
        assert found.high > found.low
        assert 0 <= found.place(3.0) <= 100


def test_a_logarithmic_axis_has_even_decades() -> None:
    found = axis([1.0, 10.0, 1000.0], begin=0.0, end=300.0, log=True)
    assert [found.place(v) for v in (1.0, 10.0, 1000.0)] == pytest.approx([0, 100, 300])
    assert found.ticks() == [1, 10, 100, 1000]
    assert axis([1.0, 100.0], begin=0, end=1, log=True).ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert found.place(0.0) == 0
