"""The only place that starts asyncio tasks.

The event loop keeps weak references only, so a task nobody holds can vanish while it runs, and an
exception nobody awaits is reported when the object is collected, if ever. `Tasks` holds every task
by a strong reference, knows its name, and hands each crash to one callback.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """A set of running tasks that share one owner and one end.

    `on_crash(name, error)` is called on the loop for a task that ended with an exception other
    than cancellation. The owner decides what that means; it is never ignored here.
    """

    def __init__(self, on_crash: Callable[[str, BaseException], None]) -> None:
        self._on_crash = on_crash
        self._live: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._live)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start `coro` as a task that is held until it ends."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._live.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._live.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(task.get_name(), error)

    async def aclose(self) -> None:
        """Cancel what still runs and wait for all of it; safe to call twice."""
        for task in tuple(self._live):
            task.cancel()
        while self._live:
            await asyncio.wait(tuple(self._live))
