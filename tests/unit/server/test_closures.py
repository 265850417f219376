"""What is closed outlives the daemon, ends in time, and no file keeps a daemon from starting."""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from onegate import clock
from onegate.protocol.requests import MAX_CLOSED_MS
from onegate.server import closures as closures_module
from onegate.server import state
from onegate.server.closures import NAME, Closure, Closures
from onegate.server.log import Log
from onegate.server.state import StateDirectory
from onegate.tasks import Tasks

NOW = 1_000_000_000_000
HOUR = 3_600_000


def device(**more: Any) -> Closure:
    return Closure(**({"principal": "uid:0", "since_ms": NOW} | more))


def batch(**more: Any) -> Closure:
    return device(class_="batch", **more)


class Daemon:
    """Closures, where they are kept, and what they complain about."""

    def __init__(self, directory: Path | None) -> None:
        self.state = None if directory is None else StateDirectory(str(directory))
        self.notices: list[str | None] = []
        self.damage: list[str] = []
        self.stream = io.StringIO()
        self.closures = Closures(
            self.state,
            log=Log(self.stream, journal=False),
            notice=self.notices.append,
            damaged=self.damage.append,
        )
        self.running = Tasks(self._crashed).spawn(self.closures.run(), name="closures")

    def _crashed(self, name: str, error: BaseException) -> None:
        raise error

    @property
    def log(self) -> str:
        return self.stream.getvalue()

    async def killed(self) -> None:
        """What is left of it is on the disk."""
        self.running.cancel()
        await asyncio.wait([self.running])
        if self.state is not None:
            await self.state.aclose(60)


async def until(what: Callable[[], bool]) -> None:
    """Let the loop and the thread go on until it holds."""
    for _ in range(1_000_000):
        if what():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not happen")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[[], Daemon]]:
    made: list[Daemon] = []

    def start() -> Daemon:
        made.append(Daemon(tmp_path))
        return made[-1]

    yield start
    for daemon in made:
        await daemon.killed()


async def test_it_is_known_after_a_sudden_end(start: Any, tmp_path: Path) -> None:
    first = start()
    assert first.closures.restore() == []
    assert first.closures.stored
    first.closures.close(device(until_ms=NOW + HOUR))
    first.closures.close(batch(principal="uid:7"))
    await first.closures.written()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    await first.killed()
    heir = start()
    assert heir.closures.restore() == [device(until_ms=NOW + HOUR), batch(principal="uid:7")]
    heir.closures.open(None)
    await heir.closures.written()
    await heir.killed()
    third = start()
    assert third.closures.restore() == [batch(principal="uid:7")]
    third.closures.open("batch")
    third.closures.open("batch")
    await third.closures.written()
    assert not (tmp_path / NAME).exists()
    assert first.log == heir.log == third.log == ""
    assert first.notices == heir.notices == third.notices == []


async def test_the_last_word_holds(start: Any) -> None:
    first = start()
    for hours in (1, 2, 3):
        first.closures.close(device(until_ms=NOW + hours * HOUR))
    await first.closures.written()
    await first.killed()
    assert start().closures.restore() == [device(until_ms=NOW + 3 * HOUR)]


async def test_in_memory_there_is_nothing_to_wait_for() -> None:
    daemon = Daemon(None)
    assert daemon.closures.restore() == []
    daemon.closures.close(device())
    await daemon.closures.written()
    await daemon.closures.aclose(0)
    assert not daemon.closures.stored
    assert "in memory" in (daemon.closures.unknown(None) or "")
    assert daemon.closures.unknown("batch") is None, "what is open is so after a restart"
    await daemon.running  # has nothing to do, so it ends


async def test_what_nobody_wrote_yet_is_written_at_the_end(start: Any) -> None:
    first = start()
    first.running.cancel()
    first.closures.close(device())
    await first.closures.aclose(60)
    await first.killed()
    assert start().closures.restore() == [device()]


# --- time -----------------------------------------------------------------------------------------


