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
from onegate.engines.http.guests import Guests
from onegate.engines.http.link import HttpStatus
from onegate.engines.http.pools import Pools
from onegate.engines.http.quarantine import Quarantine
from onegate.engines.http.seats import HttpSeats
from onegate.engines.stream import MAX_ITEMS_BEHIND


class Bench:
    def __init__(self):
        self.told, self.doubts = [], []
        self.dialect, self.link = FakeDialect(), FakeLink()
        self.pools = Pools([pool_of()], lambda event: None)
        self.seats = HttpSeats(self.told.append)
        quarantine = Quarantine(self.dialect, self.link, self.seats, self.pools, confirm_s=60.0)
        self.guests = Guests(self.seats, self.pools.limit)
        self.exchange = Exchange(
            self.dialect,
            self.link,
            self.pools,
            self.seats,
            quarantine,
            self.guests,
            doubt=self.doubts.append,
            log=lambda line: None,
        )

    def begin(self, *lines, max_tokens=5, fit=False):
        seat = seat_of(1, phase=Phase.SENT)
        self.seats.enter(seat)
        for line in lines:
            self.link.lines.put_nowait(line)
        request = EngineRequest(
            id=1, model="m", max_tokens=max_tokens, prompt="x", fit_max_tokens=fit
        )
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
    await until(lambda: len(bench.doubts) == 1)
    bench.seats.hear_the_cut()
    with pytest.raises(kind):
        await read(seat)
    assert bench.told == []
    assert seat.left_ns is not None


async def test_a_cut_is_told_when_it_is_known_whether_the_server_died():
    bench = Bench()
    seat = bench.begin(b"a", EngineBroke("cut"))
    await until(lambda: len(bench.doubts) == 1)
    assert not seat.stream.ended
    bench.seats.lose([seat], EngineBroke("it died"), bench.told.append)
    assert bench.told == [[1]]
    with pytest.raises(EngineBroke, match="it died"):
        await read(seat)


async def test_an_answer_that_goes_on_beyond_its_tokens_is_ended():
    bench = Bench()
    seat = bench.begin(b"a", *[b"x"] * 500)
    with pytest.raises(EngineMalformed, match="5 tokens"):
        await read(seat)
    assert bench.link.open_now == 0


async def test_what_comes_behind_the_end_is_not_read():
    bench = Bench()
    bench.dialect.decoder_error = EngineMalformed("read on")
    seat = bench.begin(b"a", b"x", b"f\n!")
    await read(seat)
    await until(lambda: bench.told == [SeatFreed(id=1)])
    assert bench.doubts == []


async def test_a_reader_that_is_too_far_behind_leaves_a_seat_that_is_waited_for():
    bench = Bench()
    piece = b"\n".join([b"x"] * (MAX_ITEMS_BEHIND + 50))
    seat = bench.begin(b"a", piece, max_tokens=10 * MAX_ITEMS_BEHIND)
    seat.stream._abandon = lambda stream: bench.exchange.leave(seat)
    await until(lambda: bench.link.open_now == 0 and seat.task.done())
    with pytest.raises(EngineBroke, match="behind"):
        await read(seat)
    assert bench.told == []
    assert seat.left_ns is not None


async def test_where_nobody_asked_for_a_length_it_is_fitted_to_the_servers_own_count():
    bench = Bench()
    bench.link.refusals = [HttpStatus(400, b"7", None)]
    seat = bench.begin(b"a", b"f", max_tokens=5, fit=True)
    assert len(await read(seat)) == 2
    assert [request.max_tokens for request in bench.dialect.called] == [3]


@pytest.mark.parametrize(("fit", "prompt"), [(False, b"7"), (True, b"10"), (True, b"2")])
async def test_it_is_not_sent_again_where_that_would_not_help(fit, prompt):
    bench = Bench()
    bench.link.refusals = [HttpStatus(400, prompt, None)]
    seat = bench.begin(max_tokens=5, fit=fit)
    with pytest.raises(EngineTooLarge):
        await read(seat)
    assert bench.dialect.called == []
    assert bench.told == [SeatFreed(id=1)]


async def test_it_is_sent_when_the_guests_have_left():
    bench = Bench()
    async with bench.guests.seat("m"), bench.guests.seat("m"):
        seat = bench.begin(b"a", b"f")
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.link.opened == 0
    await read(seat)
    assert bench.link.opened == 1


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


async def test_only_progress_that_goes_on_is_a_sign_of_life():
    bench = Bench()
    seat = bench.begin(b"a", b"%5")
    await until(lambda: seat.prefilled_tok == 5)
    moved_ns = seat.moved_ns
    for line in (b"%5", b"%4"):
        bench.link.lines.put_nowait(line)
    await until(bench.link.lines.empty)
    await until(lambda: len(seat.stream._items) == 4)
    assert seat.moved_ns == moved_ns
    bench.link.lines.put_nowait(b"%6")
    await until(lambda: len(seat.stream._items) == 5)
    assert seat.moved_ns > moved_ns
    await bench.exchange.aclose()


async def test_an_answer_that_says_nothing_has_an_end_too():
    bench = Bench()
    seat = bench.begin(b"a", *[b"%" + b"0" * 4000] * 1100, None)
    with pytest.raises(EngineMalformed, match="longer than"):
        await read(seat)
