"""The table comes to disk beside the loop, and no disk stops the daemon."""

import asyncio
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onegate.config import UsageConfig
from onegate.server import usage_file, usage_keeper
from onegate.server.account import Accounts
from onegate.server.log import Log
from onegate.server.outcome import Outcome
from onegate.server.state import LOCK, StateDirectory
from onegate.server.usage import Row, UsageTable
from onegate.server.usage_file import UsageFile
from onegate.server.usage_keeper import UsageKeeper


class Kept:
    """A table and its keeper, and what they complain about."""

    def __init__(self, directory: Path | None) -> None:
        self.every_s = 0.0
        self.table = UsageTable(UsageConfig)
        self.accounts = Accounts()
        self.notices: list[str | None] = []
        self.damage: list[str] = []
        self.stream = io.StringIO()
        self.state = None if directory is None else StateDirectory(str(directory))
        self.keeper = UsageKeeper(
            self.table,
            self.state,
            accounts=self.accounts,
            log=Log(self.stream, journal=False),
            notice=self.notices.append,
            damaged=self.damage.append,
            write_every_s=lambda: self.every_s,
        )

    def end(self, principal: str = "uid:1") -> None:
        self.table.ended(principal=principal, class_="loop", outcome=Outcome.FINISHED, now_ms=0)

    async def aclose(self, deadline_s: float) -> None:
        await self.keeper.aclose(deadline_s)
        if self.state is not None:
            await self.state.aclose(deadline_s)

    @property
    def log(self) -> str:
        return self.stream.getvalue()


def stored(directory: Path) -> list[tuple[str, int]]:
    """What a next daemon would find."""
    file = UsageFile(directory)
    found: dict[str, Row] = {}
    file.read(lambda row: found.__setitem__(row.principal, row))
    return [(name, row.finished) for name, row in found.items()]


async def until(what: Callable[[], bool]) -> None:
    """Let the loop and the thread go on until it holds."""
    for _ in range(1_000_000):
        if what():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not happen")


def threads() -> int:
    return sum(thread.name == "state" for thread in threading.enumerate())


async def test_without_a_place_nothing_is_written_and_nothing_is_wrong() -> None:
    kept = Kept(None)
    kept.end()
    await kept.keeper.write(whole=True)
    await kept.keeper.run()  # has nothing to do, so it ends
    await kept.aclose(1)
    assert (kept.table.stored, kept.notices, kept.log, threads()) == (False, [], "", 0)


