"""SIGTERM and SIGHUP end a command through its `finally` blocks, as Ctrl-C does."""

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)


class Endings:
    """`with Endings() as endings:` raises SystemExit(128 + number) wherever the signal finds us.

    In `endings.run` it finds an event loop, which nothing may be thrown into: a handler runs
    between any two instructions, also those of other tasks. There the coroutine is cancelled.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._number: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        # One that is ignored stays ignored: `nohup` asked for that.
        found = {number: signal.getsignal(number) for number in _NUMBERS}
        for number, handler in found.items():
            if handler is not signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, runner: asyncio.Runner, coroutine: Coroutine[Any, Any, T]) -> T:
        """`runner.run(coroutine)`. Raises SystemExit if a signal ended it."""
        self._loop, self._task = runner.get_loop(), None
        try:
            result = runner.run(self._follow(coroutine))
        except asyncio.CancelledError:
            self._leave()
            raise
        finally:
            self._loop = None
        self._leave()
        return result

    async def _follow(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        if self._number is not None:
            self._cancel()
        return await coroutine

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._loop is None:
            raise SystemExit(128 + number)
        self._number = number
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _leave(self) -> None:
        if self._number is not None:
            raise SystemExit(128 + self._number)
