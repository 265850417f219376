"""How many may do something at a time, and how many may wait for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Full(Exception):
    """No place, and none to wait in. The text says for whom."""


class Bound:
    """`at_once` places, `waiting` more in line for one, first come first served; of both together
    one client has at most `each`, so that nobody fills it alone."""

    def __init__(self, at_once: int, *, waiting: int, each: int) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._total = at_once + waiting
        self._each = each
        self._held: Counter[Hashable] = Counter()

    @property
    def held(self) -> int:
        """Places taken and waited for."""
        return self._held.total()

    @asynccontextmanager
    async def place(self, client: Hashable) -> AsyncIterator[None]:
        """One place, as long as the block runs. Raises Full at once where there is no more room."""
        if self._held[client] >= self._each:
            raise Full(f"you have {self._each} requests of this kind under way already")
        if self.held >= self._total:
            raise Full(f"{self._total} requests of this kind are under way already")
        self._held[client] += 1
        try:
            async with self._places:
                yield
        finally:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
