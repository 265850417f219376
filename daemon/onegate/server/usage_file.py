"""The table of use on disk: a journal of rows, each with its checksum, and made small in one step.

A line is the CRC-32 of a row in hexadecimal, a space, and the row as JSON. A row is written with
its whole value, so of several lines for one row the last one holds, and reading a line twice counts
nothing twice. A line that is cut short, or damaged, is passed over. The file is replaced by a
rename, so at every moment it is whole: the old one or the new one.
"""

import fcntl
import os
import stat
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from onegate.server.usage import Row

NAME = "usage.jsonl"
LOCK = "usage.lock"
# Longer than any row, names at their longest and every count at its highest included.
MAX_LINE_BYTES = 8192
# The largest table there may be, twice. A larger file is not ours.
MAX_FILE_BYTES = 256 * 1024 * 1024
# Lines that the journal may have beyond twice its rows before it is written anew.
SPARE_LINES = 1024
_CHUNK_BYTES = 1 << 20
_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class UsageUnavailable(Exception):
    """Nothing can be kept in that directory; the text says why and what to do."""


class UsageFile:
    """The file of one daemon, locked for as long as it is open. Blocks; not for the event loop.

    `n_lines` counts the lines of the file.
    """

    def __init__(self, directory: str) -> None:
        """Raises UsageUnavailable: no such directory can be made, or another daemon has it."""
        self.path = Path(directory) / NAME
        self.n_lines = 0
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            lock = os.open(
                Path(directory) / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise UsageUnavailable(_cannot(f"use {directory}", error)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if not isinstance(error, BlockingIOError):
                raise UsageUnavailable(_cannot(f"lock {directory}", error)) from error
            what = f"another daemon keeps its use in {directory}: set usage.directory for this one"
            raise UsageUnavailable(what) from error
        self._lock: int | None = lock

    def close(self) -> None:
        """Let another daemon have it. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, take: Callable[[Row], None]) -> int:
        """Hand out every row that can be read, in order; returns how many lines could not.

        Raises UsageUnavailable for a file that cannot be read at all, which is then not to be
        written either: what it holds would be lost.
        """
        passed_over = 0
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | _AT_ONCE), "rb") as file:
                facts = os.fstat(file.fileno())
                if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
                    raise UsageUnavailable(f"{self.path} is no table of use: move it away")
                while line := file.readline(MAX_LINE_BYTES):
                    self.n_lines += 1
                    row = _row(line)
                    if row is None:
                        passed_over += 1
                    else:
                        take(row)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise UsageUnavailable(_cannot(f"read {self.path}", error)) from error
        return passed_over

    def append(self, rows: Iterable[Row]) -> None:
        """Write behind what is there. Raises OSError, after which only `replace` is safe: half a
        line may be at the end. A file that somebody took away is an error too."""
        lines = [_line(row) for row in rows]
        fd = os.open(self.path, _FLAGS | os.O_APPEND)
        try:
            _write(fd, b"".join(lines))
        finally:
            os.close(fd)
        self.n_lines += len(lines)

    def replace(self, rows: list[Row]) -> None:
        """Make the file consist of these rows. Raises OSError, and then it is as it was."""
        new = self.path.with_suffix(".new")
        fd = os.open(new, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            try:
                chunk = bytearray()
                for row in rows:
                    chunk += _line(row)
                    if len(chunk) >= _CHUNK_BYTES:
                        _write(fd, chunk)
                        chunk.clear()
                _write(fd, chunk)
                # Or the name may reach the disk before the contents, and a loss of power would
                # leave an empty file where the old one was.
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(new, self.path)
        except BaseException:
            os.unlink(new)
            raise
        self.n_lines = len(rows)


# A pipe in the place of the file must not hold up the start of the daemon.
_AT_ONCE = os.O_NONBLOCK | os.O_NOFOLLOW


def _line(row: Row) -> bytes:
    text = msgspec.json.encode(row)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _row(line: bytes) -> Row | None:
    """The row of a line, None where it is not whole."""
    checksum, _, text = line.partition(b" ")
    text = text[:-1]  # the end of the line; without it something else is missing now
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        return msgspec.json.decode(text, type=Row)
    except msgspec.MsgspecError:
        return None  # of another version, or of another hand


def _write(fd: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        n_bytes = os.write(fd, view)
        view = view[n_bytes:]


def _cannot(what: str, error: OSError) -> str:
    return f"cannot {what}: {error.strerror or error}; mend that, or set usage.directory"
