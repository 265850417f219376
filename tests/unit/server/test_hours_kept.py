"""A class that is closed opens in time, by the clock that people read, and is forgotten then."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onegate import clock
from onegate.server.closures import NAME, Closure
from onegate.server.state import StateDirectory

Box = Any  # of conftest.py

NOW = 1_000_000_000_000
HOUR = 3_600_000


class Clocks:
    """Both clocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms = NOW
        self.ns = 10**12
        monkeypatch.setattr(clock, "wall_ms", lambda: self.wall_ms)
        monkeypatch.setattr(clock, "monotonic_ns", lambda: self.ns)

    def pass_(self, seconds: float, *, wall_s: float | None = None) -> None:
        """So much time goes by, on the wall another one if it was set or the machine slept."""
        self.ns += round(seconds * 1e9)
        self.wall_ms += round((seconds if wall_s is None else wall_s) * 1000)


@pytest.fixture
def clocks(box: Box, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def look(box: Box) -> None:
    """The time has come at which it is looked at."""
    box.services.hours._look()


def due_s(box: Box) -> float | None:
    """In how many seconds that is."""
    timer = box.services.hours._timer
    return None if timer is None else timer.when() - asyncio.get_running_loop().time()


def pause(box: Box, class_: str = "batch", until_ms: int | None = NOW + HOUR) -> None:
    box.services.hours.pause(
        Closure(class_=class_, principal="uid:0", since_ms=NOW, until_ms=until_ms)
    )


def closed(box: Box) -> list[str]:
    return [view.name for view in box.gate.view().classes if view.closed]


async def test_a_clock_that_is_set_forward_opens_it(box: Box, clocks: Clocks) -> None:
    pause(box)
    pause(box, "loop", until_ms=None)
    clocks.pass_(60, wall_s=7200)  # or the machine has slept
    assert closed(box) == ["loop", "batch"]
    look(box)
    assert closed(box) == ["loop"]
    assert "class_unpaused class=batch detail=" in box.log.getvalue()
    assert box.services.hours.unpause("loop", "uid:0")
    assert not box.services.hours.unpause("loop", "uid:0")


async def test_a_clock_that_is_set_back_keeps_it_no_longer(box: Box, clocks: Clocks) -> None:
    pause(box)
    clocks.pass_(60, wall_s=-86_400)
    look(box)
    assert closed(box) == ["batch"]
    clocks.pass_(3541)
    look(box)
    assert closed(box) == []


async def test_what_is_left_is_told_anew(box: Box, clocks: Clocks) -> None:
    pause(box)
    clocks.pass_(60, wall_s=1800)
    look(box)
    (batch,) = [c for c in box.services.reporter.status().classes if c.name == "batch"]
    assert batch.paused_until_ms == NOW + HOUR


async def test_the_clocks_are_compared_each_minute(box: Box, clocks: Clocks) -> None:
    pause(box)
    assert (due_s(box) or 99) <= 60.1
    look(box)
    assert (due_s(box) or 99) <= 60.1
    pause(box, "loop", until_ms=NOW + 5000)
    assert (due_s(box) or 99) <= 5.1


async def test_once_the_core_has_opened_it_it_is_open(box: Box, clocks: Clocks) -> None:
    pause(box)
    clocks.pass_(3600.5, wall_s=3599)
    box.gate.open_class("loop")  # which lets the core see the time
    assert closed(box) == []
    look(box)
    assert closed(box) == []
    clocks.pass_(1)
    look(box)
    assert "class_unpaused class=batch" in box.log.getvalue()


async def test_what_is_over_leaves_the_disk(
    make_box: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = StateDirectory(str(tmp_path))
    box = make_box(directory=directory)
    writing = box.services.tasks.spawn(box.services.closures.run(), name="closures")
    wall = [NOW]
    monkeypatch.setattr(clock, "wall_ms", lambda: wall[0])
    pause(box)
    await box.services.closures.written()
    assert (tmp_path / NAME).exists()
    wall[0] += HOUR
    box.services.hours._look()
    await box.services.closures.written()
    assert not (tmp_path / NAME).exists()
    writing.cancel()
    await asyncio.wait([writing])
    await directory.aclose(60)
