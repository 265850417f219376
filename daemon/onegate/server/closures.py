"""What administrators have closed, a class or the device, and how it outlives the daemon.

It is written at once and whole, a line for each, and read before anything is served. A time is one
of the wall's clock. That clock may be set back, so each line also says when it was closed: nothing
stays closed for longer than was asked for.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from onegate import clock
from onegate.protocol.content import Millis
from onegate.protocol.requests import MAX_CLOSED_MS
from onegate.server import state
from onegate.server.log import Event, Log
from onegate.server.state import StateDirectory, why

NAME = "closed.jsonl"
# Every class there may be and the device come to a fraction of it.
MAX_FILE_BYTES = 1 << 20
# After a write that failed.
RETRY_S = 5.0
# An administrator is answered after so long, also where the disk does not answer.
PATIENCE_S = 5.0
IN_MEMORY = "it keeps in memory what is closed (usage.directory)"


class Closure(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"class_": "class"}):
    """Closed by `principal` at `since_ms`, until `until_ms`, both Unix time; until None: by hand.

    `class_` None: the device.
    """

    principal: Annotated[str, Meta(min_length=1, max_length=512)]
    since_ms: Millis
    until_ms: Millis | None = None
    class_: Annotated[str, Meta(min_length=1, max_length=256)] | None = None

    def left_ms(self, now_ms: int) -> int | None:
        """How long it goes on, seen from that Unix time; 0: no longer, None: until it is opened."""
        if self.until_ms is None:
            return None
        asked_ms = min(self.until_ms - self.since_ms, MAX_CLOSED_MS)
        return max(0, min(self.until_ms - now_ms, asked_ms))


class Closures:
    """One daemon's closures. `notice` is told why a restart would not know them, or None;
    `damaged` what an earlier daemon has left that could not be read.

    `directory` None: they are kept in memory alone, and end with the daemon; `in_memory` says why.
    """

    def __init__(
        self,
        directory: StateDirectory | None,
        *,
        log: Log,
        notice: Callable[[str | None], None],
        damaged: Callable[[str], None],
        in_memory: str = IN_MEMORY,
    ) -> None:
        self._directory = directory
        self._log = log
        self._notice = notice
        self._damaged = damaged
        self._in_memory = in_memory
        self._problem: str | None = None
        self._closed: dict[str | None, Closure] = {}
        self._to_put_aside = False
        self._due = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()

    # --- what is closed -------------------------------------------------------------------------

    def close(self, closure: Closure) -> None:
        """This is closed from now on, and until then."""
        self._closed[closure.class_] = closure
        self._changed()

    def open(self, class_: str | None) -> None:
        """The class, or the device, is open again."""
        if self._closed.pop(class_, None) is not None:
            self._changed()

    def _changed(self) -> None:
        if self._directory is not None:
            self._due.set()
            self._written.clear()

    # --- the disk -------------------------------------------------------------------------------

    @property
    def stored(self) -> bool:
        """Whether what is closed outlives the daemon."""
        return self._directory is not None

    def unknown(self, class_: str | None) -> str | None:
        """Why a restart of the daemon would not know what was said last about the class, or the
        device; None: it would."""
        if self._directory is None:
            return self._in_memory if class_ in self._closed else None
        if not self._written.is_set():
            return f"the disk has not answered within {PATIENCE_S:g} s"
        return self._problem

    async def written(self) -> None:
        """Wait until the disk knows what holds now, or has failed to take it: see `unknown`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._written.wait()

    def restore(self) -> list[Closure]:
        """What an earlier daemon has left that is not over yet. Blocks, for a small file.

        A file that cannot be read, or not all of it, is put aside; nothing about it keeps the
        daemon from starting. It is also read where nothing can be written: closed is the safe side.
        """
        if self._directory is None:
            return []
        if self._directory.problem is not None:
            self._changed()  # said at once, and again when it can be written
        path = self._directory.path / NAME
        try:
            with open(state.open_file(path, os.O_RDONLY), "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._mend(why(error))
            return []
        if len(data) > MAX_FILE_BYTES:
            self._mend(f"it is longer than {MAX_FILE_BYTES} bytes")
            return []
        lines = data.splitlines(keepends=True)
        found = [state.from_line(line, Closure) for line in lines]
        now_ms = clock.wall_ms()
        for closure in found:
            if closure is not None:
                self._closed[closure.class_] = closure
        for class_, closure in list(self._closed.items()):
            if closure.left_ms(now_ms) == 0:
                del self._closed[class_]
                self._changed()
                detail = "its time was over before this daemon started"
                event = Event.ENGINE_TAKEN_BACK if class_ is None else Event.CLASS_UNPAUSED
                self._log.event(event, class_=class_, until_ms=closure.until_ms, detail=detail)
        if None in found:
            self._mend(f"{found.count(None)} of {len(found)} lines cannot be read")
        return list(self._closed.values())

    def _mend(self, problem: str) -> None:
        """Put the file aside, with one that can be read in its place; at no moment is there less
        on the disk than what is closed."""
        assert self._directory is not None
        path = self._directory.path / NAME
        self._to_put_aside = True
        then = "it cannot be put aside yet"
        if self._directory.problem is None:
            try:
                then = f"it is kept as {self._put_aside()}"
                self._put(list(self._closed.values()))
            except OSError as error:
                then += f": {why(error)}"
                self._changed()
        detail = f"what was closed is not all known: {path}: {problem}; {then}"
        self._damaged(detail)
        self._log.event(Event.STATE_PROBLEM, detail=detail)

    def _put_aside(self) -> Path:
        assert self._directory is not None
        aside = state.put_aside(self._directory.path / NAME)
        self._to_put_aside = False
        return aside

    def _put(self, closures: list[Closure]) -> None:
        """Make the file consist of these. Blocks, and raises OSError."""
        assert self._directory is not None
        path = self._directory.path / NAME
        if self._to_put_aside:
            self._put_aside()
        if closures:
            state.replace(path, [state.to_line(closure) for closure in closures])
        else:
            path.unlink(missing_ok=True)

    async def run(self) -> None:
        """Write what changes, until cancelled."""
        while self._directory is not None:
            await self._due.wait()
            if await self._write():
                continue
            with suppress(TimeoutError):  # tried again, or before that when something changes
                async with asyncio.timeout(RETRY_S):
                    await self._due.wait()
            self._due.set()

    async def _write(self) -> bool:
        """Whether the disk has it now."""
        assert self._directory is not None
        self._due.clear()
        path, now_ms = self._directory.path / NAME, clock.wall_ms()
        holding = [c for c in self._closed.values() if c.left_ms(now_ms) != 0]
        error = await self._directory.done(lambda: self._put(holding))
        self._say(
            None if error is None else f"cannot write {path}: {why(error)}; it is tried again"
        )
        if not self._due.is_set():
            self._written.set()
        return error is None

    async def aclose(self, deadline_s: float) -> None:
        """Write what the disk does not know yet, within that time."""
        if not self._written.is_set() or self._problem is not None:
            with suppress(TimeoutError):  # what is wrong with the disk has been said
                async with asyncio.timeout(deadline_s):
                    await self._write()

    def _say(self, problem: str | None) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        said = None if problem is None else unknown_after_restart(problem)
        self._notice(said)
        if said is not None:
            self._log.event(Event.STATE_PROBLEM, detail=said)


def unknown_after_restart(why: str) -> str:
    """The sentence for an administrator about what is closed, or open, until a restart alone."""
    return f"a restart of the daemon would not know: {why}"
