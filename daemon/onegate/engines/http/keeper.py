"""Whether the server is there, what it has, and what it does: looked at for the engine's life."""

import asyncio
from collections.abc import Callable

from onegate.clock import monotonic_ns
from onegate.engines.backoff import Backoff
from onegate.engines.base import (
    EngineBroke,
    EngineError,
    EngineEvent,
    EngineLost,
    EngineSnapshot,
    EngineUnavailable,
    PoolInfo,
    PoolState,
)
from onegate.engines.http.boundary import AddressRefused
from onegate.engines.http.dialect import Dialect, Phase, Watched
from onegate.engines.http.link import HttpLink, NobodyThere
from onegate.engines.http.pools import Pools
from onegate.engines.http.quarantine import Quarantine
from onegate.engines.http.seats import HttpSeats, Seat
from onegate.engines.http.settings import HttpSettings

_NS_PER_S = 1_000_000_000
_TICK_S = 1.0
# What a service manager may need to start the server, at boot or after a death.
_AWAY_S = 10.0
# A server that works hard may be late with a look, turn it away, or this machine may lack what a
# connection needs. So many in a row, with nothing coming from it meanwhile, and it is gone.
_SILENT_LOOKS = 3
# It is gone for certain, and everything in it.
_GONE = (NobodyThere, AddressRefused)
_MAX_CAUSES = 64


