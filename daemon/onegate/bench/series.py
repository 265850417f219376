"""Curves for the report's plots, thinned so that a page stays small."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from onegate.bench.record import Outcome, Record

Point = tuple[float, float]
_CDF_POINTS = 200
_TIME_POINTS = 240


def cdf(values: Sequence[float]) -> list[Point]:
    """(value, share at or below it), in about even steps of share, from the lowest value's to 1."""
    ordered = sorted(values)
    n = len(ordered)
    # The lowest, the highest, and what is evenly between them.
    ranks = (
        range(n)
        if n <= _CDF_POINTS
        else (round(i * (n - 1) / (_CDF_POINTS - 1)) for i in range(_CDF_POINTS))
    )
    picked = dict.fromkeys(ordered[rank] for rank in ranks)
    return [(value, bisect_right(ordered, value) / n) for value in picked]


def seats(records: Iterable[Record], window_s: float) -> list[Point]:
    """(second, requests that were being served), from grant or first text to the end."""
    changes: list[tuple[int, int]] = []
    for r in records:
        begun_ns = r.started_ns if r.started_ns is not None else next(iter(r.pieces_ns), None)
        if begun_ns is not None and r.outcome is not Outcome.REFUSED:
            changes.append((begun_ns, 1))
            if r.ended_ns is not None:
                changes.append((r.ended_ns, -1))
    changes.sort()
    found: list[Point] = []
    count = place = 0
    for i in range(_TIME_POINTS + 1):
        at_s = window_s * i / _TIME_POINTS
        while place < len(changes) and changes[place][0] <= at_s * 1e9:
            count += changes[place][1]
            place += 1
        found.append((at_s, float(count)))
    return found
