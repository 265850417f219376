"""One request and its answer: sent, read into items, and let go of."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing

from msgspec import structs

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineError,
    EngineMalformed,
    EngineRequest,
    EngineTooLarge,
    EngineUnavailable,
    Finished,
    GenerateItem,
    PoolInfo,
    Progress,
    Stopped,
)
from onegate.engines.http.allowance import Allowance
from onegate.engines.http.dialect import Call, Dialect, Overlong, Phase
from onegate.engines.http.guests import Guests
from onegate.engines.http.lines import Lines
from onegate.engines.http.link import HttpLink, HttpStatus
from onegate.engines.http.pools import Pools
from onegate.engines.http.quarantine import Quarantine
from onegate.engines.http.seats import HttpSeats, Seat
from onegate.tasks import Tasks

# What an answer is allowed: some for its frame, and for each token with its alternatives and their
# log-probabilities in JSON.
_FRAME_BYTES = 4 << 20
_TOKEN_BYTES = 16 << 10
_BUSY = (429, 503)


class Exchange:
    """Runs requests. `doubt` is called when something went wrong that the server may be the reason
    of, so that somebody looks."""

    def __init__(
        self,
        dialect: Dialect,
        link: HttpLink,
        pools: Pools,
        seats: HttpSeats,
        quarantine: Quarantine,
        guests: Guests,
        *,
        doubt: Callable[[EngineError | None], None],
        log: Callable[[str], None],
    ) -> None:
        self._dialect = dialect
        self._link = link
        self._pools = pools
        self._seats = seats
        self._quarantine = quarantine
        self._guests = guests
        self._doubt = doubt
        # A crash in here ends one request, whose reader is told. Only its kind is logged, because
        # its text may quote what was asked.
        self._tasks = Tasks(lambda name, error: log(f"bug in {name}: {type(error).__name__}"))

    def begin(self, seat: Seat, request: EngineRequest, pool: PoolInfo, call: Call) -> None:
        """Send it. `seat` has been entered."""
        run = self._run(seat, request, pool, call)
        seat.task = self._tasks.spawn(run, name=f"request {seat.id}")

    def leave(self, seat: Seat, error: EngineError | None = None) -> None:
        """Close its connection; its reader is told `error`, or that it was stopped. The seat stays
        taken until the server is seen to have let go."""
        if seat.stopped:
            seat.stream.push(Stopped())
        seat.stream.end(error)
        if seat.task is not None:
            seat.task.cancel()
        self._left(seat)
        if self._dialect.frees_in_decode and seat.phase is Phase.DECODE and error is None:
            # Behind the end of its task, which closes the connection: the next one is sent after.
            asyncio.get_running_loop().call_soon(self._out, seat)
        else:
            self._quarantine.entered()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._tasks.aclose()

    async def _run(self, seat: Seat, request: EngineRequest, pool: PoolInfo, call: Call) -> None:
        try:
            await self._guests.leave_room(seat)
            self._pools.width(seat.model).sent(seat.id, len(call.body), monotonic_ns())
            try:
                await self._answer(seat, request, pool, call)
            except HttpStatus as status:
                if (fitted := self._fitted(request, status)) is None:
                    raise
                await self._answer(seat, fitted, pool, self._dialect.call(fitted, pool))
        except HttpStatus as status:
            self._refused(seat, self._refusal(status), busy=status.status in _BUSY)
        except EngineUnavailable as error:
            # Either there is no connection, or the server said so itself, and holds nothing.
            self._refused(seat, error, busy=seat.phase is Phase.SENT and seat.answered)
        except EngineMalformed as error:
            self._failed(seat, error)
        except EngineBroke as error:
            self._failed(seat, error, was_cut=True)
        except EngineTooLarge as error:
            # Seen by us, not said by the server, which has begun with it.
            self.leave(seat, error)
        except EngineError as error:
            self._refused(seat, error, busy=False)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # A bug of ours must not leave a reader waiting for ever, nor a seat taken for ever.
            self._failed(seat, EngineBroke(f"the adapter failed: {type(error).__name__}"))
            raise
        else:
            # A reader that was too far behind has left in the middle of it.
            if seat.left_ns is None:
                self._out(seat)

    async def _answer(self, seat: Seat, request: EngineRequest, pool: PoolInfo, call: Call) -> None:
        """Read it to its end, or until nobody reads any more."""
        decoder = self._dialect.decoder(request, pool)
        allowance = Allowance(request.max_tokens)
        lines = Lines(max_total_bytes=_FRAME_BYTES + _TOKEN_BYTES * request.max_tokens)
        async with (
            self._link.open("POST", call.path, call.body, call.headers) as answer,
            aclosing(answer.chunks()) as chunks,
        ):
            seat.answered = True
            async for data in chunks:
                for line in lines.feed(data):
                    self._take_all(seat, decoder.line(line), allowance)
                    if seat.stream.ended:
                        return
            if rest := lines.rest():
                self._take_all(seat, decoder.line(rest), allowance)
            if not seat.stream.ended:
                self._take_all(seat, decoder.end(), allowance)
        if not seat.stream.ended:
            raise EngineBroke("the engine's answer ended without an end")

    def _take_all(self, seat: Seat, items: Iterable[GenerateItem], allowance: Allowance) -> None:
        for item in items:
            if seat.stream.ended:
                return
            self._take(seat, item, allowance)

    def _take(self, seat: Seat, item: GenerateItem, allowance: Allowance) -> None:
        now_ns = monotonic_ns()
        if not isinstance(item, Progress):
            seat.moved_ns = now_ns
        elif item.prefilled_tok > seat.prefilled_tok:
            # A server that only repeats how far it is has stalled.
            seat.moved_ns, seat.prefilled_tok = now_ns, item.prefilled_tok
        if isinstance(item, EngineChunk):
            if seat.phase is not Phase.DECODE:
                seat.phase = Phase.DECODE
                if self._pools.width(seat.model).first(seat.id, now_ns):
                    self._pools.show(seat.model)
            seat.stream.push(allowance.spent(item))
        elif isinstance(item, Finished):
            seat.stream.push(allowance.ended(item))
            seat.stream.end()
        else:
            if isinstance(item, Accepted):
                seat.phase = Phase.PREFILL
            seat.stream.push(item)

    def _refusal(self, status: HttpStatus) -> EngineError:
        return self._dialect.refusal(status.status, status.body, status.retry_after_ms)

    def _fitted(self, request: EngineRequest, status: HttpStatus) -> EngineRequest | None:
        """The request with as much output as the context leaves, where nobody asked for more and
        the server has counted the prompt."""
        error = self._refusal(status)
        if not request.fit_max_tokens or not isinstance(error, Overlong):
            return None
        left_tok = error.limit_tok - error.prompt_tok
        if not 0 < left_tok < request.max_tokens:
            return None
        return structs.replace(request, max_tokens=left_tok)

    def _left(self, seat: Seat) -> None:
        seat.left_ns = monotonic_ns()
        self._pools.width(seat.model).left(seat.id)

    def _out(self, seat: Seat) -> None:
        self._pools.width(seat.model).ended(seat.id, monotonic_ns())
        self._seats.free(seat)

    def _refused(self, seat: Seat, error: EngineError, *, busy: bool) -> None:
        if busy:
            self._pools.width(seat.model).refused(monotonic_ns())
        # Before the seat is free, or it would be given to the next one at once.
        self._pools.show(seat.model)
        self._out(seat)
        seat.stream.end(error)
        if isinstance(error, EngineUnavailable):
            if error.retry_after_ms is not None:
                self._pools.rest(seat.model, error.retry_after_ms)
            else:
                self._doubt(error)

    def _failed(self, seat: Seat, error: EngineBroke, *, was_cut: bool = False) -> None:
        """It cannot be read to its end. Where the connection was cut, the server may have died,
        and then its reader hears that instead: a look will tell."""
        if seat.left_ns is None and seat.id in self._seats:
            self._left(seat)
            if was_cut:
                seat.broke = error
            self._quarantine.entered()
        if seat.broke is None:
            seat.stream.end(error)
        self._doubt(error)