class Keeper:
    """Probes until the server answers, then watches until it is lost, and again."""

    def __init__(
        self,
        dialect: Dialect,
        link: HttpLink,
        settings: HttpSettings,
        *,
        pools: Pools,
        seats: HttpSeats,
        quarantine: Quarantine,
        tell: Callable[[EngineEvent], None],
        log: Callable[[str], None],
    ) -> None:
        self._dialect = dialect
        self._link = link
        self._settings = settings
        self._pools = pools
        self._seats = seats
        self._quarantine = quarantine
        self._tell = tell
        self._log = log
        self._backoff = Backoff(
            first_ms=settings.backoff_first_ms,
            max_ms=settings.backoff_max_ms,
            reset_s=settings.backoff_reset_s,
        )
        self._restarts = 0
        self._expected_ns = monotonic_ns() + int(_AWAY_S * _NS_PER_S)
        self._doubted = asyncio.Event()
        self._causes: set[str] = set()
        self.snapshots: dict[str, tuple[EngineSnapshot, int]] = {}
        self.leave: Callable[[Seat, EngineError], None] = lambda seat, error: None
        self.came_up: Callable[[], None] = lambda: None

    def doubt(self, error: EngineError | None = None) -> None:
        """Look now. Each cause is logged once until the server is well again."""
        if error is not None:
            self._log_once(str(error))
        self._doubted.set()

    async def look(self) -> None:
        """Look, and return when what is seen has been told. What goes wrong is left to `run`."""
        try:
            watched = await self._dialect.watch(self._link)
        except EngineError:
            watched = None
        if watched is None or self._quarantine.ghosts:
            self._doubted.set()
        else:
            self._take(watched)

    async def run(self) -> None:
        """For the engine's life."""
        while True:
            try:
                pools = await self._dialect.probe(self._link)
                if await self._quarantine.haunted():
                    raise EngineBroke(_HELD)
            except EngineError as error:
                self._away(error)
            else:
                self._causes.clear()
                self._backoff.ready()
                self._learn(pools)
                self.came_up()
                reason = await self._watch()
                # Where the server is there and only holds on to something, the others go on.
                held = self._quarantine.overdue()
                lost = held or list(self._seats)
                if not isinstance(reason, _Gone):
                    self._quarantine.give_up(lost)
                state = PoolState.FAILED if held else PoolState.LOADING
                self.lose(lost, reason, state=state)
                self._seats.hear_the_cut()
            await asyncio.sleep(self._backoff.lost())
            self._end_the_silent(monotonic_ns())

    async def _watch(self) -> EngineBroke:
        """Returns why the server counts as lost."""
        looked_ns, silent = monotonic_ns(), 0
        while True:
            doubted = await self._pause(_TICK_S)
            now_ns = monotonic_ns()
            if self._quarantine.overdue():
                return EngineBroke(_HELD)
            self._end_the_silent(now_ns)
            self._pools.tick()
            if not doubted and now_ns - looked_ns < self._settings.watch_s * _NS_PER_S:
                continue
            try:
                watched = await self._dialect.watch(self._link)
                if doubted and watched.pools is None:
                    self._learn(await self._dialect.probe(self._link))
            except _GONE as error:
                self._quarantine.forget()
                return _Gone(str(error))
            except EngineError as error:
                self._log_once(str(error))
                moved = any(seat.moved_ns > looked_ns for seat in self._seats)
                silent = 0 if moved else silent + 1
                unused = isinstance(error, EngineUnavailable) and not len(self._seats)
                if silent >= _SILENT_LOOKS or unused:
                    return EngineBroke(str(error))
            else:
                silent = 0
                self._take(watched)
            self._seats.hear_the_cut()
            looked_ns = monotonic_ns()

    def _take(self, watched: Watched) -> None:
        """Tell what a look has shown."""
        if watched.pools is not None:
            self._learn(watched.pools)
        for notice in watched.notices:
            self._pools.notice(notice.code, notice.model, notice.detail)
        for snapshot in watched.snapshots:
            self.snapshots[snapshot.model] = (snapshot, monotonic_ns())
            self._pools.observed(snapshot)

    def _learn(self, pools: list[PoolInfo]) -> None:
        for model in self._pools.probed(pools):
            self._log_once(
                f"the server shows one more model, {model}, which is not served: too many have "
                "been seen. Name those to serve, or restart the daemon"
            )

    async def _pause(self, wait_s: float) -> bool:
        """Whether somebody doubts."""
        try:
            async with asyncio.timeout(wait_s):
                await self._doubted.wait()
        except TimeoutError:
            return False
        self._doubted.clear()
        return True

    def _end_the_silent(self, now_ns: int) -> None:
        for seat in self._seats:
            if seat.left_ns is not None:
                continue
            limit_s = self._settings.idle_s
            if seat.phase is not Phase.DECODE:
                limit_s = self._settings.first_s
            if now_ns - seat.moved_ns > limit_s * _NS_PER_S:
                error = EngineBroke(f"the engine has said nothing for {limit_s:g} s")
                self._log_once(str(error))
                self.leave(seat, error)

    def lose(
        self, seats: list[Seat], reason: EngineBroke, *, state: PoolState | None = None
    ) -> None:
        """The server is given up, and these seats with it. `state` is what the pools are from now
        on; None where that was told before."""
        self.snapshots.clear()
        if state is not None:
            self._restarts += 1
            self._log_once(str(reason))
            self._expected_ns = monotonic_ns() + int(_AWAY_S * _NS_PER_S)
            self._pools.taken_away(state, str(reason))

        def tell(ids: list[int]) -> None:
            if ids or state is not None:
                self._tell(EngineLost(ids=ids, reason=str(reason), restarts=self._restarts))

        for seat in seats:
            self._pools.width(seat.model).ended(seat.id, monotonic_ns())
            if seat.task is not None:
                seat.task.cancel()
        self._seats.lose(seats, reason, tell)

    def _away(self, error: EngineError) -> None:
        self._log_once(str(error))
        expected = monotonic_ns() < self._expected_ns and not isinstance(error, AddressRefused)
        waits = expected and isinstance(error, EngineUnavailable)
        if isinstance(error, _GONE):
            self._quarantine.forget()
            self.lose(list(self._seats), EngineBroke(str(error)))
        self._seats.hear_the_cut()
        self._pools.taken_away(PoolState.LOADING if waits else PoolState.FAILED, str(error))

    def _log_once(self, cause: str) -> None:
        if cause not in self._causes and len(self._causes) < _MAX_CAUSES:
            self._causes.add(cause)
            self._log(cause)


class _Gone(EngineBroke):
    """Nothing that was inside runs any more."""


_HELD = (
    "the engine goes on with requests whose connections were closed, and cannot be given others: "
    "restart it, or wait until it is done with them"
)
