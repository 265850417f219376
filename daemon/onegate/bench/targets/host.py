"""An engine host without a gate before it: first come, first served, as many as there are seats."""

import asyncio

from msgspec import structs

from onegate.bench.targets.base import (
    Ask,
    Broke,
    Facts,
    Log,
    Refused,
    TargetError,
    Usage,
    Watch,
    check_named,
    in_time,
)
from onegate.clock import monotonic_ns
from onegate.config import Config
from onegate.engines.base import (
    Accepted,
    Engine,
    EngineChunk,
    EngineError,
    EngineEvent,
    EngineLost,
    EngineRefused,
    EngineRequest,
    EngineTooLarge,
    Finished,
    PoolInfo,
    PoolState,
    SeatFreed,
)
from onegate.engines.plan import EngineUnprepared
from onegate.engines.registry import build_engine
from onegate.protocol.content import Params

_POLL_S = 0.05
_CLOSE_S = 10.0


class HostTarget:
    """See `base.Target`. The host is a child of this process; classes mean nothing to it."""

    def __init__(self, engine: Engine, model: str | None, *, ready_s: float) -> None:
        self._engine = engine
        self._model = model
        self._ready_s = ready_s
        self._seats = asyncio.Semaphore(1)
        self._inside: set[int] = set()
        self._last_id = 0
        self._params: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: Config, model: str | None, *, ready_s: float, log: Log) -> "HostTarget":
        """The host that a daemon with this configuration would start. Raises TargetError."""
        # Not the one that is a service: it serves the daemon, and one at a time.
        own = structs.replace(config.engine, host_socket=None)
        try:
            engine = build_engine(
                own,
                step_target_ms=config.step_target_ms,
                log=log,
                crashed=lambda name, error: log(f"{name} crashed: {error!r}"),
            )
            return cls(engine, model, ready_s=ready_s)
        except EngineUnprepared as error:
            raise TargetError(str(error)) from error

    async def open(self) -> Facts:
        await self._engine.start(self._hear)
        pool = await self._ready_pool()
        self._model = pool.model
        self._seats = asyncio.Semaphore(pool.capacity.max_seqs)
        self._params = pool.params
        return Facts(
            model=pool.model,
            engine=pool.identity.engine if pool.identity is not None else "",
            context_tok=pool.capacity.max_context_tok,
            seats=pool.capacity.max_seqs,
        )

    async def _ready_pool(self) -> PoolInfo:
        try:
            async with asyncio.timeout(self._ready_s):
                while True:
                    pools = self._engine.pools()
                    check_named(
                        "the engine host",
                        self._model,
                        [pool.model for pool in pools],
                        ready=any(pool.state is PoolState.READY for pool in pools),
                    )
                    for pool in pools:
                        if self._model in (None, pool.model) and pool.state is PoolState.READY:
                            return pool
                        if self._model in (None, pool.model) and pool.state is PoolState.FAILED:
                            raise TargetError(f"the engine host failed: {pool.error}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise TargetError(
                f"the engine host had no model ready within {self._ready_s:.0f} s"
            ) from None

    def _hear(self, event: EngineEvent) -> None:
        freed = (
            [event.id]
            if isinstance(event, SeatFreed)
            else event.ids
            if isinstance(event, EngineLost)
            else []
        )
        for number in freed:
            if number in self._inside:
                self._inside.discard(number)
                self._seats.release()

    async def count(self, text: str) -> int:
        assert self._model is not None
        try:
            async with asyncio.timeout(self._ready_s):
                return (await self._engine.count(self._model, prompt=text)).n_tok
        except EngineError as error:
            raise TargetError(f"the engine host cannot count tokens: {error}") from error
        except TimeoutError:
            raise TargetError(
                f"the engine host counted no tokens within {self._ready_s:.0f} s"
            ) from None

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        begun_ns = monotonic_ns()
        try:
            async with in_time(ask, watch) as heard:
                await self._seats.acquire()
                heard.started((monotonic_ns() - begun_ns) / 1e6)
                return await self._run(ask, heard)
        except (EngineRefused, EngineTooLarge) as error:
            raise Refused("invalid") from error
        except EngineError as error:
            raise Broke("engine_failed") from error

    async def _run(self, ask: Ask, watch: Watch) -> Usage:
        assert self._model is not None
        self._last_id += 1
        # The seat is given back by the host's word, not by ours: see `_hear`.
        self._inside.add(self._last_id)
        ignores = Params(ignore_eos=True) if "ignore_eos" in self._params else Params()
        items = self._engine.generate(
            EngineRequest(
                id=self._last_id,
                model=self._model,
                prompt=ask.text,
                max_tokens=ask.output_tok,
                params=ignores,
            )
        )
        prompt_tok: int | None = None
        try:
            async for item in items:
                match item:
                    case Accepted():
                        prompt_tok = item.prompt_tok
                    case EngineChunk():
                        watch.piece(item.n_tok, visible=bool(item.text))
                    case Finished(usage=usage):
                        return Usage(prompt_tok=usage.prompt_tok, output_tok=usage.output_tok)
        finally:
            await items.aclose()
        return Usage(prompt_tok=prompt_tok)

    async def aclose(self) -> None:
        await self._engine.aclose(_CLOSE_S)
