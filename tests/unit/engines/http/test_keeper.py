import asyncio
from dataclasses import replace

import pytest
from msgspec import structs
from tests.unit.engines.http.fakes import SETTINGS, FakeDialect, pool_of, until
from tests.unit.engines.http.test_seats import seat_of

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    EngineBroke,
    EngineLost,
    EngineNotice,
    EngineSnapshot,
    EngineUnavailable,
    PoolState,
)
from onegate.engines.http.boundary import AddressRefused
from onegate.engines.http.dialect import Phase, Watched
from onegate.engines.http.keeper import Keeper
from onegate.engines.http.pools import Pools
from onegate.engines.http.quarantine import Quarantine
from onegate.engines.http.seats import HttpSeats
from onegate.tasks import Tasks


class Watch:
    def __init__(self, **given):
        self.told, self.log, self.left = [], [], []
        self.dialect = FakeDialect()
        self.pools = Pools([], self.told.append)
        self.seats = HttpSeats(self.told.append)
        settings = replace(SETTINGS, **given)
        self.quarantine = Quarantine(
            self.dialect, None, self.seats, self.pools, confirm_s=settings.confirm_s
        )
        self.keeper = Keeper(
            self.dialect,
            None,
            settings,
            pools=self.pools,
            seats=self.seats,
            quarantine=self.quarantine,
            tell=self.told.append,
            log=self.log.append,
        )
        self.keeper.leave = lambda seat, error: self.left.append((seat.id, str(error)))
        self.tasks = Tasks(lambda name, error: self.log.append(f"crash {error!r}"))

    async def __aenter__(self):
        self.tasks.spawn(self.keeper.run(), name="keeper")
        await until(lambda: self.dialect.probes > 0 and bool(self.pools.all() or self.log))
        return self

    async def __aexit__(self, *error):
        await self.tasks.aclose()

    def lost(self):
        return [event for event in self.told if isinstance(event, EngineLost)]


async def test_a_server_that_goes_away_and_comes_back():
    async with Watch() as watch:
        watch.seats.enter(moved(seat_of(7), monotonic_ns()))
        watch.dialect.there = False
        watch.keeper.doubt()
        await until(lambda: bool(watch.lost()))
        assert watch.lost()[0].ids == [7]
        assert watch.pools.get("m").state is PoolState.LOADING
        watch.dialect.there = True
        await until(lambda: watch.pools.get("m").state is PoolState.READY)
        assert watch.log == ["nobody is there"]


async def test_a_server_that_was_never_there_is_waited_for_and_then_failed():
    watch = Watch()
    watch.pools.probed([pool_of()])
    watch.keeper._away(EngineUnavailable("nobody"))
    assert watch.pools.get("m").state is PoolState.LOADING
    watch.keeper._expected_ns = 0
    watch.keeper._away(EngineUnavailable("nobody"))
    assert watch.pools.get("m").state is PoolState.FAILED


async def test_an_address_that_is_refused_is_not_waited_for():
    watch = Watch()
    watch.pools.probed([pool_of()])
    watch.keeper._away(AddressRefused("elsewhere"))
    assert watch.pools.get("m").state is PoolState.FAILED


async def test_silence_is_ended_by_phase():
    watch = Watch(first_s=20.0, idle_s=10.0)
    now_ns = monotonic_ns()
    for id, phase in ((1, Phase.PREFILL), (2, Phase.DECODE)):
        watch.seats.enter(moved(seat_of(id, phase=phase), now_ns - 15 * 10**9))
    left = moved(seat_of(3, left_ns=5), 0)
    watch.seats.enter(left)
    watch.keeper._end_the_silent(now_ns)
    assert [id for id, _ in watch.left] == [2]


def moved(seat, moved_ns):
    seat.moved_ns = moved_ns
    return seat


async def test_what_is_held_is_lost_alone_and_the_pool_is_failed():
    async with Watch(confirm_s=0.0) as watch:
        watch.dialect.gone = False
        watch.seats.enter(seat_of(1, left_ns=monotonic_ns()))
        watch.seats.enter(moved(seat_of(2), monotonic_ns()))
        watch.keeper.doubt()
        await until(lambda: bool(watch.lost()))
        assert watch.lost()[0].ids == [1]
        assert 2 in watch.seats
        await until(lambda: watch.dialect.probes > 2)
        assert watch.pools.get("m").state is PoolState.FAILED
        watch.dialect.gone = True
        await until(lambda: watch.pools.get("m").state is PoolState.READY)


