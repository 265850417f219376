"""When the n-th seat comes free."""

import pytest

from onegate.admission.estimate.survival import Survival
from onegate.admission.estimate.waits import Running, expected_seat_ns

MS = 10**6


def curve_of(*lengths: int) -> Survival:
    curve = Survival(memory=None)
    for length in lengths:
        curve.add(length, ended=True)
    return curve


# One in three ends after 2 tokens, one after 4, one after 6.
THIRDS = curve_of(*[2, 4, 6] * 20)
# Spread over 1 to 1000.
EVEN = curve_of(*range(1, 1001))


def test_no_seat_that_could_come_free() -> None:
    assert expected_seat_ns([], 1, MS) is None


@pytest.mark.parametrize("step_ns", [0.0, -1.0])
def test_no_step_time_no_answer(step_ns: float) -> None:
    assert expected_seat_ns([(0, 100, THIRDS)], 1, step_ns) is None


@pytest.mark.parametrize("n", [1, 3, 7])
def test_the_nth_of_many_is_where_its_share_has_ended(n: int) -> None:
    running: list[Running] = [(0, 2000, EVEN)] * 7
    assert expected_seat_ns(running, n, float(MS)) == pytest.approx(n / 8 * 1000 * MS, rel=0.1)


def test_a_limit_comes_before_the_curve() -> None:
    running: list[Running] = [(0, 10, EVEN)] * 3
    assert expected_seat_ns(running, 3, 1.0) == 10.0
    assert expected_seat_ns([(0, 0, EVEN)], 1, 1.0) == 0.0


def test_unknown_beyond_the_seats_and_with_too_few_curves() -> None:
    known: Running = (0, 2000, EVEN)
    unknown: Running = (0, 2000, None)
    assert expected_seat_ns([known] * 2, 0, 1.0) is None
    assert expected_seat_ns([known] * 2, 3, 1.0) is None
    assert expected_seat_ns([known, unknown], 1, 1.0) is not None
    assert expected_seat_ns([known, unknown], 2, 1.0) is None
    assert expected_seat_ns([known, unknown, unknown], 1, 1.0) is None
    assert expected_seat_ns([(5000, 2000, EVEN)], 1, 1.0) is None


def test_unknown_where_the_curve_does_not_reach() -> None:
    cut = Survival(memory=None)
    for _ in range(100):
        cut.add(200, ended=False)
    assert expected_seat_ns([(0, 10**9, cut)], 1, 1.0) is None
