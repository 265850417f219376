"""Schedules have the statistics that they are named after."""

from itertools import pairwise
from random import Random
from statistics import mean, stdev

import pytest

from onegate.bench.arrivals import offsets_ns
from onegate.bench.scenario import Arrivals

S = 1_000_000_000


def times(arrivals: Arrivals, **more: float) -> list[int]:
    given = {"begin_s": 0.0, "end_s": 2000.0, "rate_per_s": 5.0, "load": 1.0} | more
    return offsets_ns(arrivals, Random(1), **given)  # type: ignore[arg-type]


def gaps(found: list[int]) -> list[float]:
    return [(b - a) / S for a, b in pairwise(found)]


def test_evenly_spaced_ones_lie_on_a_grid_through_the_start_of_the_window() -> None:
    found = times(Arrivals(kind="deterministic"), begin_s=-1.0, end_s=1.0, rate_per_s=2.0)
    assert found == [-S, -S // 2, 0, S // 2]
    assert times(Arrivals(kind="deterministic"), end_s=1.0, rate_per_s=2.0, load=2.0) == [
        0,
        S // 4,
        S // 2,
        3 * S // 4,
    ]


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        (Arrivals(kind="poisson"), 1.0),
        (Arrivals(kind="gamma", cv=3.0), 3.0),
        (Arrivals(kind="gamma", cv=0.5), 0.5),
    ],
)
def test_rate_and_burstiness_are_those_asked_for(arrivals: Arrivals, cv: float) -> None:
    found = times(arrivals)
    assert len(found) == pytest.approx(10_000, rel=0.1)
    assert stdev(gaps(found)) / mean(gaps(found)) == pytest.approx(cv, rel=0.1)
    assert found == sorted(found)
    assert found[0] >= 0
    assert found[-1] < 2000 * S


def test_load_multiplies_the_rate() -> None:
    assert len(times(Arrivals(), load=3.0)) == pytest.approx(30_000, rel=0.1)


def test_a_burst_is_many_at_once_and_grows_with_the_load() -> None:
    burst = Arrivals(kind="burst", size=3, every_s=10.0)
    assert times(burst, end_s=20.0, begin_s=-5.0) == [0] * 3 + [10 * S] * 3
    assert len(times(burst, end_s=10.0, load=2.0)) == 6
    assert len(times(burst, end_s=10.0, load=0.1)) == 1


def test_whoever_begins_later_begins_then() -> None:
    burst = Arrivals(kind="burst", size=2, every_s=10.0)
    assert times(burst, begin_s=5.0, end_s=16.0) == [5 * S] * 2 + [15 * S] * 2
    even = Arrivals(kind="deterministic")
    assert times(even, begin_s=0.3, end_s=1.0, rate_per_s=2.0) == [300_000_000, 800_000_000]


def test_the_same_dice_give_the_same_schedule() -> None:
    assert times(Arrivals()) == times(Arrivals())
