"""The event log on disk: in order, within its bound, and never in the way."""

import io
import os
import stat
from pathlib import Path

import pytest

from onegate.admission.events import SeatFreed, Tick, Withdrawn
from onegate.config import Config
from onegate.server import event_log as module
from onegate.server.event_lines import Began, Line, Lost, Step, WentOn, encode, read
from onegate.server.event_log import EventLog
from onegate.server.log import Log
from onegate.server.translate import class_specs, gate_limits

BEGAN = Began(gate_limits(Config()), class_specs(Config()), ())
PLENTY = 1 << 20


class Written:
    """A log at a path, and the journal of its daemon."""

    def __init__(self, path: Path, max_bytes: int = PLENTY) -> None:
        self.path = path
        self.journal = io.StringIO()
        log = Log(self.journal, journal=True)
        self.events = EventLog(str(path), max_bytes, began=BEGAN, log=log)

    def steps(self, *numbers: int) -> None:
        for n in numbers:
            self.events.record(n, SeatFreed(n), [])

    async def end(self) -> None:
        await self.events.aclose(5.0)

    def lines(self) -> list[Line]:
        return list(read(str(self.path)))


def step(n: int) -> Step:
    return Step(n, SeatFreed(n), ())


async def test_steps_are_written_in_order(tmp_path: Path) -> None:
    written = Written(tmp_path / "e")
    written.steps(1)  # what comes before the file is open waits
    written.events.begin()
    written.steps(2, 3)
    await written.end()
    assert written.lines() == [BEGAN, step(1), step(2), step(3)]
    assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o600
    assert written.journal.getvalue() == ""


async def test_what_is_made_of_a_step_is_written_as_it_was(tmp_path: Path) -> None:
    written = Written(tmp_path / "e")
    written.events.begin()
    effects: list[object] = []
    written.events.record(1, Tick(), effects)  # type: ignore[arg-type]
    effects.append("later")
    await written.end()
    assert written.lines()[1:] == [Step(1, Tick(), ())]


async def test_after_the_end_nothing_is_written(tmp_path: Path) -> None:
    written = Written(tmp_path / "e")
    written.events.begin()
    await written.end()
    written.steps(1)
    assert written.lines() == [BEGAN]
    assert len(written.events._waiting) == 0


async def test_both_files_stay_within_the_bound(tmp_path: Path) -> None:
    room = 2 * (len(encode(BEGAN)) + 10 * len(encode(step(10))))
    written = Written(tmp_path / "e", room)
    written.events.begin()
    written.steps(*range(10, 20))
    await written.end()
    assert not (tmp_path / "e.1").exists()
    written = Written(tmp_path / "e", room)
    written.events.begin()
    written.steps(*range(10, 21))
    await written.end()
    assert written.lines() == [BEGAN, *map(step, range(10, 20)), WentOn(), step(20)]
    written = Written(tmp_path / "e", room)
    written.events.begin()
    written.steps(*range(10, 99))
    await written.end()
    sizes = [(tmp_path / name).stat().st_size for name in ("e", "e.1")]
    assert sum(sizes) <= room
    lines = written.lines()
    assert lines[0] == WentOn()  # the beginning is gone
    assert lines[-1] == step(98)


async def test_the_log_of_the_daemon_before_becomes_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("old")
    written = Written(tmp_path / "e")
    written.events.begin()
    await written.end()
    assert (tmp_path / "e.1").read_text() == "old"
    assert written.lines() == [BEGAN]


async def test_steps_that_find_no_room_are_counted_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    written = Written(tmp_path / "e")
    written.steps(1, 2, 3, 4)
    written.events._waiting.popleft()  # as the thread does
    written.steps(5, 6)
    written.events.begin()
    await written.end()
    assert written.lines() == [BEGAN, step(2), Lost(2), step(5), Lost(1)]
    assert "event_log_problem" in written.journal.getvalue()
    assert "count=3" in written.journal.getvalue()


async def test_a_name_that_is_no_text_costs_its_step_alone(tmp_path: Path) -> None:
    from onegate.admission.events import ClassOpened

    written = Written(tmp_path / "e")
    written.steps(1)
    written.events.record(2, ClassOpened("\udc80"), [])
    written.steps(3)
    written.events.begin()
    await written.end()
    assert written.lines() == [BEGAN, step(1), Lost(1), step(3)]


@pytest.mark.parametrize("kind", ["nowhere", "directory", "pipe", "link"])
async def test_where_nothing_can_be_written_the_daemon_goes_on(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "e"
    match kind:
        case "nowhere":
            path = tmp_path / "missing" / "e"
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
    written = Written(path)
    written.events.begin()
    written.steps(1)
    await written.end()
    assert len(written.events._waiting) == 0
    assert "no more events are recorded" in written.journal.getvalue()
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "e.1").exists()


async def test_a_disk_that_fails_ends_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(tmp_path / "e")
    written.events.begin()

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "write", full)
    written.events.record(1, Withdrawn(1), [])
    await written.end()
    monkeypatch.undo()
    assert "No space left on device; no more events are recorded" in written.journal.getvalue()
    assert written.lines() == [BEGAN]
    assert written.events._fd is None


async def test_a_write_that_takes_a_part_goes_on_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(module.os, "write", lambda fd, data: real(fd, bytes(data[:7])))
    written = Written(tmp_path / "e")
    written.events.begin()
    written.steps(1)
    await written.end()
    assert written.lines() == [BEGAN, step(1)]
