"""Percentiles by hand."""

import pytest

from onegate.bench.stats import Quantiles, Spread, percentile, quantiles, spread


def test_between_two_values_lies_the_line_between_them() -> None:
    assert percentile([10.0, 20.0], 0.5) == 15
    assert percentile([10.0, 20.0, 30.0], 0.5) == 20
    assert percentile([float(i) for i in range(101)], 0.99) == pytest.approx(99)
    assert percentile([7.0], 0.99) == 7


def test_infinite_values_keep_their_place() -> None:
    inf = float("inf")
    assert spread([1.0, inf, inf]) == Spread(n=3, median=inf, low=1.0, high=inf)
    assert spread([1.0, 2.0, inf]) == Spread(n=3, median=2.0, low=1.0, high=inf)
    assert spread([1.0, inf]) == Spread(n=2, median=inf, low=1.0, high=inf)


def test_the_usual_four() -> None:
    found = quantiles([float(i) for i in range(100, -1, -1)])
    assert (found.n, found.p50, found.p95, found.max) == (101, 50, 95, 100)


def test_of_nothing_nothing_is_known() -> None:
    assert quantiles([]) == Quantiles(n=0)
    assert spread([]) is None


def test_a_spread_is_the_median_between_the_extremes() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(n=3, median=2.0, low=1.0, high=3.0)
