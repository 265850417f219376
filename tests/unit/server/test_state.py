"""The daemon's directory: one daemon at a time, and nothing that lies in it holds it up."""

import asyncio
import errno
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from onegate.server import state
from onegate.server.state import LOCK, StateDirectory, StateUnavailable


class Thing(msgspec.Struct):
    name: str


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "onegate"


def promptly(job: Callable[[], object]) -> object:
    """What `job` returns or raises; it fails the test where it waits for something."""
    ends: list[object] = []

    def run() -> None:
        try:
            ends.append(job())
        except OSError as error:
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert ends, "it waits"
    return ends[0]


# --- the directory --------------------------------------------------------------------------------


async def test_a_new_directory_is_its_owners_alone(place: Path) -> None:
    directory = StateDirectory(str(place))
    state.replace(place / "a.jsonl", [b"a"])
    await directory.aclose(60)
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in os.scandir(place)}
    assert modes == {"a.jsonl": 0o600, LOCK: 0o600}
    assert os.stat(place).st_mode & 0o777 == 0o700


async def test_one_daemon_at_a_time(place: Path) -> None:
    first = StateDirectory(str(place))
    with pytest.raises(StateUnavailable, match=r"another daemon.*usage\.directory"):
        StateDirectory(str(place))
    await first.aclose(60)
    await first.aclose(0)
    heir = StateDirectory(str(place))
    await heir.aclose(60)


async def unusable(path: Path, says: str) -> StateDirectory:
    """A directory in which nothing can be written, which each job finds out anew."""
    directory = StateDirectory(str(path))
    assert says in (directory.problem or "")
    done: list[int] = []
    assert isinstance(await directory.done(lambda: done.append(1)), OSError)
    assert done == []
    return directory


async def test_a_place_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    directory = await unusable(tmp_path / "file" / "state", "Not a directory")
    (tmp_path / "file").unlink()
    assert await directory.done(lambda: None) is None, "as soon as it can be had"
    with pytest.raises(StateUnavailable, match="another daemon"):
        StateDirectory(str(directory.path))
    await directory.aclose(60)


async def test_a_lock_that_cannot_be_had_is_not_blamed_on_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(state.fcntl, "flock", no_locks)
    await (await unusable(place, "No locks available")).aclose(60)


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
async def test_a_lock_that_is_no_file(tmp_path: Path, kind: str) -> None:
    plant(tmp_path / LOCK, kind)
    await (await unusable(tmp_path, "mend that, or set usage.directory")).aclose(60)


async def test_a_directory_that_was_taken_away_is_not_made_anew(place: Path) -> None:
    first = StateDirectory(str(place))
    away = place.with_name("away")
    os.rename(place, away)
    assert isinstance(await first.done(lambda: None), FileNotFoundError)
    os.rename(away, place)  # which fails where it was made anew
    assert await first.done(lambda: None) is None
    await first.aclose(60)


@pytest.mark.parametrize("taken", [False, True])
async def test_a_directory_that_was_removed_and_made_anew(place: Path, taken: bool) -> None:
    first, written = StateDirectory(str(place)), place / "a.jsonl"
    shutil.rmtree(place)
    os.mkdir(place)
    heir = StateDirectory(str(place)) if taken else None
    error = await first.done(lambda: state.replace(written, [b"a"]))
    if heir is None:
        assert error is None
        with pytest.raises(StateUnavailable):
            StateDirectory(str(place))
    else:
        assert error is not None
        assert "another daemon keeps its state" in state.why(error)
        assert not written.exists()
        await heir.aclose(60)
    await first.aclose(60)


async def test_jobs_are_done_in_turn_and_what_they_raise_is_told(place: Path) -> None:
    directory = StateDirectory(str(place))
    done: list[object] = []

    def job(n: int) -> None:
        done.append((n, threading.current_thread().name))

    def bug() -> None:
        raise ZeroDivisionError("ours")

    for n in range(3):
        assert await directory.done(lambda n=n: job(n)) is None  # type: ignore[misc]
    assert isinstance(await directory.done(bug), ZeroDivisionError)
    assert await directory.done(lambda: job(3)) is None
    assert done == [(n, "state") for n in range(4)]
    await directory.aclose(60)


async def test_a_disk_that_hangs_does_not_hold_up_the_end(place: Path) -> None:
    directory, go_on = StateDirectory(str(place)), threading.Event()
    async with asyncio.TaskGroup() as group:
        hung = group.create_task(directory.done(lambda: go_on.wait(60) and None))
        await asyncio.sleep(0)
        await directory.aclose(0)
        with pytest.raises(StateUnavailable):
            StateDirectory(str(place))
        go_on.set()
    assert hung.result() is None
    for thread in threading.enumerate():
        if thread.name == "state":
            thread.join(60)
    heir = StateDirectory(str(place))
    await heir.aclose(60)


# --- files ----------------------------------------------------------------------------------------


