"""Moments at which requests are sent, decided before the first is."""

import math
from random import Random

from onegate.bench.scenario import Arrivals

_NS_PER_S = 1_000_000_000


def offsets_ns(
    arrivals: Arrivals, rng: Random, *, begin_s: float, end_s: float, rate_per_s: float, load: float
) -> list[int]:
    """Nanoseconds from the start of the window, ascending, in [`begin_s`, `end_s`).

    `rate_per_s` is that of load 1; a burst ignores it and grows in size instead. Evenly spaced ones
    lie on a grid through 0, so that the warm-up does not shift the window's; or through `begin_s`,
    where they begin later than that.
    """
    zero_s = max(0.0, begin_s)
    if arrivals.kind == "burst":
        size = max(1, round(arrivals.size * load))
        times = [t for t in _grid(arrivals.every_s, zero_s, begin_s, end_s) for _ in range(size)]
    elif arrivals.kind == "deterministic":
        times = _grid(1.0 / (rate_per_s * load), zero_s, begin_s, end_s)
    else:
        cv = 1.0 if arrivals.kind == "poisson" else arrivals.cv
        times = _renewal(rng, rate_per_s * load, cv, begin_s, end_s)
    return [round(t * _NS_PER_S) for t in times]


def _grid(gap_s: float, zero_s: float, begin_s: float, end_s: float) -> list[float]:
    first = math.ceil((begin_s - zero_s) / gap_s - 1e-9)
    last = math.ceil((end_s - zero_s) / gap_s - 1e-9)
    return [zero_s + k * gap_s for k in range(first, last)]


def _renewal(
    rng: Random, rate_per_s: float, cv: float, begin_s: float, end_s: float
) -> list[float]:
    """Gaps of a gamma distribution with the mean 1 / rate and this ratio of deviation to mean.

    cv 1 is the exponential distribution, which is a Poisson process.
    """
    shape = 1.0 / (cv * cv)
    scale = 1.0 / (rate_per_s * shape)
    times = []
    at_s = begin_s + rng.gammavariate(shape, scale)
    while at_s < end_s:
        times.append(at_s)
        at_s += rng.gammavariate(shape, scale)
    return times
