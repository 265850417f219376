"""Those who wait are told again and again, a few at a time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from onegate import clock
from onegate.server import progress as progress_module
from onegate.server.progress import AT_A_TIME, Progress


class Loop:
    """Timers that fire when the test says; `now_s` is the time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "Timer":
        entry = (self.now_s + delay_s, call)
        self.timers.append(entry)
        return Timer(self, entry)

    def run(self) -> bool:
        """Fire the one timer if it is due."""
        (entry,) = self.timers
        if entry[0] > self.now_s + 1e-9:
            return False
        self.timers.clear()
        entry[1]()
        return True


class Timer:
    """One of them."""

    def __init__(self, loop: Loop, entry: Any) -> None:
        self._loop = loop
        self._entry = entry

    def cancel(self) -> None:
        self._loop.timers.remove(self._entry)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(clock, "monotonic_ns", lambda: round(loop.now_s * 1e9))
    monkeypatch.setattr(progress_module, "PERIOD_S", 1.0)
    return loop


def add(progress: Progress, told: list[int], *rids: int) -> None:
    for rid in rids:
        progress.add(rid, lambda rid=rid: told.append(rid))  # type: ignore[misc]


def test_each_is_told_once_in_a_period_and_in_order(loop: Loop) -> None:
    progress, told = Progress(), list[int]()
    add(progress, told, 1)
    loop.now_s += 0.5
    add(progress, told, 2)
    assert told == []
    assert not loop.run()
    loop.now_s += 0.5
    assert loop.run()
    assert told == [1]
    assert not loop.run()
    loop.now_s += 0.5
    assert loop.run()
    assert told == [1, 2]
    loop.now_s += 0.5
    assert loop.run()
    assert told == [1, 2, 1]
    assert len(progress) == 2


def test_many_are_told_a_few_in_each_pass(loop: Loop) -> None:
    """Others are served between one few and the next."""
    progress, told = Progress(), list[int]()
    add(progress, told, *range(3 * AT_A_TIME + 1))
    loop.now_s += 1
    for passes in (1, 2, 3):
        assert loop.run()
        assert told == list(range(passes * AT_A_TIME))
    assert loop.run()
    assert told == list(range(3 * AT_A_TIME + 1))
    assert not loop.run()


def test_who_waits_no_more_is_not_told(loop: Loop) -> None:
    progress, told = Progress(), list[int]()
    add(progress, told, 1, 2, 3)
    progress.remove(2)
    progress.remove(2)
    loop.now_s += 1
    assert loop.run()
    assert told == [1, 3]
    progress.remove(1)
    progress.remove(3)
    assert loop.timers == []
    assert len(progress) == 0


def test_a_tell_may_end_the_wait(loop: Loop) -> None:
    progress, told = Progress(), list[int]()

    def tell() -> None:
        told.append(1)
        progress.remove(1)

    progress.add(1, tell)
    loop.now_s += 1
    assert loop.run()
    assert told == [1]
    assert loop.timers == []


def test_nobody_is_told_once_it_is_closed(loop: Loop) -> None:
    progress, told = Progress(), list[int]()
    add(progress, told, 1)
    progress.close()
    progress.close()
    assert loop.timers == []
    add(progress, told, 2)
    loop.now_s += 1
    assert loop.run()
    assert told == [2]
