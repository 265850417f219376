"""An engine that is somebody else's server: never started by us, watched, and asked over HTTP."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import structs

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    EmbedRequest,
    EmbedResult,
    EngineBroke,
    EngineError,
    EngineEvent,
    EngineRefused,
    EngineRequest,
    EngineSnapshot,
    EngineUnavailable,
    Health,
    PoolInfo,
    PoolState,
    SeatFreed,
    Sink,
    TokenCount,
)
from onegate.engines.http.dialect import Dialect
from onegate.engines.http.exchange import Exchange
from onegate.engines.http.guests import Guests
from onegate.engines.http.keeper import Keeper
from onegate.engines.http.link import HttpLink
from onegate.engines.http.pools import Pools
from onegate.engines.http.quarantine import Quarantine
from onegate.engines.http.seats import HttpSeats, Seat
from onegate.engines.http.settings import HttpSettings
from onegate.engines.stream import Stream
from onegate.protocol.content import Message, Tool
from onegate.tasks import Tasks

_NS_PER_MS = 1e6
# What a model may put around one text, generously.
_SPECIAL_TOK = 16


class HttpEngine:
    """See `base.Engine`. What the server is and how it is spoken to is the `dialect`'s.

    A request that is left has its connection closed at once; its seat stays taken until the dialect
    has seen that the server let go. A server that does not within `settings.confirm_s`, or that is
    gone, is given up: what was inside is lost, and it is probed anew after a wait that doubles.
    """

    def __init__(
        self,
        dialect: Dialect,
        link: HttpLink,
        settings: HttpSettings,
        *,
        pools: list[PoolInfo],
        log: Callable[[str], None],
        crashed: Callable[[str, BaseException], None],
    ) -> None:
        self._dialect = dialect
        self._link = link
        self._log = log
        self._sink: Sink | None = None
        self._tasks = Tasks(crashed)
        self._closed = False
        self._pools = Pools(pools, self._tell)
        self._seats = HttpSeats(self._tell)
        self._quarantine = Quarantine(
            dialect, link, self._seats, self._pools, confirm_s=settings.confirm_s
        )
        self._keeper = Keeper(
            dialect,
            link,
            settings,
            pools=self._pools,
            seats=self._seats,
            quarantine=self._quarantine,
            tell=self._tell,
            log=log,
        )
        self._guests = Guests(self._seats, self._pools.limit)
        self._exchange = Exchange(
            dialect,
            link,
            self._pools,
            self._seats,
            self._quarantine,
            self._guests,
            doubt=self._keeper.doubt,
            log=log,
        )
        self._keeper.leave = self._exchange.leave
        self._keeper.came_up = self._came_up
        self._cold = False

    async def start(self, sink: Sink) -> None:
        if self._sink is not None:
            raise RuntimeError("an engine is started once")
        self._sink = sink
        self._tasks.spawn(self._keeper.run(), name=f"{self._dialect.name} keeper")
        self._tasks.spawn(self._quarantine.run(), name=f"{self._dialect.name} quarantine")

    def pools(self) -> list[PoolInfo]:
        return self._pools.all()

    def generate(self, request: EngineRequest) -> Stream:
        return Stream(request.id, begin=partial(self._begin, request), abandon=self._abandon)

    def stop(self, id: int) -> None:
        seat = self._seats.get(id)
        if seat is not None and seat.left_ns is None and not seat.stream.ended:
            seat.stopped = True
            self._exchange.leave(seat)

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        self._ready(request.model)
        async with self._guests.seat(request.model):
            self._ready(request.model)  # it may have gone meanwhile
            result = await self._dialect.embed(self._link, request)
        # It is charged to somebody, who can reckon what a text has at most: a token for each byte.
        most_tok = sum(len(text.encode()) + _SPECIAL_TOK for text in request.input)
        usage = result.usage
        if usage.prompt_tok <= most_tok:
            return result
        return structs.replace(result, usage=structs.replace(usage, prompt_tok=most_tok))

    async def count(
        self,
        model: str,
        *,
        prompt: str | None = None,
        raw: bool = False,
        messages: list[Message] | None = None,
        tools: list[Tool] | None = None,
    ) -> TokenCount:
        self._ready(model)
        return await self._dialect.count(
            self._link, model, prompt=prompt, raw=raw, messages=messages, tools=tools
        )

    def snapshot(self, model: str) -> EngineSnapshot | None:
        known = self._keeper.snapshots.get(model)
        if known is None:
            return None
        snapshot, taken_ns = known
        return structs.replace(snapshot, age_ms=(monotonic_ns() - taken_ns) / _NS_PER_MS)

    def health(self) -> Health:
        if self._closed:
            return Health(state="stopped")
        return self._pools.health()

    async def load(self, model: str) -> None:
        self._keeper.doubt()  # so that it is seen to be loading
        await self._ask(self._dialect.load, model)

    def keep_cold(self, cold: bool) -> None:
        self._cold = cold

    async def unload(self, model: str) -> None:
        for seat in self._seats.of(model):
            self.stop(seat.id)
        await self._ask(self._dialect.unload, model)

    async def aclose(self, deadline_s: float) -> None:
        if self._closed:
            return
        self._closed = True
        # Cancelled exchanges close their connections, which is all that can be done for a server
        # that is not ours.
        await self._tasks.aclose()
        await self._exchange.aclose()
        self._keeper.lose(list(self._seats), EngineBroke("the engine was stopped"))
        await self._link.aclose()

    # --- requests ---------------------------------------------------------------------------

    def _begin(self, request: EngineRequest, stream: Stream) -> None:
        if request.id in self._seats:
            raise ValueError(f"request {request.id} is inside already")
        try:
            pool = self._ready(request.model)
            # Not what has been found out since: who was let in before that was told goes in.
            most = self._pools.width(request.model).ceiling
            if len(self._seats.of(request.model)) >= most:
                raise EngineUnavailable(f"all {most} seats of {request.model} are taken")
            call = self._dialect.call(request, pool)
        except EngineError as error:
            # Later, because the sink is never called from within `generate`.
            asyncio.get_running_loop().call_soon(self._turn_away, stream, error)
            return
        except Exception as error:
            # A bug of ours must not leave a seat taken for ever. Its text may quote what was asked.
            name = type(error).__name__
            self._log(f"bug in request {request.id}: {name}")
            failed = EngineBroke(f"the adapter failed: {name}")
            asyncio.get_running_loop().call_soon(self._turn_away, stream, failed)
            return
        now_ns = monotonic_ns()
        seat = Seat(stream, request.model, since_ns=now_ns, moved_ns=now_ns)
        self._seats.enter(seat)
        self._exchange.begin(seat, request, pool, call)

    def _turn_away(self, stream: Stream, error: EngineError) -> None:
        self._tell(SeatFreed(id=stream.id))
        stream.end(error)

    def _abandon(self, stream: Stream) -> None:
        seat = self._seats.get(stream.id)
        if seat is not None and seat.stream is stream and seat.left_ns is None:
            self._exchange.leave(seat)

    def _ready(self, model: str) -> PoolInfo:
        pool = self._known(model)
        if pool.state is not PoolState.READY:
            raise EngineUnavailable(
                f"{model} is {pool.state}" + (f": {pool.error}" if pool.error else ""),
                retry_after_ms=self._pools.resting_ms(model),
            )
        return pool

    def _known(self, model: str) -> PoolInfo:
        if self._closed:
            raise EngineUnavailable("the engine is stopped")
        pool = self._pools.get(model)
        if pool is None:
            raise EngineRefused(f"there is no pool {model}", path="model")
        return pool

    async def _ask(self, question: Callable[..., object], model: str) -> None:
        try:
            self._known(model)
            await question(self._link, model)  # type: ignore[misc]
        except EngineUnavailable:
            raise
        except EngineError as error:
            raise EngineUnavailable(str(error)) from error
        finally:
            if not self._closed:
                # What has become of the pool is told before the answer.
                await self._keeper.look()

    def _came_up(self) -> None:
        """A server that has nothing in memory of what is served loads the first of it: whoever
        waits for the daemon to be ready waits for a model."""
        states = [pool.state for pool in self._pools.all()]
        if not self._cold and PoolState.READY not in states and PoolState.COLD in states:
            first = self._pools.all()[states.index(PoolState.COLD)]
            self._tasks.spawn(self._load_first(first.model), name=f"load {first.model}")

    async def _load_first(self, model: str) -> None:
        try:
            await self.load(model)
        except EngineUnavailable as error:
            self._keeper.doubt(error)  # its pool says so too, and the core may ask again

    def _tell(self, event: EngineEvent) -> None:
        if self._sink is not None:
            self._sink(event)
