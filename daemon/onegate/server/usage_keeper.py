"""Brings the table of use to disk, off the event loop, and never stops serving because of it.

Rows go to a thread that does nothing but write, every few seconds and once more at the end. What
was written has reached the kernel, so the end of the process, however sudden, loses none of it.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from onegate.server.account import Accounts
from onegate.server.log import Event, Log
from onegate.server.usage import UsageTable
from onegate.server.usage_file import SPARE_LINES, UsageFile, UsageUnavailable

Job = Callable[[], None]


class UsageKeeper:
    """One daemon's table and its file. `notice` is told what is wrong, or None.

    `directory` None: the table is kept in memory alone, which is nobody's fault.
    """

    def __init__(
        self,
        usage: UsageTable,
        directory: str | None,
        *,
        accounts: Accounts,
        log: Log,
        notice: Callable[[str | None], None],
        write_every_s: Callable[[], float],
    ) -> None:
        self._usage = usage
        self._accounts = accounts
        self._log = log
        self._notice = notice
        self._write_every_s = write_every_s
        self._problem: str | None = None
        self._file = None if directory is None else self._open(directory)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        if self._file is not None:
            usage.stored = True
            # A daemon thread: a disk that never answers must not keep the process from ending.
            threading.Thread(target=_work, args=(self._jobs,), name="usage", daemon=True).start()

    def _open(self, directory: str) -> UsageFile | None:
        """The file, with all it holds taken into the table."""
        try:
            file = UsageFile(directory)
        except UsageUnavailable as error:
            self._say(f"{error}; what is used is kept in memory")
            return None
        try:
            passed_over = file.read(self._usage.restore)
        except UsageUnavailable as error:
            file.close()
            self._say(f"{error}; what is used is kept in memory")
            return None
        if passed_over:
            # Usually the one line that a crash cut short.
            detail = "lines could not be read and are passed over"
            self._log.event(
                Event.USAGE_PROBLEM, path=str(file.path), count=passed_over, detail=detail
            )
        self._usage.lost()  # the first write makes the file good and small
        return file

    async def run(self) -> None:
        """Write every few seconds, until cancelled."""
        while self._file is not None:
            await asyncio.sleep(self._write_every_s())
            await self.write()

    async def write(self, *, whole: bool = False) -> None:
        """Write what has changed, if anything has. Cancelled, nobody knows whether it did."""
        if self._file is None:
            return
        n_rows = self._usage.n_rows
        whole = whole or self._file.n_lines > 2 * n_rows + SPARE_LINES
        batch = self._usage.take(whole=whole)
        if batch is None:
            return
        rows, whole = batch
        file = self._file
        error = await self._done(lambda: file.replace(rows) if whole else file.append(rows))
        if error is None:
            self._say(None)
            return
        self._usage.lost()
        self._accounts.usage_write_failures += 1
        why = error.strerror or str(error) if isinstance(error, OSError) else repr(error)
        self._say(f"cannot write {self._file.path}: {why}; it is tried again")

    async def aclose(self, deadline_s: float) -> None:
        """Write all there is and let go of the file, within that time."""
        if self._file is None:
            return
        try:
            async with asyncio.timeout(deadline_s):
                await self.write(whole=True)
                await self._done(self._file.close)
        except TimeoutError:
            detail = f"the disk has not answered within {deadline_s:g} s; not all is written"
            self._log.event(Event.USAGE_PROBLEM, detail=detail)
        self._jobs.put(None)
        self._file = None

    async def _done(self, job: Job) -> Exception | None:
        """Carry out `job` in the thread; returns what it raised."""
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

    def _say(self, problem: str | None) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._notice(problem)
        if problem is not None:
            self._log.event(Event.USAGE_PROBLEM, detail=problem)


def _settle(written: "asyncio.Future[Exception | None]", error: Exception | None) -> None:
    if not written.done():
        written.set_result(error)


def _work(jobs: "queue.SimpleQueue[Job | None]") -> None:
    """The thread: one job after the other, until told to end."""
    while (job := jobs.get()) is not None:
        job()
