import asyncio

from tests.unit.engines.http.fakes import FakeDialect, pool_of, until
from tests.unit.engines.http.test_seats import seat_of

from onegate.clock import monotonic_ns
from onegate.engines.base import EngineMalformed, SeatFreed
from onegate.engines.http.dialect import Phase
from onegate.engines.http.pools import Pools
from onegate.engines.http.quarantine import Quarantine
from onegate.engines.http.seats import HttpSeats
from onegate.tasks import Tasks


def make(confirm_s=60.0):
    told = []
    dialect, seats = FakeDialect(), HttpSeats(told.append)
    pools = Pools([pool_of()], lambda event: None)
    return Quarantine(dialect, None, seats, pools, confirm_s=confirm_s), dialect, seats, told


async def test_those_that_leave_are_asked_about_until_they_are_gone():
    quarantine, dialect, seats, told = make()
    dialect.gone = False
    tasks = Tasks(lambda name, error: None)
    tasks.spawn(quarantine.run(), name="q")
    seats.enter(seat_of(1, left_ns=monotonic_ns()))
    quarantine.entered()
    await until(lambda: len(dialect.confirmed) > 3)
    assert told == []
    dialect.gone = True
    await until(lambda: told == [SeatFreed(id=1)])
    await tasks.aclose()


async def test_an_answer_that_makes_no_sense_is_no_yes():
    quarantine, dialect, seats, told = make()

    async def broken(link, leaving):
        raise EngineMalformed("x")

    dialect.confirm = broken
    seats.enter(seat_of(1, left_ns=1))
    await quarantine._round()
    await asyncio.sleep(0)
    assert told == []


async def test_what_is_overdue_haunts_until_it_is_gone():
    quarantine, dialect, seats, _ = make(confirm_s=0.0)
    seats.enter(seat_of(1, left_ns=monotonic_ns() - 1))
    quarantine.give_up(quarantine.overdue())
    dialect.gone = False
    assert await quarantine.haunted()
    dialect.gone = True
    assert not await quarantine.haunted()
    assert quarantine.ghosts == []


async def test_nobody_is_overdue_too_early_and_the_dead_haunt_nobody():
    quarantine, dialect, seats, _ = make()
    seat = seat_of(1, left_ns=monotonic_ns())
    seats.enter(seat)
    assert quarantine.overdue() == []
    dialect.gone = False
    quarantine.give_up([seat])
    quarantine.forget()
    assert not await quarantine.haunted()


async def test_a_ghost_is_judged_by_those_that_are_there_now():
    quarantine, dialect, seats, _ = make(confirm_s=0.0)
    ghosts = [seat_of(1), seat_of(2)]
    other = seat_of(3)
    seats.enter(other)
    quarantine.give_up(ghosts)
    assert all(ghost.left_ns is not None for ghost in ghosts)
    dialect.gone = False
    assert await quarantine.haunted()
    assert dialect.confirmed[-1].others == 2
    seats.free(other)
    assert await quarantine.haunted()
    assert dialect.confirmed[-1].others == 1
    dialect.gone = True
    assert not await quarantine.haunted()
    assert dialect.confirmed[-1].others == 0


def test_it_is_asked_about_sooner_at_first():
    quarantine, dialect, _, _ = make()
    dialect.confirm_first_s, dialect.confirm_every_s = 0.1, 2.0
    ms = 1_000_000
    left = seat_of(2, phase=Phase.PREFILL, left_ns=5000 * ms)
    for due in (5100, 5200, 5400, 5800, 6600, 8200, 10_200):
        assert quarantine._due_ns([left]) == due * ms
        quarantine._asked_ns = due * ms
