"""Those who wait with a deadline, earliest first."""

import pytest

from onegate.admission.promises import LOOKED_AT, Promises


def promised(*start_by_ns: int) -> Promises:
    """They are numbered as they are named."""
    promises = Promises()
    for rid, at_ns in enumerate(start_by_ns):
        promises.add((at_ns, rid, rid))
    return promises


def test_they_stand_by_their_time() -> None:
    promises = promised(30, 10, 20)
    assert len(promises) == 3
    assert [promises.place((at, rid, rid)) for at, rid in ((10, 1), (20, 2), (30, 0))] == [0, 1, 2]
    promises.remove((20, 2, 2))
    assert promises.place((30, 0, 0)) == 1
    with pytest.raises(AssertionError):
        promises.remove((20, 2, 2))


def test_nobody_is_urgent_where_nobody_waits() -> None:
    assert Promises().urgent(0, 10.0) is None


@pytest.mark.parametrize(
    ("start_by_ns", "urgent"),
    [
        ((21, 31, 41), None),
        ((20, 31, 41), 0),  # after the one who starts instead, it would be its turn just in time
        ((21, 30, 41), 0),  # somebody behind it would be late
        ((21, 31, 40), 0),
        ((41, 31, 20), 2),
    ],
)
def test_the_first_is_urgent_once_anybody_has_no_time_to_let_others_pass(
    start_by_ns: tuple[int, ...], urgent: int | None
) -> None:
    assert promised(*start_by_ns).urgent(0, 10.0) == urgent
    later = promised(*(at + 7 for at in start_by_ns))
    assert later.urgent(7, 10.0) == urgent


def test_so_many_are_looked_at() -> None:
    in_time = [10 * (place + 3) for place in range(LOOKED_AT)]
    assert promised(*in_time[:-1], in_time[-1] - 10).urgent(0, 10.0) == 0
    # The ninth would be late, and is looked at when those before it have started.
    assert promised(*in_time, in_time[-1]).urgent(0, 10.0) is None


@pytest.mark.parametrize("now_ns", [0, 7])
@pytest.mark.parametrize(
    ("at_ns", "late"),
    [
        (5, True),  # the one at 15 would start at 20
        (16, False),  # nobody is behind it but the one at 39, which has time
    ],
)
def test_a_newcomer_is_not_let_in_where_somebody_would_be_late_for_it(
    at_ns: int, late: bool, now_ns: int
) -> None:
    promises = promised(15 + now_ns, 39 + now_ns)
    key = (at_ns + now_ns, 9, 9)
    promises.add(key)
    assert promises.made_late(key, now_ns, 10.0) is late


def test_whoever_is_late_anyway_is_not_made_late() -> None:
    promises = promised(5)
    promises.add((1, 9, 9))
    assert not promises.made_late((1, 9, 9), 0, 10.0)
