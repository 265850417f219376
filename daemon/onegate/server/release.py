"""The device lent to something else for a while: a game, an image model, a transcription.

From the beginning on nobody new comes in: the core sees every pool as released. What waits is
refused with the time at which the device is back, unless its class waits when it is closed. Of what
runs, classes that are stopped at once are stopped where their answers can go on or begin anew, and
wait for the device; the rest has `drain_timeout_s` to finish, or none if that was asked for. Then
the pools are unloaded, and an engine that comes up meanwhile loads none. When the device is taken
back, a pool is loaded again once somebody asks for it. All of that outlives the daemon, where it
keeps its state on disk; requests do not.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from onegate import clock
from onegate.admission.model import ClassSpec
from onegate.engines.base import Engine, EngineUnavailable, PoolInfo, PoolState
from onegate.protocol.errors import Phase, Reason
from onegate.server.closures import Closure, Closures
from onegate.server.gate import Gate
from onegate.server.live import QUEUED_VERBS, LiveRequest, LiveRequests
from onegate.server.log import Event, Log
from onegate.server.outcome import Ending, Outcome
from onegate.server.term import LOOK_S, NS_PER_MS, Term
from onegate.server.translate import pool_spec
from onegate.tasks import Tasks

# How often is looked whether what ran is gone; nobody waits for less.
POLL_S = 0.05
NS_PER_S = 1_000_000_000
LENT = "the device is lent to something else, and no model is loaded"
_LOADED = (PoolState.READY, PoolState.LOADING)


class Release:
    """Whether the device is lent, until when, and how far that has come.

    `class_of(name)` and `drain_timeout_s()` are what is configured now.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        gate: Gate,
        live: LiveRequests,
        class_of: Callable[[str], ClassSpec],
        drain_timeout_s: Callable[[], float],
        closures: Closures,
        log: Log,
        tasks: Tasks,
    ) -> None:
        self._engine = engine
        self._gate = gate
        self._live = live
        self._class_of = class_of
        self._drain_timeout_s = drain_timeout_s
        self._closures = closures
        self._log = log
        self._tasks = tasks
        self._term: Term | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._freeing: asyncio.Task[None] | None = None
        self._finish_by_ns = 0
        self._settled = asyncio.Event()
        self.in_force = False

    # --- what others see ------------------------------------------------------------------------

    def seen(self, pool: PoolInfo) -> PoolInfo:
        """The pool as it is to everybody but the engine."""
        return structs.replace(pool, state=PoolState.RELEASED) if self.in_force else pool

    @property
    def until_ms(self) -> int | None:
        """The Unix time at which it is taken back; None: by hand, or not lent at all."""
        left_ms = self._left_ms()
        return None if left_ms is None else clock.wall_ms() + left_ms

    def tell(self, pool: PoolInfo) -> None:
        """Tell the core of a pool, as the engine says it is now."""
        left_ms = self._left_ms()
        until_ns = None if left_ms is None else clock.monotonic_ns() + left_ms * NS_PER_MS
        self._gate.pool_changed(pool_spec(self.seen(pool), until_ns))
        if self.in_force and pool.state in _LOADED:
            self._free_soon()  # an engine that was restarted loads by itself

    # --- lending and taking back ----------------------------------------------------------------

    def begin(self, *, until_ms: int | None, now: bool, principal: str) -> None:
        """Lend it until that Unix time, None: until `end`; a second time changes the time.

        `now`: what runs, and cannot go on later, is ended instead of waited for.
        """
        closure = Closure(principal=principal, since_ms=clock.wall_ms(), until_ms=until_ms)
        self._closures.close(closure)
        self._log.event(Event.ENGINE_RELEASED, principal=principal, until_ms=until_ms)
        self._lend(closure)
        if now:
            for live in self._live:
                if live.verb in QUEUED_VERBS and not _waiting(live):
                    if not self._gate.stops(live.serial):
                        live.end(self.ending(Outcome.ABORTED))

    def restore(self, closure: Closure) -> None:
        """It was lent when the daemon before this one ended. To be called before the engine starts,
        which then loads nothing."""
        self._log.event(
            Event.ENGINE_RELEASED,
            principal=closure.principal,
            until_ms=closure.until_ms,
            state="still",
        )
        self._lend(closure)

    def _lend(self, closure: Closure) -> None:
        if not self.in_force:  # a second time changes only when it ends
            self._finish_by_ns = clock.monotonic_ns() + round(self._drain_timeout_s() * NS_PER_S)
        self.in_force = True
        self._term = Term(closure)
        self._settled.clear()
        self._engine.keep_cold(True)
        for pool in self._engine.pools():
            self.tell(pool)
        self._free_soon()
        self._look()

    def end(self, principal: str | None = None) -> bool:
        """Take it back; false where it was not lent. None: the time was over."""
        if not self.in_force:
            return False
        self.close()
        self.in_force = False
        self._term = None
        self._closures.open(None)
        self._engine.keep_cold(False)
        self._settled.set()
        self._log.event(Event.ENGINE_TAKEN_BACK, principal=principal)
        for pool in self._engine.pools():
            self.tell(pool)
        return True

    async def wait_free(self) -> bool:
        """Wait until the device is free; false where it was taken back before. The disk knows by
        then that it is lent."""
        await self._settled.wait()
        await self._closures.written()
        return self.in_force

    def close(self) -> None:
        """Look at the time no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Is the time over?"""
        self.close()
        left_ms = self._left_ms()
        if left_ms is None:
            return
        if left_ms <= 0:
            self.end()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(left_ms / 1000, LOOK_S), self._look_again)

    def _look_again(self) -> None:
        for pool in self._engine.pools():
            self.tell(pool)  # the wall's clock may have been set, or the machine have slept
        self._look()

    def _left_ms(self) -> int | None:
        return None if self._term is None else self._term.left_ms()

    # --- making it free -------------------------------------------------------------------------

    def _free_soon(self) -> None:
        if self._freeing is None or self._freeing.done():
            self._freeing = self._tasks.spawn(self._free(), name="release")

    async def _free(self) -> None:
        said: str | None = None
        while self.in_force:
            self._refuse_waiting()
            if clock.monotonic_ns() >= self._finish_by_ns:
                self._end_running()
            if not self._gate.view().in_flight:
                loaded = [pool.model for pool in self._engine.pools() if pool.state in _LOADED]
                if not loaded:
                    break
                try:
                    for model in loaded:
                        await self._engine.unload(model)
                except EngineUnavailable as error:  # it is just being started, and will load
                    if str(error) != said:
                        said = str(error)
                        self._log.event(Event.ENGINE_RELEASED, state="not free yet", detail=said)
            await asyncio.sleep(POLL_S)
        if self.in_force and not self._settled.is_set():
            self._log.event(Event.ENGINE_FREE, until_ms=self.until_ms)
            self._settled.set()

    def _refuse_waiting(self) -> None:
        for live in self._live:
            if live.verb not in QUEUED_VERBS or not _waiting(live):
                continue
            # One that waits again has been told that it started.
            started, class_ = live.granted_ns is not None, self._class_of(live.class_)
            if not class_.waits_when_closed and not (started and class_.stops_at_once):
                live.end(self.ending(Outcome.ABORTED if started else Outcome.REJECTED))

    def _end_running(self) -> None:
        for live in self._live:
            if self._gate.holds(live.serial):
                live.end(self.ending(Outcome.ABORTED))

    def ending(self, outcome: Outcome) -> Ending:
        """What is said to whom it keeps out, with the time at which it is over."""
        ending, left_ms = Ending(outcome, Reason.RELEASED, LENT), self._left_ms()
        return ending if left_ms is None else replace(ending, retry_after_ms=max(0, left_ms))


def _waiting(live: LiveRequest) -> bool:
    return live.phase is Phase.QUEUED
