"""Curves for the report's plots, thinned so that a page stays small."""

from collections.abc import Iterable, Sequence

from onegate.bench.record import Outcome, Record
from onegate.bench.stats import percentile

Point = tuple[float, float]
_CDF_POINTS = 200
_TIME_POINTS = 240


def cdf(values: Sequence[float]) -> list[Point]:
    """(value, share at or below it), from 0 to 1 in even steps of share."""
    if not values:
        return []
    ordered = sorted(values)
    n = min(_CDF_POINTS, len(ordered))
    if n == 1:
        return [(ordered[0], 0.0), (ordered[0], 1.0)]
    return [(percentile(ordered, i / (n - 1)), i / (n - 1)) for i in range(n)]


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
