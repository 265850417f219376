"""Places outside of the queue: few at a time, and in turn by principal."""

import asyncio

from onegate.server.slots import Slots
from onegate.tasks import Tasks


class Place:
    """Somebody who wants a place, and keeps it until it is told to go."""

    def __init__(self, room: "Room", name: str) -> None:
        self._go = asyncio.Event()
        self.task = room.tasks.spawn(self._run(room, name), name=name)

    async def _run(self, room: "Room", name: str) -> None:
        async with room.slots.of(name[0]):
            room.order.append(name)
            await self._go.wait()

    async def leave(self) -> None:
        self._go.set()
        await turns()

    async def cancel(self) -> None:
        self.task.cancel()
        await turns()


class Room:
    """Slots, those who want one, and the order in which they got it."""

    def __init__(self, count: int) -> None:
        self.slots = Slots(count)
        self.order: list[str] = []
        self.tasks = Tasks(lambda name, error: None)
        self.all: dict[str, Place] = {}

    async def come(self, *names: str) -> None:
        """The principal is the first letter."""
        for name in names:
            self.all[name] = Place(self, name)
        await turns()

    async def leave(self, *names: str) -> None:
        for name in names:
            await self.all[name].leave()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def end(room: Room) -> None:
    await room.tasks.aclose()
    assert len(room.slots) == 0


async def test_the_last_one_is_for_somebody_else() -> None:
    room = Room(4)
    await room.come("a1", "a2", "a3", "a4", "a5")
    assert room.order == ["a1", "a2", "a3"]
    await room.come("b1")
    assert room.order == ["a1", "a2", "a3", "b1"]
    assert len(room.slots) == 4
    await room.leave("b1")
    assert room.order[4:] == []
    await room.leave("a1")
    assert room.order[4:] == ["a4"]
    await end(room)


async def test_who_waits_gets_a_place_in_turn() -> None:
    room = Room(2)
    await room.come("a1", "b1")
    await room.come("a2", "a3", "a4", "b2", "c1", "c2")
    await room.leave("a1", "b1", "a2", "b2", "c1", "a3", "c2", "a4")
    assert room.order == ["a1", "b1", "a2", "b2", "c1", "a3", "c2", "a4"]
    assert len(room.slots) == 0
    await end(room)


async def test_a_single_place_is_for_anybody() -> None:
    room = Room(1)
    await room.come("a1", "a2", "b1")
    await room.leave("a1", "a2")
    assert room.order == ["a1", "a2", "b1"]
    await end(room)


async def test_who_gives_up_waiting_is_passed_over() -> None:
    room = Room(2)
    await room.come("a1", "b1", "c1", "c2", "d1")
    await room.all["c1"].cancel()
    await room.all["d1"].cancel()
    await room.leave("a1", "b1")
    assert room.order == ["a1", "b1", "c2"]
    assert len(room.slots) == 1
    await end(room)


async def test_a_place_that_comes_with_the_cancellation_goes_to_the_next() -> None:
    room = Room(1)
    async with room.slots.of("a"):
        await room.come("b1", "c1")
    room.all["b1"].task.cancel()  # it has the place by now, and has not run since
    await turns()
    assert room.order == ["c1"]
    assert len(room.slots) == 1
    await end(room)


async def test_a_cancellation_that_comes_before_the_place_lets_it_pass() -> None:
    room = Room(1)
    await room.come("a1", "b1", "c1")
    room.all["a1"].task.cancel()
    room.all["b1"].task.cancel()  # not told yet when a1 gives its place back
    await turns()
    assert room.order == ["a1", "c1"]
    assert len(room.slots) == 1
    await end(room)
