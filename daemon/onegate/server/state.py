"""The directory of what outlives the daemon: its lock, its files, and the thread that writes them.

Whatever lies there in the place of a file is met without waiting: a pipe, a device, a link or a
folder is an error, never a write that does not end or goes elsewhere. A file is replaced by a
rename, so at every moment it is whole: the old one or the new one.
"""

import asyncio
import errno
import fcntl
import os
import queue
import stat
import threading
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

LOCK = "daemon.lock"
# Each is what somebody may want to look at; more than these are of one cause.
MOST_ASIDE = 9

Job = Callable[[], None]
Kept = TypeVar("Kept", bound=msgspec.Struct)


class StateUnavailable(Exception):
    """Another daemon has that directory; the text says what to do."""


class StateDirectory:
    """One daemon's directory, locked for as long as it is open.

    What is done to its files is done in a thread of its own, one job after the other, so that a
    slow disk holds up nobody but who waits for it. `problem` says why it could not be written when
    it was opened, such as a disk that is mounted read-only: what lies in it may be read all the
    same, and each job tries again whether it can be had now.
    """

    def __init__(self, directory: str) -> None:
        """Raises StateUnavailable: another daemon has it."""
        self.path = Path(directory)
        self.problem: str | None = None
        self._lock: int | None = None
        try:
            self._take()
        except OSError as error:
            self.problem = cannot(f"use {directory}", error)
        self._closing = False
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        # A daemon thread: a disk that never answers must not keep the process from ending.
        threading.Thread(target=_work, args=(self._jobs,), name="state", daemon=True).start()

    async def done(self, job: Job) -> Exception | None:
        """Carry out `job` in the thread, where the directory is ours; returns what was raised.
        Cancelled, nobody knows whether it was carried out."""

        def hold_and_do() -> None:
            self._hold()
            job()

        return await self._in_turn(hold_and_do)

    async def _in_turn(self, job: Job) -> Exception | None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Exception | None] = loop.create_future()

        def carry_out() -> None:
            error: Exception | None = None
            try:
                job()
            except Exception as failure:
                # Whatever it is, it is said on the loop; a thread that ended here would write no
                # more.
                error = failure
            with suppress(RuntimeError):  # the loop is closed: the daemon has ended
                loop.call_soon_threadsafe(_settle, done, error)

        self._jobs.put(carry_out)
        return await done

    async def aclose(self, deadline_s: float) -> None:
        """Let another daemon have it, after the jobs there are or that time. Safe to call twice."""
        if self._closing:
            return
        self._closing = True
        with suppress(TimeoutError):  # the end of the process unlocks it as well
            async with asyncio.timeout(deadline_s):
                await self._in_turn(self._unlock)
        self._jobs.put(None)

    def _take(self) -> None:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        lock = open_file(self.path / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            what = f"another daemon keeps its state in {self.path}"
            raise StateUnavailable(f"{what}: set usage.directory for this one") from None
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def _hold(self) -> None:
        """See that it is ours still, or now. Raises OSError or StateUnavailable."""
        if self._lock is not None:
            try:
                if os.path.samestat(os.fstat(self._lock), os.lstat(self.path / LOCK)):
                    return
            except FileNotFoundError:
                if not self.path.is_dir():
                    raise  # it may come back as it was
        # Whoever removed it and made it anew may have given it to another daemon.
        self._unlock()
        self._take()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _settle(done: "asyncio.Future[Exception | None]", error: Exception | None) -> None:
    if not done.done():
        done.set_result(error)


def _work(jobs: "queue.SimpleQueue[Job | None]") -> None:
    """The thread: one job after the other, until told to end."""
    while (job := jobs.get()) is not None:
        job()


# --- files; all of it blocks, and raises OSError --------------------------------------------------


def open_file(path: Path, flags: int) -> int:
    """A descriptor of an ordinary file, made for its owner alone where `flags` make it."""
    # Without O_NONBLOCK a pipe would wait for its other end.
    safe = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    fd = os.open(path, flags | safe, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "there is something that is no ordinary file", str(path))
    return fd


def append(path: Path, data: bytes) -> None:
    """Write behind what is there; the file must exist. After an error half of it may be there."""
    fd = open_file(path, os.O_WRONLY | os.O_APPEND)
    try:
        _write(fd, data)
    finally:
        os.close(fd)


def replace(path: Path, pieces: Iterable[bytes | bytearray]) -> None:
    """Make the file consist of these. After an error it is as it was, or new and whole."""
    new = path.with_suffix(".new")
    # Of a daemon that was killed, or of another hand: writing into it is never right.
    with suppress(FileNotFoundError):
        os.unlink(new)
    fd = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            for piece in pieces:
                _write(fd, piece)
            # Or the name may reach the disk before the contents, and a loss of power would leave
            # an empty file where the old one was.
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(new, path)
    except BaseException:
        os.unlink(new)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def put_aside(path: Path) -> Path:
    """Keep what is in the place of a file beside it, under a name that nothing else has; returns
    where.

    An ordinary file stays in its place as well, so that no moment is without it: it is to be
    replaced, or removed. Anything else is moved. What was put aside before is never touched.
    """
    ordinary = stat.S_ISREG(os.lstat(path).st_mode)
    for n in range(1, MOST_ASIDE + 1):
        aside = path.with_name(f"{path.stem}.bad{n if n > 1 else ''}")
        try:
            if os.path.samestat(os.lstat(aside), os.lstat(path)):
                return aside  # by a daemon that was killed before it could go on
            continue
        except FileNotFoundError:
            pass
        if not (ordinary and _named_again(path, aside)):
            os.rename(path, aside)
        return aside
    what = f"{MOST_ASIDE} were put aside before, and are to be looked at and moved away"
    raise OSError(errno.EEXIST, what, str(path.with_suffix(".bad")))


def _named_again(path: Path, aside: Path) -> bool:
    """Give a file a second name; false where this file system or the file's owner has none."""
    try:
        os.link(path, aside, follow_symlinks=False)
    except OSError:
        return False
    return True


def _write(fd: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        n_bytes = os.write(fd, view)
        view = view[n_bytes:]


# --- lines ----------------------------------------------------------------------------------------


def to_line(kept: msgspec.Struct) -> bytes:
    """A struct as a line: the CRC-32 of its JSON in hexadecimal, a space, the JSON."""
    text = msgspec.json.encode(kept)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def from_line(line: bytes, type: type[Kept]) -> Kept | None:
    """The struct of a line; None where it is cut short, damaged, or no such struct."""
    checksum, _, text = line.partition(b" ")
    text = text[:-1]  # the end of the line; without it something else is missing now
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.MsgspecError:
        return None  # of another version, or of another hand


# --- words ----------------------------------------------------------------------------------------


def cannot(what: str, error: OSError) -> str:
    """A sentence about what the disk does not let us do."""
    return f"cannot {what}: {error.strerror or error}; mend that, or set usage.directory"


def why(error: Exception) -> str:
    """What went wrong with a write, and with which file."""
    if isinstance(error, StateUnavailable):
        return str(error)
    if not isinstance(error, OSError):
        return repr(error)
    said = error.strerror or str(error)
    return said if error.filename is None else f"{said}: {error.filename}"
