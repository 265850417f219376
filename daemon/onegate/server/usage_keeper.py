"""Brings the table of use to disk, off the event loop, and never stops serving because of it.

What has changed is written at once, and then not again for `write_every_s`; once more at the end.
What was written has reached the kernel, so the end of the process, however sudden, loses none of
it: a daemon that is killed loses what has ended since the last write began, at most that time and
the disk's own.
"""

import asyncio
from collections.abc import Callable

from onegate.server.account import Accounts
from onegate.server.log import Event, Log
from onegate.server.state import StateDirectory, put_aside, why
from onegate.server.usage import UsageTable
from onegate.server.usage_file import SPARE_LINES, UsageFile


class UsageKeeper:
    """One daemon's table and its file. `notice` is told what is wrong, or None; `damaged` what an
    earlier daemon has left that could not be read.

    `state` None: the table is kept in memory alone, and whoever knows the reason has said it.
    """

    def __init__(
        self,
        usage: UsageTable,
        state: StateDirectory | None,
        *,
        accounts: Accounts,
        log: Log,
        notice: Callable[[str | None], None],
        damaged: Callable[[str], None],
        write_every_s: Callable[[], float],
    ) -> None:
        self._usage = usage
        self._state = state
        self._accounts = accounts
        self._log = log
        self._notice = notice
        self._damaged = damaged
        self._write_every_s = write_every_s
        self._problem: str | None = None
        self._due = asyncio.Event()
        self._file = None if state is None else self._open(state)
        if self._file is not None:
            usage.stored = True
            usage.on_change = self._due.set

    def _open(self, state: StateDirectory) -> UsageFile | None:
        """The file, with all it holds taken into the table."""
        file = UsageFile(state.path)
        found = file.read(self._usage.restore)
        self._usage.shrink()
        if found.problem is not None and not self._put_aside(file, state, found.problem):
            return None
        if found.passed_over:
            detail = "lines could not be read and are passed over"
            self._log.event(
                Event.USAGE_PROBLEM, path=str(file.path), count=found.passed_over, detail=detail
            )
        self._usage.lost()  # the first write makes the file good and small
        self._due.set()
        return file

    def _put_aside(self, file: UsageFile, state: StateDirectory, problem: str) -> bool:
        """Keep what will be written over; false where that cannot be done, and nothing may be."""
        detail = f"what was used is not all known: {file.path}: {problem}"
        try:
            if state.problem is not None:
                self._say(f"{detail}; {state.problem}; what is used is kept in memory")
                return False
            detail += f"; it is kept as {put_aside(file.path)}"
        except OSError as error:
            aside = f"it cannot be put aside: {why(error)}"
            self._say(f"{detail}; {aside}; what is used is kept in memory")
            return False
        self._damaged(detail)
        self._log.event(Event.STATE_PROBLEM, detail=detail)
        return True

    async def run(self) -> None:
        """Write what changes, until cancelled."""
        while self._file is not None:
            await self._due.wait()
            self._due.clear()
            await self.write()
            await asyncio.sleep(self._write_every_s())

    async def write(self, *, whole: bool = False) -> None:
        """Write what has changed, if anything has. Cancelled, nobody knows whether it did."""
        file, state = self._file, self._state
        if file is None or state is None:
            return
        n_rows = self._usage.n_rows
        whole = whole or file.n_lines > 2 * n_rows + SPARE_LINES
        batch = self._usage.take(whole=whole)
        if batch is None:
            return
        rows, whole = batch
        error = await state.done(lambda: file.replace(rows) if whole else file.append(rows))
        if error is None:
            self._say(None)
            return
        self._usage.lost()
        self._due.set()
        self._accounts.usage_write_failures += 1
        self._say(f"cannot write {file.path}: {why(error)}; it is tried again")

    async def aclose(self, deadline_s: float) -> None:
        """Write all there is, within that time."""
        if self._file is None:
            return
        try:
            async with asyncio.timeout(deadline_s):
                await self.write(whole=True)
        except TimeoutError:
            detail = f"the disk has not answered within {deadline_s:g} s; not all is written"
            self._log.event(Event.USAGE_PROBLEM, detail=detail)
        self._file = None

    def _say(self, problem: str | None) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._usage.unwritten = problem is not None
        self._notice(problem)
        if problem is not None:
            self._log.event(Event.USAGE_PROBLEM, detail=problem)