async def test_what_is_over_is_forgotten(start: Any, tmp_path: Path, monkeypatch: Any) -> None:
    first = start()
    first.closures.close(device(until_ms=NOW + HOUR))
    first.closures.close(batch(until_ms=NOW + HOUR))
    await first.closures.written()
    await first.killed()
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW + HOUR)
    heir = start()
    assert heir.closures.restore() == []
    await heir.closures.written()
    assert not (tmp_path / NAME).exists()
    assert "engine_taken_back" in heir.log
    assert "class_unpaused class=batch" in heir.log
    assert heir.log.count("over before this daemon started") == 2


async def test_what_is_over_is_not_written_again(start: Any, monkeypatch: Any) -> None:
    first = start()
    first.closures.close(batch(until_ms=NOW + HOUR))
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW + 2 * HOUR)
    first.closures.close(device())
    await first.closures.written()
    await first.killed()
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW)  # set back
    assert start().closures.restore() == [device()]


@pytest.mark.parametrize(
    ("until_ms", "now_ms", "left_ms"),
    [
        (None, NOW, None),
        (NOW + HOUR, NOW, HOUR),
        (NOW + HOUR, NOW + 1, HOUR - 1),
        (NOW + HOUR, NOW + HOUR, 0),
        (NOW + HOUR, NOW + 9 * HOUR, 0),
        (NOW + HOUR, NOW - 10 * HOUR, HOUR),  # the clock was set back
        (NOW + HOUR, 0, HOUR),
        (NOW - 1, NOW - HOUR, 0),  # over before it began
        (2**53, NOW, MAX_CLOSED_MS),
    ],
)
def test_how_long_it_goes_on(until_ms: int | None, now_ms: int, left_ms: int | None) -> None:
    assert device(until_ms=until_ms).left_ms(now_ms) == left_ms


# --- what lies in the place of the file -----------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"garbage",
        b"\0" * 5000,
        b"\n" * 200_000,
        state.to_line(device())[:-3],
        state.to_line(device()).replace(b"uid:0", b"uid:1"),
        b"x" * (closures_module.MAX_FILE_BYTES + 1),
    ],
)
async def test_garbage_is_put_aside_and_said(start: Any, tmp_path: Path, data: bytes) -> None:
    (tmp_path / NAME).write_bytes(data)
    daemon = start()
    assert daemon.closures.restore() == []
    assert "state_problem" in daemon.log
    assert str(tmp_path / "closed.bad") in daemon.log
    assert (tmp_path / "closed.bad").read_bytes() == data
    daemon.closures.close(device())
    await daemon.closures.written()
    await daemon.killed()
    assert start().closures.restore() == [device()]


