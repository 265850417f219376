import asyncio

from tests.unit.engines.http.fakes import until
from tests.unit.engines.http.test_seats import seat_of

from onegate.engines.base import EngineBroke
from onegate.engines.http.guests import Guests
from onegate.engines.http.seats import HttpSeats
from onegate.tasks import Tasks


class House:
    def __init__(self, limit=1):
        self.seats = HttpSeats(lambda event: None)
        self.guests = Guests(self.seats, lambda model: limit)
        self.go = asyncio.Event()
        self.inside = 0
        self.tasks = Tasks(lambda name, error: None)

    def guest(self):
        return self.tasks.spawn(self._stay(), name="guest")

    async def _stay(self):
        async with self.guests.seat("m"):
            self.inside += 1
            await self.go.wait()
        self.inside -= 1


async def some_turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_guest_waits_for_a_seat():
    house = House()
    seat = seat_of(1)
    house.seats.enter(seat)
    house.guest()
    await some_turns()
    assert house.inside == 0
    house.seats.free(seat)
    await until(lambda: house.inside == 1)
    house.guest()
    await some_turns()
    assert house.inside == 1
    house.go.set()
    await until(lambda: len(house.tasks) == 0)


async def test_a_request_waits_for_the_guest_that_has_its_seat():
    house = House()
    house.guest()
    await until(lambda: house.inside == 1)
    seat = seat_of(1)
    house.seats.enter(seat)
    room = house.tasks.spawn(house.guests.leave_room(seat), name="room")
    await some_turns()
    assert not room.done()
    house.go.set()
    await until(room.done)


async def test_nobody_waits_where_there_is_room_and_for_other_models():
    house = House(limit=2)
    house.guest()
    await until(lambda: house.inside == 1)
    for seat in (seat_of(1), seat_of(2, model="other")):
        house.seats.enter(seat)
        await house.guests.leave_room(seat)
    await house.tasks.aclose()


async def test_a_guest_that_is_cancelled_leaves_its_seat_and_a_loss_makes_room():
    house = House()
    first = house.guest()
    await until(lambda: house.inside == 1)
    first.cancel()
    house.go.set()
    house.guest()
    await until(lambda: len(house.tasks) == 0)
    seat = seat_of(1)
    house.seats.enter(seat)
    waiting = house.guest()
    await some_turns()
    assert not waiting.done()
    house.seats.lose([seat], EngineBroke("gone"), lambda ids: None)
    await until(waiting.done)
