"""Percentiles and spreads, plain."""

import math
from collections.abc import Sequence

from msgspec import Struct


class Quantiles(Struct, frozen=True):
    """`n` values; the figures are None where there is none. Milliseconds unless said otherwise."""

    n: int
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Spread(Struct, frozen=True):
    """One figure over repeats: the median, and the lowest and the highest; infinite ones too."""

    n: int
    median: float
    low: float
    high: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie; between two values, the line between them.

    `ordered` ascending and not empty.
    """
    place = share * (len(ordered) - 1)
    below, above = math.floor(place), math.ceil(place)
    if ordered[below] == ordered[above]:
        return ordered[below]  # two infinite ones too, which have no difference
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def quantiles(values: Sequence[float]) -> Quantiles:
    """The usual four."""
    if not values:
        return Quantiles(n=0)
    ordered = sorted(values)
    return Quantiles(
        n=len(ordered),
        p50=percentile(ordered, 0.50),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
    )


def spread(values: Sequence[float]) -> Spread | None:
    """Over repeats; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(n=len(ordered), median=percentile(ordered, 0.5), low=ordered[0], high=ordered[-1])
