"""The pools of an HTTP engine as they are told: what the server says, and what was found out."""

from collections.abc import Callable

from msgspec import structs

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    EngineEvent,
    EngineNotice,
    EngineSnapshot,
    Health,
    NoticeName,
    PoolChanged,
    PoolInfo,
    PoolState,
)
from onegate.engines.http.capacity import Width

_NS_PER_MS = 1e6
_RESTING = "the engine asked to be left alone for {:.0f} s"
# A pool that has been told of stays: a server that has another model at every look must not fill
# the memory with those it had.
_MAX_POOLS = 256


class Pools:
    """What the probe says is the ceiling; what is told has the seats that proved to be real."""

    def __init__(self, pools: list[PoolInfo], tell: Callable[[EngineEvent], None]) -> None:
        self._tell = tell
        # As the server says, and as it was told.
        self._said = {pool.model: pool for pool in pools}
        self._told = dict(self._said)
        self._widths = {pool.model: Width(pool.capacity.max_seqs) for pool in pools}
        self._notices: dict[tuple[NoticeName, str | None], str] = {}
        self._resting: dict[str, int] = {}

    def all(self) -> list[PoolInfo]:
        """Every pool, loaded or not."""
        return list(self._told.values())

    def get(self, model: str) -> PoolInfo | None:
        """One pool, None where there is none of that name."""
        return self._told.get(model)

    def limit(self, model: str) -> int:
        """How many requests may be inside now."""
        return self._widths[model].limit

    def width(self, model: str) -> Width:
        """What is known of how many it runs at once."""
        return self._widths[model]

    def health(self) -> Health:
        """See `base.Engine.health`."""
        states = {pool.state for pool in self._told.values()}
        errors = dict.fromkeys(p.error for p in self._told.values() if p.error is not None)
        if PoolState.READY in states:
            return Health(state="ready")
        if PoolState.LOADING in states or not states:
            return Health(state="starting", detail="; ".join(errors))
        if PoolState.FAILED in states:
            return Health(state="failed", detail="; ".join(errors))
        return Health(state="ready", detail="loaded on demand")

    def resting_ms(self, model: str) -> float | None:
        """For how long the server wants to be left alone; None where it does not."""
        until_ns = self._resting.get(model)
        return None if until_ns is None else max(0.0, (until_ns - monotonic_ns()) / _NS_PER_MS)

    def probed(self, pools: list[PoolInfo]) -> list[str]:
        """What the server has now; what it no longer has cannot be served. Returns the models for
        which there is no room."""
        self.notice("engine_down", None, None)
        beyond = []
        for pool in pools:
            known = self._said.get(pool.model)
            if known is None and len(self._said) >= _MAX_POOLS:
                beyond.append(pool.model)
                continue
            if known is None:
                self._widths[pool.model] = Width(pool.capacity.max_seqs)
            elif (
                known.identity not in (None, pool.identity)
                or known.capacity.max_seqs != pool.capacity.max_seqs
            ):
                # Another model under the same name: nothing that was learnt holds for it.
                self._widths[pool.model] = self._widths[pool.model].anew(pool.capacity.max_seqs)
            loads = pool.loads
            if not loads and known is not None:
                again = pool.state is PoolState.READY and known.state is not PoolState.READY
                loads = known.loads + again
            elif not loads:
                loads = int(pool.state is PoolState.READY)
            self._said[pool.model] = structs.replace(pool, loads=loads)
            self._show(pool.model)
        names = {pool.model for pool in pools}
        for model, pool in list(self._said.items()):
            if model not in names:
                why = f"the server has no model {model} (any more)"
                self._said[model] = structs.replace(pool, state=PoolState.FAILED, error=why)
                self._show(model)
        return beyond

    def taken_away(self, state: PoolState, why: str) -> None:
        """The server cannot be used. What it asked for holds no longer when it is back."""
        self._resting.clear()
        if not self._said:  # and no pool that could say why
            self.notice("engine_down", None, why)
        for model, pool in list(self._said.items()):
            self._said[model] = structs.replace(pool, state=state, error=why)
            self._show(model)

    # --- seats that are real ----------------------------------------------------------------

    def rest(self, model: str, wait_ms: float) -> None:
        """The server said when to come back."""
        until_ns = monotonic_ns() + int(wait_ms * 1e6)
        self._resting[model] = max(until_ns, self._resting.get(model, 0))
        self._show(model)

    def observed(self, snapshot: EngineSnapshot) -> None:
        """The server's own figures of one pool."""
        width = self._widths.get(snapshot.model)
        if width is not None:
            width.observed(snapshot.seats_used, snapshot.waiting, monotonic_ns())
            self._show(snapshot.model)

    def tick(self) -> None:
        """Time has passed."""
        for model, width in self._widths.items():
            width.tick(monotonic_ns())
            self._show(model)

    def show(self, model: str) -> None:
        """Something about the width of a pool may have changed."""
        self._show(model)

    def _show(self, model: str) -> None:
        said, width = self._said[model], self._widths[model]
        pool = structs.replace(
            said, capacity=structs.replace(said.capacity, max_seqs=max(1, width.limit))
        )
        until_ns = self._resting.get(model, 0)
        if until_ns and (left_ns := until_ns - monotonic_ns()) <= 0:
            del self._resting[model]
        elif until_ns and pool.state is PoolState.READY:
            # What waits, waits in the gate: it is not sent just to be turned away.
            why = _RESTING.format(max(1.0, left_ns / 1e9))
            known = self._told.get(model)
            if known is not None and known.state is PoolState.LOADING and known.error is not None:
                why = known.error
            pool = structs.replace(pool, state=PoolState.LOADING, error=why)
        if self._told.get(model) != pool:
            self._told[model] = pool
            self._tell(PoolChanged(pool=pool))
        self.notice("engine_queueing", model, width.finding)
        self.notice("foreign_load", model, _foreign(width))

    def notice(self, code: NoticeName, model: str | None, detail: str | None) -> None:
        """Tell it once, and once that it is over."""
        key: tuple[NoticeName, str | None] = (code, model)
        if self._notices.get(key) == detail:
            return
        if detail is None:
            self._notices.pop(key, None)
        else:
            self._notices[key] = detail
        self._tell(EngineNotice(code=code, model=model, detail=detail))


def _foreign(width: Width) -> str | None:
    if not width.foreign_seen:
        return None
    return (
        "somebody else uses the engine beside this daemon: what they send waits with what waits "
        "here, and in no order. Let them use the daemon, or close the engine's port to them"
    )
