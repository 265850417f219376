"""The probability that a seat comes free, and when the n-th does."""

import pytest

from onegate.admission.estimate.survival import Survival
from onegate.admission.estimate.waits import Running, expected_seat_ns, p_seat_within

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
    assert p_seat_within([], 100 * MS, MS) is None
    assert expected_seat_ns([], 1, MS) is None


def test_any_of_several() -> None:
    two: list[Running] = [(0, 100, THIRDS), (2, 100, THIRDS)]
    # 1/3 and 1/2 end within two steps.
    assert p_seat_within(two, 2 * MS, MS) == pytest.approx(1 - 2 / 3 * 1 / 2)


def test_only_whole_steps_count() -> None:
    assert p_seat_within([(0, 100, THIRDS)], 2 * MS - 1, MS) == 0.0
    assert p_seat_within([(0, 100, THIRDS)], -5, MS) == 0.0


def test_a_limit_that_is_reached_is_certain() -> None:
    assert p_seat_within([(0, 100, THIRDS), (90, 2, None)], 2 * MS, MS) == 1.0
    assert p_seat_within([(90, 2, None)], 2 * MS, MS) == 1.0
    assert p_seat_within([(90, 0, None)], 0, MS) == 1.0


def test_without_any_curve_nothing_is_known() -> None:
    assert p_seat_within([(0, 100, None), (5, 50, None)], 2 * MS, MS) is None
    assert p_seat_within([(500, 100, THIRDS)], 2 * MS, MS) is None
    assert p_seat_within([(0, 100, Survival())], 2 * MS, MS) is None


def test_one_without_a_curve_adds_nothing() -> None:
    alone = p_seat_within([(0, 100, THIRDS)], 2 * MS, MS)
    assert alone == pytest.approx(1 / 3)
    assert p_seat_within([(0, 100, THIRDS), (5, 50, None)], 2 * MS, MS) == alone


@pytest.mark.parametrize("step_ns", [0.0, -1.0])
def test_no_step_time_no_answer(step_ns: float) -> None:
    assert p_seat_within([(0, 100, THIRDS)], MS, step_ns) is None
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
