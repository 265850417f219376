"""What the engine says of itself, passed on to the gate, the accounts, the journal and status."""

import asyncio

from msgspec import structs

from onegate.engines.base import (
    Engine,
    EngineCapacity,
    EngineEvent,
    EngineLost,
    EngineNotice,
    EngineUnavailable,
    PoolChanged,
    PoolInfo,
    PoolState,
    SeatFreed,
)
from onegate.protocol.errors import NoticeCode
from onegate.server.account import Accounts
from onegate.server.gate import Gate
from onegate.server.log import Event, Log
from onegate.server.release import Release
from onegate.server.report import Reporter
from onegate.tasks import Tasks

# An engine that is just being started takes no load and says so. It is asked again, and not for so
# long that the core, which asks again by itself, would do so meanwhile.
AGAIN_S = 0.1
ASKED_AT_MOST = 90


class EngineRoom:
    """The engine's sink, and the one who loads pools when the core asks for it."""

    def __init__(
        self,
        *,
        engine: Engine,
        gate: Gate,
        accounts: Accounts,
        release: Release,
        reporter: Reporter,
        log: Log,
        tasks: Tasks,
    ) -> None:
        self._engine = engine
        self._gate = gate
        self._accounts = accounts
        self._release = release
        self._reporter = reporter
        self._log = log
        self._tasks = tasks
        self._down: dict[str, str | None] = {}
        self._first_capacity: dict[str, EngineCapacity] = {}
        self._changed: set[str] = set()
        self._ready: set[str] = set()
        self._told: dict[str, dict[str, str]] = {}
        # Of an engine that has not said yet which models it has.
        self._absent: str | None = None

    def hear(self, event: EngineEvent) -> None:
        """The sink handed to `Engine.start`."""
        match event:
            case SeatFreed(id=seat):
                self._gate.seat_freed(seat)
            case EngineLost():
                if self._engine.health().state != "stopped":  # which was asked of it
                    self._accounts.engine_losses += 1
                    self._log.event(Event.ENGINE_EXITED, count=len(event.ids), detail=event.reason)
                self._gate.engine_lost(event.ids)
            case PoolChanged(pool=pool):
                self._pool_changed(pool)
            case EngineNotice():
                self._notice(event)

    def _notice(self, event: EngineNotice) -> None:
        if event.model is None:
            self._absent = event.detail
            self._say_down()
            return
        told = self._told.setdefault(event.code, {})
        if event.detail is None:
            told.pop(event.model, None)
        else:
            told[event.model] = event.detail
            self._log.event(
                Event.POOL_CHANGED, model=event.model, state=event.code, detail=event.detail
            )
        # One notice speaks for all models.
        text = "; ".join(f"model {model}: {detail}" for model, detail in told.items())
        self._reporter.notice(NoticeCode(event.code), text or None)

    def _pool_changed(self, pool: PoolInfo) -> None:
        self._release.tell(pool)
        self._log.event(
            Event.POOL_CHANGED, model=pool.model, state=pool.state.value, detail=pool.error
        )
        capacity = self._to_compare(pool)
        # Of several pools each may be down or changed by itself, and one notice speaks for all.
        if pool.state is PoolState.FAILED:
            self._down[pool.model] = pool.error
        elif pool.state is PoolState.READY:
            self._down.pop(pool.model, None)
            if capacity == self._first_capacity.setdefault(pool.model, capacity):
                self._changed.discard(pool.model)
            else:
                self._changed.add(pool.model)
        self._say_down()
        changed = [f"model {model} came back with other limits" for model in sorted(self._changed)]
        self._reporter.notice(NoticeCode.CAPACITY_CHANGED, "; ".join(changed) or None)

    def _say_down(self) -> None:
        down = [] if self._absent is None else [self._absent]
        down += [f"model {model} cannot be served: {why}" for model, why in self._down.items()]
        self._reporter.notice(NoticeCode.ENGINE_DOWN, "; ".join(down) or None)

    def _to_compare(self, pool: PoolInfo) -> EngineCapacity:
        """Its limits, without what has a notice of its own: seats that turned out to be fewer."""
        first = self._first_capacity.get(pool.model)
        was_ready = pool.model in self._ready
        self._ready.discard(pool.model)
        if pool.state is PoolState.READY:
            self._ready.add(pool.model)
        if first is None or pool.capacity.max_seqs >= first.max_seqs:
            return pool.capacity
        if not was_ready and pool.model not in self._told.get("engine_queueing", {}):
            return pool.capacity
        return structs.replace(pool.capacity, max_seqs=first.max_seqs)

    def load(self, model: str) -> None:
        """The core wants this pool; its state comes back as `PoolChanged`."""
        self._tasks.spawn(self._load(model), name=f"load {model}")

    async def _load(self, model: str) -> None:
        said: str | None = None
        for _ in range(ASKED_AT_MOST):
            try:
                await self._engine.load(model)
                return
            except EngineUnavailable as error:
                if str(error) != said:
                    # The pool's own state may say so too; the journal gets the sentence.
                    said = str(error)
                    self._log.event(Event.POOL_CHANGED, model=model, state="failed", detail=said)
            if not self._still_wanted(model):
                return
            await asyncio.sleep(AGAIN_S)

    def _still_wanted(self, model: str) -> bool:
        """Has it neither begun to load, in an engine that lives, nor failed?"""
        wanted = {PoolState.COLD}
        if self._engine.health().state == "starting":
            wanted.add(PoolState.LOADING)  # in one that has died over it
        pools = map(self._release.seen, self._engine.pools())
        return any(pool.model == model and pool.state in wanted for pool in pools)