async def test_what_changed_is_written_and_found_by_the_next(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.table.stored
    kept.end()
    await kept.keeper.write()
    assert stored(tmp_path) == [("uid:1", 1)]
    kept.end()
    kept.end("uid:2")
    await kept.keeper.write()
    assert stored(tmp_path) == [("uid:1", 2), ("uid:2", 1)]
    await kept.aclose(60)
    await kept.aclose(60)
    heir = Kept(tmp_path)
    assert [(r.principal, r.finished) for r in heir.table.rows()] == [("uid:1", 2), ("uid:2", 1)]
    heir.end()
    await heir.aclose(60)
    assert stored(tmp_path) == [("uid:1", 3), ("uid:2", 1)]
    assert heir.notices == kept.notices == []
    assert heir.log == kept.log == ""


async def test_it_writes_by_itself_until_it_is_cancelled(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.end()
    running = asyncio.get_running_loop().create_task(kept.keeper.run())
    await until(lambda: stored(tmp_path) == [("uid:1", 1)])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    kept.end()
    await kept.aclose(60)
    assert stored(tmp_path) == [("uid:1", 2)]


async def test_the_first_end_is_written_at_once_and_the_next_not_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    wake = asyncio.Event()
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await wake.wait()

    kept = Kept(tmp_path)
    await kept.keeper.write()
    kept.keeper._due.clear()
    kept.every_s = 7.0
    monkeypatch.setattr(usage_keeper.asyncio, "sleep", noted)
    running = asyncio.get_running_loop().create_task(kept.keeper.run())
    for _ in range(20):
        await sleep(0)
    assert slept == [], "nothing has changed, nothing is looked at"
    kept.end()
    for _ in range(1_000_000):
        if slept:
            break
        await sleep(0)
    assert slept == [7.0]
    assert stored(tmp_path) == [("uid:1", 1)]
    kept.end()
    for _ in range(20):
        await sleep(0)
    assert stored(tmp_path) == [("uid:1", 1)]
    monkeypatch.setattr(usage_keeper.asyncio, "sleep", sleep)
    wake.set()
    await until(lambda: stored(tmp_path) == [("uid:1", 2)])
    running.cancel()
    await asyncio.wait([running])
    await kept.aclose(60)


async def test_a_write_that_failed_is_made_up_for_without_a_new_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    kept.end()
    with monkeypatch.context() as broken:
        broken.setattr(UsageFile, "replace", fail)
        running = asyncio.get_running_loop().create_task(kept.keeper.run())
        await until(lambda: bool(kept.notices))
    await until(lambda: stored(tmp_path) == [("uid:1", 1)])
    running.cancel()
    await asyncio.wait([running])
    await kept.aclose(60)


async def test_a_pipe_in_the_place_of_the_new_table_holds_up_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    os.mkfifo(tmp_path / "usage.new")
    kept.end()
    async with asyncio.timeout(60):
        await kept.keeper.write(whole=True)
    assert stored(tmp_path) == [("uid:1", 1)]
    await kept.aclose(60)


async def test_a_journal_that_has_grown_is_made_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_keeper, "SPARE_LINES", 3)
    kept = Kept(tmp_path)
    most = 0
    for _ in range(20):
        kept.end()
        await kept.keeper.write()
        most = max(most, len((tmp_path / usage_file.NAME).read_bytes().splitlines()))
    assert 4 <= most <= 6
    assert stored(tmp_path) == [("uid:1", 20)]
    await kept.aclose(60)


async def test_lines_that_cannot_be_read_are_said_and_made_good(tmp_path: Path) -> None:
    first = Kept(tmp_path)
    first.end()
    await first.aclose(60)
    with (tmp_path / usage_file.NAME).open("ab") as file:
        file.write(b"half a li")
    kept = Kept(tmp_path)
    assert "usage_problem" in kept.log
    assert "count=1" in kept.log
    assert kept.notices == kept.damage == []
    await kept.keeper.write()  # before anything is appended to the half line
    assert b"half" not in (tmp_path / usage_file.NAME).read_bytes()
    assert stored(tmp_path) == [("uid:1", 1)]
    assert not (tmp_path / "usage.bad").exists(), "what a crash cut short is no evidence"
    await kept.aclose(60)


# --- what is wrong with the disk ------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, b"", b"garbage\n", b"\n\n", b"a\nb", b"\0" * 20_000])
async def test_what_is_no_table_is_put_aside_and_said(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / usage_file.NAME
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)
    kept = Kept(tmp_path)
    kept.end()
    assert kept.table.stored
    await kept.aclose(60)
    assert stored(tmp_path) == [("uid:1", 1)]
    if data == b"":
        assert kept.damage == []
        return
    (damage,) = kept.damage
    assert f"it is kept as {tmp_path}/usage.bad" in damage
    assert "state_problem" in kept.log
    aside = tmp_path / "usage.bad"
    assert aside.is_dir() if data is None else aside.read_bytes() == data


@pytest.mark.parametrize("read_only", [False, True])
async def test_what_cannot_be_put_aside_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    (tmp_path / usage_file.NAME).write_bytes(b"theirs\n")

    def fail(path: Path) -> Path:
        raise OSError(30, "Read-only file system")

    if read_only:
        (tmp_path / LOCK).mkdir()
    else:
        monkeypatch.setattr(usage_keeper, "put_aside", fail)
    kept = Kept(tmp_path)
    assert not kept.table.stored
    (notice,) = kept.notices
    assert "kept in memory" in (notice or "")
    kept.end()
    await kept.aclose(1)
    assert (tmp_path / usage_file.NAME).read_bytes() == b"theirs\n"


async def test_a_table_that_cannot_be_written_is_not_called_stored(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    kept = Kept(tmp_path)
    kept.end()
    await kept.keeper.write()
    assert kept.table.unwritten
    (tmp_path / LOCK).rmdir()
    await kept.keeper.write()
    assert not kept.table.unwritten
    assert stored(tmp_path) == [("uid:1", 1)]
    await kept.aclose(60)


async def test_a_write_that_fails_is_counted_said_once_and_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    kept.end()
    await kept.keeper.write()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(UsageFile, "append", fail)
        broken.setattr(UsageFile, "replace", fail)
        for _ in range(3):
            kept.end()
            await kept.keeper.write()
    assert kept.accounts.usage_write_failures == 3
    (notice,) = kept.notices
    assert notice is not None
    assert "No space left on device" in notice
    assert kept.log.count("usage_problem") == 1
    await kept.keeper.write()
    assert kept.notices[1:] == [None]
    assert stored(tmp_path) == [("uid:1", 4)]
    await kept.aclose(60)


async def test_after_half_a_line_all_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    kept.end()
    await kept.keeper.write()

    def half(file: UsageFile, rows: object) -> None:
        with file.path.open("ab") as out:
            out.write(b"12345678 {")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(UsageFile, "append", half)
        kept.end()
        await kept.keeper.write()
    kept.end("uid:2")
    await kept.keeper.write()
    assert stored(tmp_path) == [("uid:1", 2), ("uid:2", 1)]
    assert b"{1" not in (tmp_path / usage_file.NAME).read_bytes()
    await kept.aclose(60)


async def test_a_bug_in_writing_ends_neither_the_thread_nor_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("ours")

    with monkeypatch.context() as broken:
        broken.setattr(UsageFile, "replace", fail)
        kept.end()
        await kept.keeper.write()
    (notice,) = kept.notices
    assert notice is not None
    assert "ZeroDivisionError" in notice
    await kept.aclose(60)
    assert stored(tmp_path) == [("uid:1", 1)]


class Hung:
    """A disk that answers when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

        def wait(*arguments: Any) -> None:
            self.reached.set()
            self.go_on.wait(60)
            write(*arguments)

        monkeypatch.setattr(UsageFile, "replace", wait)


async def test_the_loop_goes_on_while_the_disk_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    kept = Kept(tmp_path)
    disk = Hung(monkeypatch, UsageFile.replace)
    kept.end()
    writing = asyncio.get_running_loop().create_task(kept.keeper.write())
    await until(disk.reached.is_set)
    kept.end()
    assert not writing.done()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await kept.aclose(0)  # gives up
    assert "has not answered" in kept.log
    disk.go_on.set()
    await until(lambda: not threads())
    assert stored(tmp_path) == [("uid:1", 2)]
    await asyncio.sleep(0)  # the answers that nobody waited for have come
    assert problems == []


def test_an_end_that_nobody_waited_for_ends_the_thread_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Hung(monkeypatch, UsageFile.replace)

    async def leave() -> None:
        kept = Kept(tmp_path)
        kept.end()
        await kept.aclose(0)

    asyncio.run(leave())
    disk.go_on.set()
    for thread in threading.enumerate():
        if thread.name == "state":
            thread.join(60)
    assert threads() == 0


async def test_the_last_write_makes_up_for_one_that_nobody_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, tries = UsageFile.replace, []

    def fails_first(*arguments: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")
        replace(*arguments)

    kept = Kept(tmp_path)
    disk = Hung(monkeypatch, fails_first)
    kept.end()
    writing = asyncio.get_running_loop().create_task(kept.keeper.write())
    await until(disk.reached.is_set)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    disk.go_on.set()
    await kept.aclose(60)
    assert stored(tmp_path) == [("uid:1", 1)]
