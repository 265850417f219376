"""Records every step of the admission core (`[log] events_path`), off the event loop.

The loop only puts a step into a queue; a thread writes what has come since it looked last. A queue
that is full, because the disk is too slow, loses steps, and a place where some are missing says how
many. A file that is full becomes the earlier one, in the place of the one before it; so both
together stay within the bound and nothing stops for want of room. A log that can't be written ends
there, and the daemon goes on. See `event_lines` for the format, and for how it is read.
"""

import asyncio
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from onegate.admission.effects import Effect
from onegate.admission.events import Event as CoreEvent
from onegate.server.event_lines import EARLIER, Began, Lost, Step, WentOn, encode
from onegate.server.log import Event, Log

# Seconds of the busiest daemon, and some ten megabytes.
MAX_WAITING = 32_768
WRITE_EVERY_S = 0.25

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class EventLog:
    """The log of one daemon. `began` is its first line."""

    def __init__(self, path: str, max_bytes: int, *, began: Began, log: Log) -> None:
        self._path = path
        self._file_bytes = max_bytes // 2
        self._began = began
        self._log = log
        self._waiting: deque[Step | Lost] = deque()
        self._lost = 0
        self._over = False
        self._fd: int | None = None
        self._size_bytes = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def record(self, now_ns: int, event: CoreEvent, effects: list[Effect]) -> None:
        """The core was given this, and gave these. Never waits."""
        if self._over:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._lost += 1
            return
        if self._lost:
            self._waiting.append(Lost(self._lost))
            self._lost = 0
        self._waiting.append(Step(now_ns, event, tuple(effects)))

    def begin(self) -> None:
        """Open the file and start to write. What cannot be is said in the journal."""
        try:
            self._open(encode(self._began))
        except OSError as error:
            self._close()
            self._failed(error)
            return
        # A daemon thread: a disk that never answers must not keep the process from ending.
        self._thread = threading.Thread(
            target=self._work, args=(asyncio.get_running_loop(),), name="event log", daemon=True
        )
        self._thread.start()

    async def aclose(self, deadline_s: float) -> None:
        """Write what is left, within that time."""
        if self._lost:
            self._waiting.append(Lost(self._lost))
        self._over = True
        self._end.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, deadline_s)

    # --- in the thread --------------------------------------------------------------------------

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        ends = False
        while not ends:
            ends = self._end.wait(WRITE_EVERY_S)
            try:
                missing = self._write_out()
            except OSError as error:
                ends = True
                _on(loop, self._failed, error)
            else:
                if missing:
                    _on(loop, self._said_lost, missing)
        self._close()

    def _write_out(self) -> int:
        """Write what waits; returns how many steps are missing in it."""
        missing = 0
        lines = bytearray()
        for _ in range(len(self._waiting)):
            entry = self._waiting.popleft()
            try:
                line = encode(entry)
            except UnicodeError:
                entry, line = Lost(1), encode(Lost(1))
            missing += entry.count if isinstance(entry, Lost) else 0
            if self._size_bytes + len(lines) + len(line) > self._file_bytes:
                self._write(lines)
                lines.clear()
                self._turn_over()
            lines += line
        self._write(lines)
        return missing

    def _write(self, data: bytes | bytearray) -> None:
        assert self._fd is not None
        with memoryview(data) as view:
            written = 0
            while written < len(view):
                written += os.write(self._fd, view[written:])
        self._size_bytes += written

    def _turn_over(self) -> None:
        self._close()
        self._open(encode(WentOn()))

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, first: bytes) -> None:
        """A new file; one that is there becomes the earlier one. Raises OSError."""
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(self._path).st_mode):
                raise FileExistsError(None, "something else than a log is there", self._path)
            os.rename(self._path, self._path + EARLIER)
        self._fd = os.open(self._path, _NEW, 0o600)
        self._size_bytes = 0
        self._write(first)

    # --- on the loop ----------------------------------------------------------------------------

    def _failed(self, error: OSError) -> None:
        self._over = True
        self._waiting.clear()
        self._log.event(
            Event.EVENT_LOG_PROBLEM,
            path=self._path,
            detail=f"{error.strerror or error}; no more events are recorded",
        )

    def _said_lost(self, count: int) -> None:
        detail = "steps are missing in the event log"
        self._log.event(Event.EVENT_LOG_PROBLEM, path=self._path, count=count, detail=detail)


def _on(loop: asyncio.AbstractEventLoop, call: Callable[[Any], None], what: object) -> None:
    with suppress(RuntimeError):  # the loop is closed: the daemon has ended
        loop.call_soon_threadsafe(call, what)