def plant(path: Path, kind: str) -> None:
    """Something else in the place of a file."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            target = path.with_name("elsewhere")
            target.write_bytes(b"theirs")
            path.symlink_to(target)
        case "nowhere":
            path.symlink_to(path.with_name("nowhere"))
        case "socket":
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(os.path.relpath(path))
        case "file":
            path.write_bytes(b"of a daemon that was killed")


KINDS = ["pipe", "directory", "link", "nowhere", "socket"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR])
def test_what_is_no_file_is_an_error_at_once(tmp_path: Path, kind: str, flags: int) -> None:
    plant(tmp_path / "a", kind)
    assert isinstance(promptly(lambda: state.open_file(tmp_path / "a", flags)), OSError)


@pytest.fixture
def read_pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe with somebody at its other end, which would take whatever is written."""
    os.mkfifo(tmp_path / "a.jsonl")
    fd = os.open(tmp_path / "a.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    yield tmp_path / "a.jsonl"
    os.close(fd)


def test_nothing_is_written_into_a_pipe_that_is_read(read_pipe: Path) -> None:
    error = promptly(lambda: state.append(read_pipe, b"secret"))
    assert isinstance(error, OSError)
    assert "no ordinary file" in str(error)


@pytest.mark.parametrize("kind", [*KINDS, "file"])
def test_what_lies_where_the_new_file_is_to_be(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"old")
    plant(tmp_path / "a.new", kind)
    error = promptly(lambda: state.replace(path, [b"n", b"ew"]))
    if kind == "directory":
        # Not ours to empty; what is wrong names it.
        assert isinstance(error, OSError)
        assert "a.new" in state.why(error)
        assert path.read_bytes() == b"old"
    else:
        assert error is None
        assert path.read_bytes() == b"new"
        assert not (tmp_path / "a.new").exists()
    if kind == "link":
        assert (tmp_path / "elsewhere").read_bytes() == b"theirs"


@pytest.mark.parametrize("kind", ["pipe", "link", "nowhere", "socket"])
def test_what_lies_in_the_place_of_the_file_is_replaced(tmp_path: Path, kind: str) -> None:
    plant(tmp_path / "a.jsonl", kind)
    assert promptly(lambda: state.replace(tmp_path / "a.jsonl", [b"new"])) is None
    assert (tmp_path / "a.jsonl").read_bytes() == b"new"
    assert not (tmp_path / "a.jsonl").is_symlink()


def test_a_replacement_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    state.replace(path, [b"old"])

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        state.replace(path, [b"new"])
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_the_file_and_its_name_are_brought_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    state.replace(tmp_path / "a.jsonl", [b"new"])
    assert synced == [str(tmp_path / "a.new"), str(tmp_path)]


@pytest.mark.parametrize("kind", [*KINDS, "file"])
@pytest.mark.parametrize("before", [None, "file", "pipe"])
def test_whatever_it_is_is_put_aside(tmp_path: Path, kind: str, before: str | None) -> None:
    plant(tmp_path / "a.jsonl", kind)
    if before is not None:
        plant(tmp_path / "a.bad", before)
    old = os.lstat(tmp_path / "a.bad") if before is not None else None
    it = os.lstat(tmp_path / "a.jsonl")
    aside = state.put_aside(tmp_path / "a.jsonl")
    assert os.path.samestat(os.lstat(aside), it)
    assert aside.name == ("a.bad" if before is None else "a.bad2")
    assert old is None or os.path.samestat(os.lstat(tmp_path / "a.bad"), old)
    # What a daemon could read something of stays until something is in its place.
    assert os.path.lexists(tmp_path / "a.jsonl") is (kind == "file")


def test_a_second_daemon_finds_what_a_first_one_put_aside_and_could_not_replace(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"garbage")
    assert state.put_aside(tmp_path / "a.jsonl") == state.put_aside(tmp_path / "a.jsonl")


def test_a_file_system_without_second_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "a.jsonl").write_bytes(b"garbage")
    assert state.put_aside(tmp_path / "a.jsonl").read_bytes() == b"garbage"


def test_there_is_an_end_to_what_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"it")
    for n in ("", *range(2, state.MOST_ASIDE + 1)):
        (tmp_path / f"a.bad{n}").mkdir()
    with pytest.raises(FileExistsError, match="were put aside before") as error:
        state.put_aside(tmp_path / "a.jsonl")
    assert error.value.filename == str(tmp_path / "a.bad")
    assert (tmp_path / "a.jsonl").read_bytes() == b"it"


# --- lines ----------------------------------------------------------------------------------------


def test_a_line_is_read_as_it_was_written() -> None:
    line = state.to_line(Thing("a"))
    assert line == b'8d762b96 {"name":"a"}\n'
    assert state.from_line(line, Thing) == Thing("a")


@pytest.mark.parametrize("line", [b"", b"\n", b"x", b'00000000 {"name":"a"}\n', b"\xff" * 20])
def test_what_is_no_line(line: bytes) -> None:
    assert state.from_line(line, Thing) is None


def test_what_went_wrong_is_said_with_the_file_it_is_about() -> None:
    assert state.why(OSError(28, "No space", "/a")) == "No space: /a"
    assert state.why(OSError(28, "No space")) == "No space"
    assert state.why(ZeroDivisionError("ours")) == "ZeroDivisionError('ours')"
