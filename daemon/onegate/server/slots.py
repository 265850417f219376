"""A few places for work outside of the queue, shared by principal."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """So many places at a time, and the last one never for whoever has all the others.

    Who waits gets a place in turn with the others that wait, however much any of them has waiting.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._most_each = max(1, count - 1)
        self._held: Counter[str] = Counter()
        # Principals in the order of their turns, and what each has waiting in order of arrival.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        """Places that are taken."""
        return self._held.total()

    @asynccontextmanager
    async def of(self, principal: str) -> AsyncIterator[None]:
        """Wait for a place, and have it for the body."""
        await self._take(principal)
        try:
            yield
        finally:
            self._give(principal)

    async def _take(self, principal: str) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, deque()).append(place)
        self._hand_out()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._give(principal)  # it came in the moment of the cancellation
            else:
                self._forget(principal, place)
            raise

    def _give(self, principal: str) -> None:
        self._free += 1
        self._held[principal] -= 1
        if not self._held[principal]:
            del self._held[principal]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free and (principal := self._next()) is not None:
            queue = self._waiting.pop(principal)
            place = queue.popleft()
            if queue:
                self._waiting[principal] = queue  # behind the others from now on
            if not place.done():  # or it is cancelled, and its waiter does not know yet
                self._free -= 1
                self._held[principal] += 1
                place.set_result(None)

    def _next(self) -> str | None:
        may = (each for each in self._waiting if self._held[each] < self._most_each)
        return next(may, None)

    def _forget(self, principal: str, place: asyncio.Future[None]) -> None:
        queue = self._waiting.get(principal)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self._waiting[principal]
