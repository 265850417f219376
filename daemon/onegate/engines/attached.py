"""An engine in a host of its own: started or attached to, watched, and taken up again."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import structs

from onegate.clock import monotonic_ns
from onegate.engines.attachment import Attachment
from onegate.engines.backoff import Backoff
from onegate.engines.base import (
    EmbedRequest,
    EmbedResult,
    EngineBroke,
    EngineError,
    EngineEvent,
    EngineLost,
    EngineRefused,
    EngineRequest,
    EngineSnapshot,
    EngineUnavailable,
    Health,
    PoolChanged,
    PoolInfo,
    PoolState,
    SeatFreed,
    Sink,
    TokenCount,
)
from onegate.engines.child import Child
from onegate.engines.connection import Connection
from onegate.engines.host.wire import Abort, CountCall, EmbedCall, LoadCall, Submit, UnloadCall
from onegate.engines.life import HostLife
from onegate.engines.plan import EngineUnprepared, HostPlan
from onegate.engines.seats import Seats
from onegate.engines.stall import StallRule
from onegate.engines.stream import Stream
from onegate.protocol.content import Message, Tool
from onegate.tasks import Tasks

_NS_PER_MS = 1e6
_NS_PER_S = 1_000_000_000
_TICK_S = 1.0
# Of the time there is to stop: so long the host may take to leave by itself.
_GRACE_SHARE = 0.5
_GRACE_S = 2.0
# What a service manager may need to start a host of its own, at boot or after a death.
_AWAY_S = 10.0


class AttachedEngine:
    """See `base.Engine`. `start` returns at once; pools say when they are ready.

    A host that dies, stalls or breaks the wire is killed with its whole process group. What was
    inside is lost, which the sink hears before the readers do; a new host is started when nothing
    of the old one is left, after a wait that doubles from loss to loss. `crashed` is told of a bug
    in the watching itself, which ends it.

    A host that is a service of its own is attached to instead, and in the same cases it is left
    and attached to again: its service manager ends and starts it. It stays, with its model, when
    this engine is closed; `PoolInfo.loads` is then the host's own count.
    """

    def __init__(
        self,
        plan: HostPlan,
        *,
        log: Callable[[str], None],
        crashed: Callable[[str, BaseException], None],
    ) -> None:
        self._plan = plan
        self._log = log
        self._pools = {pool.model: pool for pool in plan.pools}
        self._loads_before: dict[str, int] = {}
        self._backoff = Backoff(
            first_ms=plan.backoff_first_ms, max_ms=plan.backoff_max_ms, reset_s=plan.backoff_reset_s
        )
        self._sink: Sink | None = None
        self._life: HostLife | None = None
        self._restarts = 0
        self._expected_ns = 0
        # Whether a host of ours that is not there has served, and is being started anew.
        self._served = False
        self._cold = False
        # There is no host, so nothing is loaded either; why, in words.
        self._nobody: str | None = None
        self._closing = asyncio.Event()
        self._tasks = Tasks(crashed)
        self._keeper: asyncio.Task[None] | None = None

    # --- base.Engine ------------------------------------------------------------------------

    async def start(self, sink: Sink) -> None:
        if self._keeper is not None:
            raise RuntimeError("an engine is started once")
        self._sink = sink
        self._expect()
        self._keeper = self._tasks.spawn(self._keep(), name="engine host")

    def pools(self) -> list[PoolInfo]:
        return list(self._pools.values())

    def generate(self, request: EngineRequest) -> Stream:
        return Stream(request.id, begin=partial(self._begin, request), abandon=self._abandon)

    def stop(self, id: int) -> None:
        if self._life is not None and self._life.seats.ask_to_go(id):
            self._life.send(Abort(id=id))

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        life = self._ready(request.model)
        call = life.calls.next()
        result = await life.calls.ask(
            EmbedCall(call=call, model=request.model, input=request.input)
        )
        assert isinstance(result, EmbedResult)
        return result

    async def count(
        self,
        model: str,
        *,
        prompt: str | None = None,
        raw: bool = False,
        messages: list[Message] | None = None,
        tools: list[Tool] | None = None,
    ) -> TokenCount:
        life = self._ready(model)
        result = await life.calls.ask(
            CountCall(
                call=life.calls.next(),
                model=model,
                prompt=prompt,
                raw=raw,
                messages=messages,
                tools=tools,
            )
        )
        assert isinstance(result, TokenCount)
        return result

    def snapshot(self, model: str) -> EngineSnapshot | None:
        if self._life is None or model not in self._life.snapshots:
            return None
        snapshot, taken_ns = self._life.snapshots[model]
        return structs.replace(snapshot, age_ms=(monotonic_ns() - taken_ns) / _NS_PER_MS)

    def health(self) -> Health:
        if self._closing.is_set():
            return Health(state="stopped")
        states = {pool.state for pool in self._pools.values()}
        if PoolState.READY in states:
            return Health(state="ready")
        if PoolState.LOADING in states:
            return Health(state="starting")
        if PoolState.FAILED in states:
            errors = dict.fromkeys(p.error for p in self._pools.values() if p.error is not None)
            return Health(state="failed", detail="; ".join(errors))
        return Health(state="ready", detail="loaded on demand")

    async def load(self, model: str) -> None:
        try:
            life = self._attached(model)
            await life.calls.ask(LoadCall(call=life.calls.next(), model=model))
        except (EngineRefused, EngineBroke) as error:
            raise EngineUnavailable(str(error)) from error

    def keep_cold(self, cold: bool) -> None:
        if cold == self._cold:
            return
        self._cold = cold
        if self._nobody is not None:
            if not cold:
                self._expect()
            self._take_pools_away(self._nobody, self._absent())

    async def unload(self, model: str) -> None:
        try:
            life = self._attached(model)
            for id in life.seats.of(model):
                self.stop(id)
            await life.calls.ask(UnloadCall(call=life.calls.next(), model=model))
        except (EngineRefused, EngineBroke) as error:
            raise EngineUnavailable(str(error)) from error

    async def aclose(self, deadline_s: float) -> None:
        self._closing.set()
        if self._keeper is None:
            return
        grace_s = 0.0
        if self._life is not None and self._life.is_ours and self._life.was_ready:
            self._life.leave()
            grace_s = min(_GRACE_S, deadline_s * _GRACE_SHARE)
        await asyncio.wait([self._keeper], timeout=grace_s)
        if self._life is not None:
            self._life.kill()
        await asyncio.wait([self._keeper], timeout=deadline_s - grace_s)
        await self._tasks.aclose()

    # --- requests ---------------------------------------------------------------------------

    def _begin(self, request: EngineRequest, stream: Stream) -> None:
        if self._life is not None and request.id in self._life.seats:
            raise ValueError(f"request {request.id} is inside already")
        try:
            life = self._ready(request.model)
            life.send(Submit(request=request))
        except EngineError as error:
            # Later, because the sink is never called from within `generate`.
            asyncio.get_running_loop().call_soon(self._turn_away, stream, error)
            return
        life.seats.enter(stream, request.model)

    def _turn_away(self, stream: Stream, error: EngineError) -> None:
        self._tell(SeatFreed(id=stream.id))
        stream.end(error)

    def _abandon(self, stream: Stream) -> None:
        self.stop(stream.id)

    def _attached(self, model: str) -> HostLife:
        if model not in self._pools:
            raise EngineRefused(f"there is no pool {model}", path="model")
        if self._life is None or not self._life.attached or self._closing.is_set():
            health = self.health()
            raise EngineUnavailable(f"the engine is {health.state}" + _behind(health.detail))
        return self._life

    def _ready(self, model: str) -> HostLife:
        life = self._attached(model)
        pool = self._pools[model]
        if pool.state is not PoolState.READY:
            raise EngineUnavailable(f"{model} is {pool.state}" + _behind(pool.error or ""))
        return life

    # --- the host ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        while not self._closing.is_set():
            await self._live_once()
            if self._closing.is_set():
                return
            await self._pause(self._backoff.lost())

    async def _live_once(self) -> None:
        if not (self._cold and self._nobody is not None):
            for pool in self._plan.pools:
                known = self._pools[pool.model]
                self._set_pool(structs.replace(known, state=pool.state, error=None))
        self._served = False  # until this one has
        try:
            table = self._plan.table()
            connection = self._connect()
        except EngineUnprepared as error:
            self._take_pools_away(str(error), PoolState.FAILED)
            return
        except OSError as error:
            if self._plan.host_socket is None:
                text = _not_started(self._plan.python, error)
                self._take_pools_away(text, PoolState.FAILED)
            else:
                text = _not_there(self._plan.host_socket, error)
                if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                    self._nobody = text
                self._take_pools_away(text, self._absent())
            return
        self._nobody = None
        rule = StallRule(self._plan.stall_floor_s, monotonic_ns())
        life = self._life = HostLife(
            connection,
            Seats(self._tell, rule),
            rule,
            kind=self._plan.kind,
            on_pool=self._hear_of_pool,
            on_silence=self._hear_of_silence,
        )
        reason = stopped = EngineBroke("the engine was stopped")
        try:
            reason = await life.run(
                table,
                tick_s=min(_TICK_S, self._plan.stall_floor_s / 4),
                cold=list(self._pools) if self._cold else [],
            )
        finally:
            self._life = None
            self._lose(life, stopped if self._closing.is_set() else reason)
            await life.gone()
        if life.is_ours and not self._closing.is_set():
            self._nobody = str(reason)
            if self._cold:
                self._take_pools_away(self._nobody, PoolState.COLD)

    def _connect(self) -> Connection:
        if self._plan.host_socket is not None:
            return Attachment(self._plan.host_socket)
        return Child(self._plan.python, self._log)

    def _expect(self) -> None:
        """A host that others start is worth waiting for from now on."""
        self._expected_ns = monotonic_ns() + int(_AWAY_S * _NS_PER_S)

    def _absent(self) -> PoolState:
        """What pools are whose host is not there. One of ours that has served comes back, and one
        that never came up does not; what it said of a pool itself says more. Where nothing is to be
        loaded, a host that is not there has done so."""
        if self._cold and self._nobody is not None:
            return PoolState.COLD
        waits = self._served
        if self._plan.host_socket is not None:
            waits = monotonic_ns() < self._expected_ns
        failed = any(pool.state is PoolState.FAILED for pool in self._pools.values())
        return PoolState.LOADING if waits and not failed else PoolState.FAILED

    def _lose(self, life: HostLife, reason: EngineBroke) -> None:
        self._loads_before = {model: pool.loads for model, pool in self._pools.items()}
        counts = life.was_ready and not self._closing.is_set()
        self._served = counts
        if not self._closing.is_set():
            # One that has served is expected back, and worth waiting for; one that never came up
            # is not.
            if counts:
                self._expect()
            self._take_pools_away(str(reason), PoolState.LOADING if counts else self._absent())
        self._restarts += counts

        def tell(ids: list[int]) -> None:
            if ids or counts:
                self._tell(EngineLost(ids=ids, reason=str(reason), restarts=self._restarts))

        life.seats.lose(reason, tell)
        life.calls.lose(reason)

    async def _pause(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._closing.wait()
        except TimeoutError:
            return

    def _hear_of_pool(self, pool: PoolInfo) -> None:
        before = 0 if self._plan.host_socket else self._loads_before.get(pool.model, 0)
        self._set_pool(structs.replace(pool, loads=before + pool.loads))
        if pool.state is PoolState.READY:
            self._backoff.ready()

    def _hear_of_silence(self, text: str) -> None:
        self._log(text)
        for pool in self.pools():
            self._set_pool(structs.replace(pool, error=text))

    def _take_pools_away(self, reason: str, state: PoolState) -> None:
        for pool in self.pools():
            # What the host said itself explains more than how it ended.
            self._set_pool(structs.replace(pool, state=state, error=pool.error or reason))

    def _set_pool(self, pool: PoolInfo) -> None:
        if self._pools.get(pool.model) != pool:
            self._pools[pool.model] = pool
            self._tell(PoolChanged(pool=pool))

    def _tell(self, event: EngineEvent) -> None:
        if self._sink is not None:
            self._sink(event)


def _not_started(python: str, error: OSError) -> str:
    # Only where the path itself is at fault does the system call name it.
    hint = "correct engine.python" if error.filename else "it is tried again"
    return f"{python} cannot be started ({error.strerror}): {hint}"


def _not_there(path: str, error: OSError) -> str:
    match error:
        case FileNotFoundError() | ConnectionRefusedError():
            hint = "is onegate-engine.service running? it is tried again"
        case PermissionError():
            hint = "its service lets nobody but its own daemon in: see --peer-uid and the directory"
        case _:
            hint = "it is tried again"
    return f"no engine host answers at {path} ({error.strerror}): {hint}"


def _behind(detail: str) -> str:
    return f": {detail}" if detail else ""
