"""How long something stays closed, by two clocks."""

import pytest

from onegate import clock
from onegate.protocol.requests import MAX_CLOSED_MS
from onegate.server.closures import Closure
from onegate.server.term import SLACK_MS, Term

NOW = 1_000_000_000_000
HOUR = 3_600_000


class Clocks:
    """Both clocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms, self.ns = NOW, 10**12
        monkeypatch.setattr(clock, "wall_ms", lambda: self.wall_ms)
        monkeypatch.setattr(clock, "monotonic_ns", lambda: self.ns)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def term(until_ms: int | None = NOW + HOUR) -> Term:
    return Term(Closure(principal="uid:0", since_ms=NOW, until_ms=until_ms))


def test_for_ever(clocks: Clocks) -> None:
    ever = term(None)
    clocks.wall_ms += 10**15
    assert ever.left_ms() is None


def test_by_clocks_that_agree_the_walls_decides(clocks: Clocks) -> None:
    hour = term()
    assert hour.left_ms() == HOUR
    clocks.wall_ms += HOUR
    clocks.ns += HOUR * 10**6
    assert hour.left_ms() == 0


def test_set_forward_or_slept_through_it_is_over(clocks: Clocks) -> None:
    hour = term()
    clocks.wall_ms += 2 * HOUR
    assert hour.left_ms() == -HOUR


def test_set_back_it_is_no_longer_than_was_asked_for(clocks: Clocks) -> None:
    hour = term()
    clocks.wall_ms -= 24 * HOUR
    assert hour.left_ms() == HOUR + SLACK_MS
    clocks.ns += (HOUR + SLACK_MS) * 10**6
    assert hour.left_ms() == 0


def test_no_time_is_longer_than_the_longest(clocks: Clocks) -> None:
    assert term(2**53 - 1).left_ms() == MAX_CLOSED_MS + SLACK_MS
