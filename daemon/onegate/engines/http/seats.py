"""Who is inside the server: every request from its sending to the word that its seat is free."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onegate.engines.base import EngineBroke, EngineEvent, SeatFreed
from onegate.engines.http.dialect import Leaving, Phase
from onegate.engines.stream import Stream


@dataclass(eq=False)
class Seat:
    """One request inside. `stopped`: its reader stays and is told `Stopped`; `answered`: the
    server has begun to.

    `left_ns` is set once its connection was closed before the end: from then on it is in
    quarantine, until the server is seen to have let go.
    """

    stream: Stream
    model: str
    since_ns: int
    moved_ns: int
    phase: Phase = Phase.SENT
    task: asyncio.Task[None] | None = None
    stopped: bool = False
    answered: bool = False
    left_ns: int | None = None

    @property
    def id(self) -> int:
        """The request's."""
        return self.stream.id


class HttpSeats:
    """Every seat is told of exactly once: by `free`, or by `lose` in the list that it gives."""

    def __init__(self, tell: Callable[[EngineEvent], None]) -> None:
        self._tell = tell
        self._seats: dict[int, Seat] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._seats

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> Iterator[Seat]:
        return iter(tuple(self._seats.values()))

    def get(self, id: int) -> Seat | None:
        """The seat of a request, None where it has none."""
        return self._seats.get(id)

    def of(self, model: str) -> list[Seat]:
        """Who is inside one pool."""
        return [seat for seat in self._seats.values() if seat.model == model]

    def enter(self, seat: Seat) -> None:
        """A request is on its way in."""
        self._seats[seat.id] = seat

    def free(self, seat: Seat) -> None:
        """Nothing of it runs any more. A seat that was lost meanwhile was told of."""
        if self._seats.get(seat.id) is seat:
            del self._seats[seat.id]
            self._tell(SeatFreed(id=seat.id))

    def leaving(self) -> list[Seat]:
        """Those in quarantine, the longest first."""
        found = [seat for seat in self._seats.values() if seat.left_ns is not None]
        return sorted(found, key=lambda seat: seat.left_ns or 0)

    def facts(self, seat: Seat, foreign: int) -> Leaving:
        """What a server's figures are to be compared with before `seat` counts as free.

        Of the others those count that the server has shown to have: one that is still on its way
        is in no figure yet, and would make up for one that has not left.
        """
        others = [
            other
            for other in self.of(seat.model)
            if other is not seat and (other.phase is not Phase.SENT or other.left_ns is not None)
        ]
        assert seat.left_ns is not None
        return Leaving(
            id=seat.id,
            model=seat.model,
            phase=seat.phase,
            since_ns=seat.left_ns,
            others=len(others),
            foreign=foreign,
        )

    def lose(
        self, seats: list[Seat], error: EngineBroke, tell: Callable[[list[int]], None]
    ) -> None:
        """These are gone with the server: first `tell` is called, then readers hear."""
        lost = [seat for seat in seats if self._seats.pop(seat.id, None) is not None]
        tell([seat.id for seat in lost])
        for seat in lost:
            # One instance each: an exception collects the frames it passes through.
            seat.stream.end(type(error)(str(error)))
