"""One request and its answer: sent, read into items, and let go of."""

import asyncio
from collections.abc import Callable

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
    Stopped,
)
from onegate.engines.http.dialect import Call, Decoder, Dialect, Phase
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
# A server may close a character, a tool call or a thought behind the last token that was allowed.
_SPARE_TOK = 64
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
        *,
        doubt: Callable[[EngineError | None], None],
        log: Callable[[str], None],
    ) -> None:
        self._dialect = dialect
        self._link = link
        self._pools = pools
        self._seats = seats
        self._quarantine = quarantine
        self._doubt = doubt
        # A crash in here ends one request, whose reader is told. Only its kind is logged, because
        # its text may quote what was asked.
        self._tasks = Tasks(lambda name, error: log(f"bug in {name}: {type(error).__name__}"))

    def begin(self, seat: Seat, request: EngineRequest, pool: PoolInfo, call: Call) -> None:
        """Send it. `seat` has been entered."""
        self._pools.width(seat.model).sent(seat.id, len(call.body), monotonic_ns())
        decoder = self._dialect.decoder(request, pool)
        run = self._run(seat, call, decoder, request.max_tokens)
        seat.task = self._tasks.spawn(run, name=f"request {seat.id}")

    def leave(self, seat: Seat, error: EngineError | None = None) -> None:
        """Close its connection; its reader is told `error`, or that it was stopped. The seat stays
        taken until the server is seen to have let go."""
        if seat.stopped:
            seat.stream.push(Stopped())
        seat.stream.end(error)
        if seat.task is not None:
            seat.task.cancel()
        seat.left_ns = monotonic_ns()
        if self._dialect.frees_in_decode and seat.phase is Phase.DECODE and error is None:
            # Behind the end of its task, which closes the connection: the next one is sent after.
            asyncio.get_running_loop().call_soon(self._out, seat)
        else:
            self._quarantine.entered()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._tasks.aclose()

    async def _run(self, seat: Seat, call: Call, decoder: Decoder, max_tokens: int) -> None:
        try:
            async with self._link.open("POST", call.path, call.body, call.headers) as answer:
                seat.answered = True
                lines = Lines(max_total_bytes=_FRAME_BYTES + _TOKEN_BYTES * max_tokens)
                left_tok = max_tokens + _SPARE_TOK
                async for data in answer.chunks():
                    for line in lines.feed(data):
                        for item in decoder.line(line):
                            left_tok -= self._take(seat, item)
                            if left_tok < 0:
                                raise EngineMalformed(
                                    f"the engine goes on beyond the {max_tokens} tokens it was "
                                    "allowed"
                                )
                    if seat.stream.ended:
                        break
                else:
                    if rest := lines.rest():
                        for item in decoder.line(rest):
                            self._take(seat, item)
                    if not seat.stream.ended:
                        for item in decoder.end():
                            self._take(seat, item)
            if not seat.stream.ended:
                raise EngineBroke("the engine's answer ended without an end")
        except HttpStatus as status:
            self._refused(
                seat,
                self._dialect.refusal(status.status, status.body, status.retry_after_ms),
                busy=status.status in _BUSY,
            )
        except EngineUnavailable as error:
            # Either there is no connection, or the server said so itself, and holds nothing.
            self._refused(seat, error, busy=seat.phase is Phase.SENT and seat.answered)
        except EngineBroke as error:
            self._failed(seat, error)
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
            self._out(seat)

    def _take(self, seat: Seat, item: GenerateItem) -> int:
        """Pass it on; returns the tokens it stands for."""
        now_ns = seat.moved_ns = monotonic_ns()
        if isinstance(item, EngineChunk):
            if seat.phase is not Phase.DECODE:
                seat.phase = Phase.DECODE
                if self._pools.width(seat.model).first(seat.id, now_ns):
                    self._pools.show(seat.model)
            seat.stream.push(item)
            return item.n_tok
        if isinstance(item, Accepted):
            seat.phase = Phase.PREFILL
        seat.stream.push(item)
        if isinstance(item, Finished):
            seat.stream.end()
        return 0

    def _out(self, seat: Seat) -> None:
        self._pools.width(seat.model).ended(seat.id, monotonic_ns())
        self._seats.free(seat)

    def _refused(self, seat: Seat, error: EngineError, *, busy: bool) -> None:
        width = self._pools.width(seat.model)
        if busy:
            width.refused(monotonic_ns())
        self._out(seat)
        seat.stream.end(error)
        self._pools.show(seat.model)
        if isinstance(error, EngineUnavailable):
            if error.retry_after_ms is not None:
                self._pools.rest(seat.model, error.retry_after_ms)
            else:
                self._doubt(error)

    def _failed(self, seat: Seat, error: EngineBroke) -> None:
        seat.stream.end(error)
        if seat.left_ns is None and seat.id in self._seats:
            seat.left_ns = monotonic_ns()
            self._quarantine.entered()
        self._doubt(error)
