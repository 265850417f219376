"""Who is inside the server: every request from its sending to the word that its seat is free."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from onegate.engines.base import EngineBroke, EngineEvent, SeatFreed
from onegate.engines.http.dialect import Leaving, Phase
from onegate.engines.stream import Stream

# What was sent so long ago has reached a server that answers at all.
_ARRIVED_NS = 1_000_000_000


@dataclass(eq=False)
class Seat:
    """One request inside. `stopped`: its reader stays and is told `Stopped`; `answered`: the
    server has begun to.

    `left_ns` is set once its connection was closed before the end: from then on it is in
    quarantine, until the server is seen to have let go. `broke` is why, where the server cut the
    connection: its reader hears of it when it is known whether the server is gone as well.
    """

    stream: Stream
    model: str
    since_ns: int
    moved_ns: int
    phase: Phase = Phase.SENT
    prefilled_tok: int = 0
    task: asyncio.Task[None] | None = None
    stopped: bool = False
    answered: bool = False
    left_ns: int | None = None
    broke: EngineBroke | None = None

    @property
    def id(self) -> int:
        """The request's."""
        return self.stream.id


class HttpSeats:
    """Every seat is told of exactly once: by `free`, or by `lose` in the list that it gives."""

    def __init__(self, tell: Callable[[EngineEvent], None]) -> None:
        self._tell = tell
        self._seats: dict[int, Seat] = {}
        self.freed: Callable[[], None] = lambda: None

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
            self.freed()
        if seat.broke is not None:
            seat.stream.end(seat.broke)

    def hear_the_cut(self) -> None:
        """The server lives: whose connection it cut hears so, and not that it died."""
        for seat in self._seats.values():
            if seat.broke is not None:
                seat.stream.end(seat.broke)

    def leaving(self) -> list[Seat]:
        """Those in quarantine, the longest first."""
        found = [seat for seat in self._seats.values() if seat.left_ns is not None]
        return sorted(found, key=lambda seat: seat.left_ns or 0)

    def facts(self, seat: Seat, foreign: int, now_ns: int, ghosts: Iterable[Seat] = ()) -> Leaving:
        """What a server's figures are to be compared with before `seat` counts as free.

        Of the others those count that the server has shown to have, or must have by now: one that
        is still on its way is in no figure yet, and would make up for one that has not left.
        `ghosts` have no seat any more and may be in there all the same.
        """
        assert seat.left_ns is not None
        others = [
            other
            for other in (*self.of(seat.model), *(g for g in ghosts if g.model == seat.model))
            if other is not seat
            and (other.answered or other.left_ns is not None or _has_arrived(other, now_ns))
        ]
        return Leaving(
            id=seat.id,
            model=seat.model,
            phase=seat.phase,
            since_ns=seat.left_ns,
            others=len(others),
            older=sum(other.since_ns <= seat.left_ns for other in others),
            foreign=foreign,
        )

    def lose(
        self, seats: list[Seat], error: EngineBroke, tell: Callable[[list[int]], None]
    ) -> None:
        """These are gone with the server: first `tell` is called, then readers hear."""
        lost = [seat for seat in seats if self._seats.pop(seat.id, None) is not None]
        tell([seat.id for seat in lost])
        self.freed()
        for seat in lost:
            # One instance each: an exception collects the frames it passes through.
            seat.stream.end(type(error)(str(error)))


def _has_arrived(seat: Seat, now_ns: int) -> bool:
    return now_ns - seat.since_ns >= _ARRIVED_NS
