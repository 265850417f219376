"""The two clocks."""

import time

import pytest

from onegate import clock


def test_the_monotonic_clock_does_not_go_back() -> None:
    times = [clock.monotonic_ns() for _ in range(100)]
    assert times == sorted(times)


def test_the_wall_clock_counts_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_999_999)
    assert clock.wall_ms() == 1_700_000_000_123
