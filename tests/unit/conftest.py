"""For every unit test: signals are as they were, whatever a test has had installed."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest


def dispositions() -> dict[int, Any]:
    """What this process does with each signal."""
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


@pytest.fixture(autouse=True)
def _signals_are_left_alone() -> Iterator[None]:
    """A disposition that a test leaves behind would change those after it, in the order of that
    run alone, and every process that they start."""
    before = dispositions()
    yield
    changed = {n: now for n, now in dispositions().items() if now != before[n]}
    for number in changed:
        signal.signal(number, before[number])
    assert not changed, f"left behind: {changed}; see the fixture own_signals"


@pytest.fixture
def own_signals(_signals_are_left_alone: None) -> Iterator[None]:
    """For tests of what installs dispositions for the whole process: undone afterwards."""
    before = dispositions()
    yield
    for number, now in dispositions().items():
        if now != before[number]:
            signal.signal(number, before[number])