async def test_what_a_look_shows_is_kept_and_told():
    async with Watch() as watch:
        notice = EngineNotice(code="cold_load", model="m", detail="2 s")
        watch.dialect.watched = Watched(
            pools=[structs.replace(pool_of(), error="x")],
            snapshots=[EngineSnapshot(model="m", seats_used=1)],
            notices=[notice, notice],
        )
        watch.keeper.doubt()
        await until(lambda: "m" in watch.keeper.snapshots)
        assert watch.told.count(notice) == 1
        assert watch.pools.get("m").error == "x"


async def test_looks_that_fail_are_forgiven_while_something_comes():
    async with Watch() as watch:

        async def late(link):
            raise EngineBroke("late")

        watch.dialect.watch = late
        seat = seat_of(1)
        watch.seats.enter(seat)
        for _ in range(6):
            seat.moved_ns = monotonic_ns()
            watch.keeper.doubt()
            await asyncio.sleep(0.01)
        assert watch.lost() == []
        for _ in range(6):
            watch.keeper.doubt()
            await asyncio.sleep(0.01)
        await until(lambda: bool(watch.lost()))
        assert set(watch.log) == {"late"}


@pytest.mark.parametrize("busy", [True, False])
async def test_a_server_that_turns_a_look_away_is_not_gone_while_something_comes(busy):
    async with Watch() as watch:
        looks = []

        async def away(link):
            looks.append(1)
            raise EngineUnavailable("busy")

        watch.dialect.watch = away
        if busy:
            seat = seat_of(1)
            watch.seats.enter(seat)
            for _ in range(2):
                before = len(looks)
                seat.moved_ns = monotonic_ns()
                watch.keeper.doubt()
                await until(lambda before=before: len(looks) > before)
            assert watch.lost() == []
        else:
            watch.keeper.doubt()
            await until(lambda: bool(watch.lost()))
            assert len(looks) == 1


async def test_what_was_in_a_server_that_fell_silent_may_still_run_in_there():
    async with Watch() as watch:

        async def late(link):
            raise EngineBroke("late")

        watch.dialect.watch = late
        watch.dialect.gone = False
        watch.seats.enter(moved(seat_of(1), 0))
        for _ in range(3):
            watch.keeper.doubt()
            await asyncio.sleep(0.01)
        await until(lambda: bool(watch.lost()))
        await until(lambda: bool(watch.dialect.confirmed))
        assert watch.pools.get("m").state is not PoolState.READY
        watch.dialect.gone = True
        await until(lambda: watch.pools.get("m").state is PoolState.READY)


async def test_whose_connection_was_cut_hears_what_a_look_has_shown():
    for there in (True, False):
        async with Watch() as watch:
            seat = moved(seat_of(1, left_ns=monotonic_ns()), monotonic_ns())
            seat.broke = EngineBroke("cut")
            watch.seats.enter(seat)
            watch.dialect.there = there
            watch.keeper.doubt()
            with pytest.raises(EngineBroke, match="cut" if there else "nobody is there"):
                await anext(seat.stream)
            assert bool(watch.lost()) is not there


async def test_a_server_with_another_model_at_every_look_has_an_end_of_them(monkeypatch):
    monkeypatch.setattr("onegate.engines.http.pools._MAX_POOLS", 2)
    async with Watch() as watch:
        for name in ("b", "c", "d"):
            watch.keeper._learn([pool_of(name)])
        assert [pool.model for pool in watch.pools.all()] == ["m", "b"]
        assert len(watch.log) == 2
        assert "model, c," in watch.log[0]


async def test_a_server_that_is_ill_in_ever_new_words_fills_no_log():
    watch = Watch()
    for i in range(200):
        watch.keeper.doubt(EngineBroke(f"cause {i}"))
    assert len(watch.log) == 64