async def test_what_can_be_read_beside_garbage_holds(start: Any, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"garbage\n" + state.to_line(device()) + b"more\n")
    daemon = start()
    assert daemon.closures.restore() == [device()]
    assert "2 of 3 lines cannot be read" in daemon.log
    (damage,) = daemon.damage
    assert f"{NAME}: 2 of 3 lines cannot be read; it is kept as {tmp_path}/closed.bad" in damage
    # Before anything else is done, so that nothing is lost where the daemon is killed now.
    assert (tmp_path / NAME).read_bytes() == state.to_line(device())


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
async def test_what_is_no_file_is_put_aside(start: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / NAME
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("/dev/zero")
    daemon = start()
    assert daemon.closures.restore() == []
    assert "state_problem" in daemon.log
    assert NAME not in os.listdir(tmp_path)
    daemon.closures.close(device())
    await daemon.closures.written()
    assert path.read_bytes() == state.to_line(device())


@pytest.mark.parametrize("kind", ["directory", "file"])
async def test_what_was_put_aside_before_is_left_alone(
    start: Any, tmp_path: Path, kind: str
) -> None:
    (tmp_path / NAME).write_bytes(b"garbage")
    if kind == "directory":
        (tmp_path / "closed.bad").mkdir()
    else:
        (tmp_path / "closed.bad").write_bytes(b"older")
    daemon = start()
    assert daemon.closures.restore() == []
    assert f"it is kept as {tmp_path}/closed.bad2" in daemon.log
    assert (tmp_path / "closed.bad2").read_bytes() == b"garbage"
    assert kind == "directory" or (tmp_path / "closed.bad").read_bytes() == b"older"


async def test_what_cannot_be_put_aside_is_not_written_over(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closures_module, "RETRY_S", 0)
    (tmp_path / NAME).write_bytes(b"garbage\n" + state.to_line(device()))

    def fail(path: Path) -> Path:
        raise OSError(30, "Read-only file system", str(path))

    daemon = start()
    with monkeypatch.context() as broken:
        broken.setattr(state, "put_aside", fail)
        assert daemon.closures.restore() == [device()]
        assert "it cannot be put aside yet: Read-only file system" in daemon.damage[0]
        daemon.closures.close(batch())
        await daemon.closures.written()
        assert daemon.closures.unknown("batch") is not None
        assert (tmp_path / NAME).read_bytes().startswith(b"garbage")
    await until(lambda: daemon.closures.unknown("batch") is None and daemon.notices[-1] is None)
    assert (tmp_path / "closed.bad").read_bytes().startswith(b"garbage")
    await daemon.killed()
    assert start().closures.restore() == [device(), batch()]


async def test_a_daemon_that_is_killed_while_it_mends_the_file_loses_nothing(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).write_bytes(state.to_line(device()) + b"cut sho")
    first = start()

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    for name in ("replace", "put_aside"):
        with monkeypatch.context() as dying:
            dying.setattr(state, name, killed)
            with pytest.raises(Killed):
                first.closures.restore()
        assert state.to_line(device()) in (tmp_path / NAME).read_bytes()
    await first.killed()
    heir = start()
    assert heir.closures.restore() == [device()]
    assert {"closed.bad", NAME} == {n for n in os.listdir(tmp_path) if n.startswith("closed")}


@pytest.mark.parametrize("damaged", [False, True])
async def test_it_is_read_where_nothing_can_be_written(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    monkeypatch.setattr(closures_module, "RETRY_S", 0)
    data = state.to_line(device()) + b"garbage\n" * damaged
    (tmp_path / NAME).write_bytes(data)
    real = state.open_file

    def read_only(path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags)

    with monkeypatch.context() as mounted:
        mounted.setattr(state, "open_file", read_only)
        daemon = start()
        assert daemon.closures.restore() == [device()]
        assert ("cannot be put aside yet" in "".join(daemon.damage)) is damaged
        await until(lambda: bool(daemon.notices))
        assert "restart of the daemon would not know" in (daemon.notices[0] or "")
        assert "Read-only file system" in (daemon.notices[0] or "")
        daemon.closures.open(None)
        await daemon.closures.written()
        assert "Read-only file system" in (daemon.closures.unknown(None) or "")
        assert (tmp_path / NAME).read_bytes() == data
    await until(lambda: daemon.notices[-1] is None)
    assert not (tmp_path / NAME).exists()
    assert (tmp_path / "closed.bad").exists() is damaged


# --- a disk that does not do as it is told --------------------------------------------------------


async def test_a_write_that_fails_is_said_and_made_up_for(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closures_module, "RETRY_S", 0)
    daemon, tries = start(), []

    def fail(*_: object) -> None:
        tries.append(1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(state, "replace", fail)
        daemon.closures.close(device())
        assert "has not answered" in (daemon.closures.unknown(None) or "")
        await daemon.closures.written()  # an administrator is not kept waiting for it
        assert "No space left on device" in (daemon.closures.unknown(None) or "")
        await until(lambda: len(tries) >= 3)
    (notice,) = daemon.notices
    assert "No space left on device" in notice
    assert "a restart of the daemon would not know" in notice
    assert daemon.log.count("state_problem") == 1
    await until(lambda: len(daemon.notices) >= 2)
    assert daemon.notices[1] is None
    assert daemon.closures.unknown(None) is None
    assert (tmp_path / NAME).read_bytes() == state.to_line(device())


async def test_what_failed_is_tried_once_more_at_the_end(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = start()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(state, "replace", fail)
        daemon.closures.close(device())
        await daemon.closures.written()
    daemon.running.cancel()
    await daemon.closures.aclose(60)
    assert (tmp_path / NAME).read_bytes() == state.to_line(device())


async def test_a_disk_that_does_not_answer_keeps_nobody_waiting(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closures_module, "PATIENCE_S", 0)
    daemon = start()

    async def never(job: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(daemon.state, "done", never)
    daemon.closures.close(device())
    await daemon.closures.written()
    daemon.running.cancel()
    await daemon.closures.aclose(0)
    monkeypatch.undo()
