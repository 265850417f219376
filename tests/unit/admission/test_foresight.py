"""How far predictions can be trusted."""

import pytest

from onegate.admission.foresight import (
    FORECASTS,
    LEAST_FORECASTS,
    LEAST_NS,
    MOST,
    UNKNOWN_FACTOR,
    Foresight,
)

S = 10**9


def learned(*ratios: float) -> Foresight:
    foresight = Foresight()
    for ratio in ratios:
        foresight.learn(S, round(S * ratio))
    return foresight


def test_until_enough_have_come_out_a_prediction_counts_half() -> None:
    assert learned(*[0.9] * (LEAST_FORECASTS - 1)).factor == UNKNOWN_FACTOR == 0.5
    assert learned(*[0.9] * LEAST_FORECASTS).factor == 0.9


def test_nine_of_ten_are_in_time() -> None:
    assert learned(*[0.1] * 17, 0.7, 0.9, 0.9).factor == 0.9
    assert learned(*[0.1] * 18, 0.9, 0.9).factor == 0.9
    assert learned(*[0.1] * 19, 0.9).factor == 0.1
    assert learned(0.9, 0.9, *[0.1] * 18).factor == 0.9, "in whatever order they came"


def test_one_that_was_far_off_is_one_of_many() -> None:
    assert learned(*[0.8] * 20, 1000.0).factor == 0.8


def test_what_is_far_too_short_makes_predictions_twice_as_long_at_most() -> None:
    assert learned(*[1.5] * 30).factor == 1.5
    assert learned(*[50.0] * 30).factor == MOST == 2.0


def test_only_the_last_count() -> None:
    assert learned(*[0.2] * FORECASTS, *[0.6] * (FORECASTS // 2)).factor == pytest.approx(0.6)
    foresight = learned(*[0.2] * FORECASTS, *[0.6] * FORECASTS)
    assert foresight.factor == 0.6
    assert len(foresight._sorted) == len(foresight._recent) == FORECASTS
    assert foresight._sorted == [0.6] * FORECASTS


@pytest.mark.parametrize(("predicted_ns", "learns"), [(LEAST_NS, True), (LEAST_NS - 1, False)])
def test_a_short_wait_says_nothing(predicted_ns: int, learns: bool) -> None:
    foresight = Foresight()
    for _ in range(LEAST_FORECASTS):
        foresight.learn(predicted_ns, predicted_ns)
    assert (foresight.factor == 1.0) is learns
