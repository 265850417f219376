"""Points of the plots."""

from typing import Any

from onegate.bench.record import Outcome
from onegate.bench.series import cdf, seats


def test_a_cdf_has_the_share_at_or_below_each_value() -> None:
    assert cdf([3.0, 1.0, 2.0, 4.0]) == [(1.0, 0.25), (2.0, 0.5), (3.0, 0.75), (4.0, 1.0)]
    assert cdf([5.0]) == [(5.0, 1.0)]
    assert cdf([]) == []


def test_equal_values_are_one_step() -> None:
    assert cdf([2.0, 1.0, 1.0, 1.0]) == [(1.0, 0.75), (2.0, 1.0)]
    assert cdf([7.0] * 9999 + [8.0]) == [(7.0, 0.9999), (8.0, 1.0)]


def test_a_long_cdf_is_thinned_and_keeps_its_ends() -> None:
    found = cdf([float(i) for i in range(10_000)])
    assert len(found) == 200
    assert (found[0], found[-1]) == ((0.0, 0.0001), (9999.0, 1.0))
    assert all(share == (value + 1) / 10_000 for value, share in found)


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
