"""Questions that take a seat in the server without being one of the requests: embeddings."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from onegate.engines.http.seats import HttpSeats, Seat


class Guests:
    """A guest waits until there is a seat for it, and a request that comes meanwhile until the
    guest has left: neither waits inside the server. `limit` is how many a pool has room for."""

    def __init__(self, seats: HttpSeats, limit: Callable[[str], int]) -> None:
        self._seats = seats
        self._limit = limit
        self._inside: Counter[str] = Counter()
        self._changed = asyncio.Event()
        seats.freed = self._change

    @asynccontextmanager
    async def seat(self, model: str) -> AsyncIterator[None]:
        """One seat of a pool, as soon as there is one."""
        while len(self._seats.of(model)) + self._inside[model] >= self._limit(model):
            await self._changed.wait()
        self._inside[model] += 1
        try:
            yield
        finally:
            self._inside[model] -= 1
            self._change()

    async def leave_room(self, seat: Seat) -> None:
        """Wait until there are no guests in the way of a request that has its seat."""
        while (guests := self._inside[seat.model]) and (
            len(self._seats.of(seat.model)) + guests > self._limit(seat.model)
        ):
            await self._changed.wait()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
