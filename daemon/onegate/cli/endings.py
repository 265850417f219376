"""Signals end a command through its `finally` blocks, wherever they find it."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self, TypeVar

T = TypeVar("T")

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Endings:
    """`with Endings() as endings:` raises KeyboardInterrupt, or SystemExit(128 + number).

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
        found = {number: signal.getsignal(number) for number in ENDINGS}
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

    def run(self, runner: asyncio.Runner, body: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """`runner.run(body())`, unless a signal ends it, as it does outside."""
        self._loop, self._task = runner.get_loop(), None
        try:
            result = runner.run(self._follow(body))
        except asyncio.CancelledError:
            self._leave()
            raise
        finally:
            self._loop = None
        self._leave()
        return result

    async def _follow(self, body: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._task = asyncio.current_task()
        if self._number is not None:
            raise asyncio.CancelledError  # it came before the first step
        return await body()

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._loop is None:
            _end_here(number)
        self._number = number
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _leave(self) -> None:
        if self._number is not None:
            _end_here(self._number)


def _end_here(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
