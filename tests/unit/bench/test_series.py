"""Points of the plots."""

from typing import Any

from onegate.bench.record import Outcome
from onegate.bench.series import cdf, seats


def test_a_cdf_goes_from_nothing_to_all() -> None:
    found = cdf([3.0, 1.0, 2.0])
    assert found == [(1.0, 0.0), (2.0, 0.5), (3.0, 1.0)]
    assert cdf([5.0]) == [(5.0, 0.0), (5.0, 1.0)]
    assert cdf([]) == []
    assert len(cdf([float(i) for i in range(10_000)])) == 200


def test_seats_are_taken_from_the_grant_to_the_end(made: Any) -> None:
    records = [
        made.record(0, (5000,)),
        made.record(2000, (1000,)),
        made.record(1000, (1000,), started_ns=None),
        made.record(0, (), outcome=Outcome.REFUSED),
    ]
    found = dict(seats(records, 10.0))
    assert found[1.0] == 1
    assert found[2.5] == 2
    assert found[4.0] == 1
    assert found[10.0] == 0
