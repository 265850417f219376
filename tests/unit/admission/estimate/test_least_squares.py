"""The fit that takes no time away for more work."""

import pytest

from onegate.admission.estimate.least_squares import NormalEquations

Row = tuple[int, int, int]


def fit(*rows: Row, weight: int = 1) -> tuple[float, float, float]:
    sums = NormalEquations()
    for p, s, y in rows:
        sums.add(p, s, y, weight)
    return sums.solve()


def plane(a: int, b: int, c: int) -> list[Row]:
    return [(p, s, a + b * p + c * s) for p in (0, 100, 4000) for s in (1, 4, 32)]


def test_no_observations() -> None:
    assert NormalEquations().solve() == (0.0, 0.0, 0.0)


def test_a_plane_is_found() -> None:
    a, b, c = fit(*plane(10_000_000, 50_000, 300_000))
    assert a == pytest.approx(10_000_000, rel=0.02)
    assert b == pytest.approx(50_000, rel=0.001)
    assert c == pytest.approx(300_000, rel=0.02)


@pytest.mark.parametrize(
    "truth", [(-5000, 50, 900), (5000, 50, -90), (5000, -1, 90), (-9, -9, 50_000)]
)
def test_no_coefficient_is_negative(truth: tuple[int, int, int]) -> None:
    found = fit(*plane(*truth))
    assert min(found) >= 0.0
    for value, true in zip(found, truth, strict=True):
        assert true > 0 or value == 0.0


def test_a_number_of_sequences_that_never_changed_costs_nothing_of_its_own() -> None:
    a, b, c = fit(*[(0, 8, 12_000)] * 20)
    assert a == pytest.approx(12_000, rel=0.01)
    assert b == 0.0
    assert c * 8 < 0.01 * a


def test_prefill_that_never_changed_is_taken_to_cost_by_the_token() -> None:
    a, b, _ = fit(*[(2048, 8, 110_000)] * 20)
    assert b * 2048 == pytest.approx(110_000, rel=0.02)
    assert a < 0.01 * 110_000


@pytest.mark.parametrize("s", [1, 4, 16, 64])
def test_extrapolation_lies_between_the_same_and_in_proportion(s: int) -> None:
    a, _, c = fit(*[(0, 7 + i % 2, 12_000 + i * 7919 % 2401) for i in range(20)])
    ratio = (a + c * s) / (a + c * 7.5)
    assert min(1.0, s / 7.5) <= ratio <= max(1.0, s / 7.5)


def test_what_is_taken_away_leaves_no_trace() -> None:
    sums = NormalEquations()
    for row in plane(1000, 5, 30):
        sums.add(*row, 3)
    before = sums.solve()
    for i in range(1000):
        sums.add(i * i, i, 10**12 + i, 2**90 + i)
    for i in range(1000):
        sums.add(i * i, i, 10**12 + i, -(2**90) - i)
    assert sums.solve() == before


def test_weights_count() -> None:
    sums = NormalEquations()
    sums.add(0, 1, 1000, 3)
    sums.add(0, 1, 2000, 1)
    a, _, c = sums.solve()
    assert a + c == pytest.approx(1250, rel=0.01)
