"""Seats whose connection was closed before their end, until the server is seen to have let go."""

import asyncio

from onegate.clock import monotonic_ns
from onegate.engines.base import EngineError, EngineUnavailable
from onegate.engines.http.dialect import Dialect
from onegate.engines.http.link import HttpLink
from onegate.engines.http.pools import Pools
from onegate.engines.http.seats import HttpSeats, Seat

_NS_PER_S = 1_000_000_000
_SOON_NS = 100_000_000


class Quarantine:
    """Asks the dialect, at its pace, about each seat that leaves. `overdue` are those it did not
    confirm within `confirm_s`; `ghosts` what was given up so and may still run in there."""

    def __init__(
        self,
        dialect: Dialect,
        link: HttpLink,
        seats: HttpSeats,
        pools: Pools,
        *,
        confirm_s: float,
    ) -> None:
        self._dialect = dialect
        self._link = link
        self._seats = seats
        self._pools = pools
        self._confirm_ns = int(confirm_s * _NS_PER_S)
        self._asked_ns = 0
        self._wake = asyncio.Event()
        self.ghosts: list[Seat] = []

    def entered(self) -> None:
        """A seat has begun to leave."""
        self._wake.set()

    def overdue(self) -> list[Seat]:
        """Seats that the server holds on to for too long."""
        limit_ns = monotonic_ns() - self._confirm_ns
        return [seat for seat in self._seats.leaving() if (seat.left_ns or 0) <= limit_ns]

    def give_up(self, seats: list[Seat]) -> None:
        """These are not waited for any more; what may still run is remembered."""
        for seat in seats:
            if seat.left_ns is None:
                seat.left_ns = monotonic_ns()
        self.ghosts += seats

    def forget(self) -> None:
        """The server is gone, and every ghost with it."""
        self.ghosts = []

    async def haunted(self) -> bool:
        """Whether something given up still runs; raises EngineErrors."""
        while self.ghosts:
            ghost, *others = self.ghosts
            # Anew each time: those beside it have their ends meanwhile.
            facts = self._seats.facts(ghost, self._foreign(ghost.model), monotonic_ns(), others)
            if not await self._dialect.confirm(self._link, facts):
                return True
            self.ghosts = [seat for seat in self.ghosts if seat is not ghost]
        return False

    async def run(self) -> None:
        """For the engine's life."""
        while True:
            self._wake.clear()
            leaving = self._seats.leaving()
            if not leaving:
                await self._wake.wait()
                continue
            await asyncio.sleep(max(0.0, (self._due_ns(leaving) - monotonic_ns()) / _NS_PER_S))
            self._asked_ns = monotonic_ns()
            await self._round()

    def _due_ns(self, leaving: list[Seat]) -> int:
        """When to ask next. Most are let go of within moments, with the step that runs: the newest
        is asked about after as long as it has taken so far."""
        taken_ns = self._asked_ns - (leaving[-1].left_ns or 0)
        every_ns = int(self._dialect.confirm_every_s * _NS_PER_S)
        every_ns = min(every_ns, max(_SOON_NS, taken_ns))
        first_ns = (leaving[0].left_ns or 0) + int(self._dialect.confirm_first_s * _NS_PER_S)
        return max(first_ns, self._asked_ns + every_ns)

    async def _round(self) -> None:
        for seat in self._seats.leaving():
            facts = self._seats.facts(seat, self._foreign(seat.model), monotonic_ns(), self.ghosts)
            try:
                gone = await self._dialect.confirm(self._link, facts)
            except EngineUnavailable:
                return  # the keeper sees that nobody is there, and what that means
            except EngineError:
                return  # a server that is too busy to say is asked again
            if gone:
                self._pools.width(seat.model).ended(seat.id, monotonic_ns())
                self._seats.free(seat)

    def _foreign(self, model: str) -> int:
        return self._pools.width(model).foreign or 0
