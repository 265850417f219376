import asyncio

import pytest
from tests.unit.engines.http.fakes import FakeDialect, FakeLink, pool_of, until
from tests.unit.engines.http.test_seats import seat_of

from onegate.engines.base import (
    EngineBroke,
    EngineMalformed,
    EngineRequest,
    EngineTooLarge,
    EngineUnavailable,
    SeatFreed,
)
from onegate.engines.http.dialect import Call, Phase
from onegate.engines.http.exchange import Exchange
from onegate.engines.http.pools import Pools
from onegate.engines.http.quarantine import Quarantine
from onegate.engines.http.seats import HttpSeats


class Bench:
    def __init__(self):
        self.told, self.doubts = [], []
        self.dialect, self.link = FakeDialect(), FakeLink()
        self.pools = Pools([pool_of()], lambda event: None)
        self.seats = HttpSeats(self.told.append)
        quarantine = Quarantine(self.dialect, self.link, self.seats, self.pools, confirm_s=60.0)
        self.exchange = Exchange(
            self.dialect,
            self.link,
            self.pools,
            self.seats,
            quarantine,
            doubt=self.doubts.append,
            log=lambda line: None,
        )

    def begin(self, *lines, max_tokens=5):
        seat = seat_of(1, phase=Phase.SENT)
        self.seats.enter(seat)
        for line in lines:
            self.link.lines.put_nowait(line)
        request = EngineRequest(id=1, model="m", max_tokens=max_tokens, prompt="x")
        self.exchange.begin(seat, request, pool_of(), Call("/x", b"{}"))
        return seat


async def read(seat):
    seat.stream._begun = True
    return [item async for item in seat.stream]


async def test_the_phase_follows_what_comes():
    bench = Bench()
    seat = bench.begin()
    assert seat.phase is Phase.SENT
    bench.link.lines.put_nowait(b"a")
    await until(lambda: seat.phase is Phase.PREFILL)
    bench.link.lines.put_nowait(b"x")
    await until(lambda: seat.phase is Phase.DECODE)
    bench.link.lines.put_nowait(b"f")
    await until(lambda: bench.told == [SeatFreed(id=1)])
    assert len(await read(seat)) == 3


@pytest.mark.parametrize(
    ("line", "kind"),
    [(None, EngineBroke), (EngineMalformed("x"), EngineMalformed), (EngineBroke("x"), EngineBroke)],
)
async def test_an_answer_that_breaks_leaves_the_seat_in_quarantine(line, kind):
    bench = Bench()
    seat = bench.begin(b"a", b"x", line)
    with pytest.raises(kind):
        await read(seat)
    assert bench.told == []
    assert seat.left_ns is not None
    assert len(bench.doubts) == 1


async def test_an_answer_that_goes_on_beyond_its_tokens_is_ended():
    bench = Bench()
    seat = bench.begin(b"a", *[b"x"] * 500)
    with pytest.raises(EngineMalformed, match="5 tokens"):
        await read(seat)
    assert bench.link.open_now == 0


async def test_the_servers_own_no_inside_the_stream_holds_no_seat_and_lowers_the_width():
    bench = Bench()
    bench.dialect.decoder_error = EngineUnavailable("full")
    bench.pools.width("m").sent(99, 1, 0)
    seat = bench.begin(b"!")
    with pytest.raises(EngineUnavailable, match="full"):
        await read(seat)
    assert bench.told == [SeatFreed(id=1)]
    assert bench.pools.limit("m") == 1


async def test_no_connection_is_no_reason_to_lower_it():
    bench = Bench()
    bench.link.refusal = EngineUnavailable("nobody")
    bench.pools.width("m").sent(99, 1, 0)
    seat = bench.begin()
    with pytest.raises(EngineUnavailable, match="nobody"):
        await read(seat)
    assert bench.pools.limit("m") == 2
    assert len(bench.doubts) == 1


async def test_too_large_is_told_and_what_it_began_is_waited_for():
    bench = Bench()
    bench.dialect.decoder_error = EngineTooLarge(need_tok=9, limit_tok=5)
    seat = bench.begin(b"!")
    with pytest.raises(EngineTooLarge):
        await read(seat)
    assert seat.left_ns is not None
    assert bench.told == []


async def test_leaving_before_it_was_sent():
    bench = Bench()
    seat = bench.begin(b"a")
    bench.exchange.leave(seat)
    await asyncio.sleep(0)
    await bench.exchange.aclose()
    assert bench.link.open_now == 0
    assert seat.left_ns is not None
