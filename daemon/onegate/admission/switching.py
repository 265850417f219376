"""Which pool is loaded next, where only some can be at a time.

The loaded pool is preferred. A cold one is loaded when nothing else is wanted, at once when
somebody of a better rank wants it than any who wait for a loaded one, and otherwise in its turn:

- behind waiting requests of the same rank, after the window and two switches;
- behind better ranks only if its class has a floor, and then after that time divided by the floor
  share: the floor in time, because a pool that is away earns no tokens.

A turn comes that long after the arrival, or after the pool last served somebody or failed to load.
Once ready, a pool keeps its place for the window, or while something waits for it: against its own
rank always, so that a switch that was paid for is used, and against better ranks only when it was
loaded by its floor, and then also while something runs in it. Work of the loaded pools ends first,
and none is started meanwhile, so that no request is lost to a switch.

Whoever is stopped for a switch waits again, and must not be what puts the switch off: it would be
started and stopped for ever. So what holds a pool in its place against better ranks holds it for
what waits and for what runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from onegate.admission.model import PoolState
from onegate.admission.records import Pool, Record

# After a load was asked for nothing starts anywhere until it is done, because the engine may be
# about to put any other pool aside. One that has not said so by then holds both, or has lost the
# word: it must not stop the box.
LOAD_ANSWER_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Want:
    """The best waiting request of a pool, and the rank and floor share of its class."""

    pool: Pool
    record: Record
    rank: int
    floor_share: float

    def turn_ns(self, better_wait: bool, window_ns: int) -> int | None:
        """When its turn comes, while better ranks wait for a loaded pool or only its own does.

        None for never: a class without a floor waits for better ones to the end.
        """
        pool = self.pool
        since_ns = max(self.record.spec.arrived_ns, pool.away_since_ns, pool.load_asked_ns or 0)
        patience_ns = window_ns + 2 * (pool.spec.switch_cost_ns or 0)
        if not better_wait:
            return since_ns + patience_ns
        return since_ns + round(patience_ns / self.floor_share) if self.floor_share else None


@dataclass(frozen=True, slots=True)
class Choice:
    """The cold pool to make room for, if any, and when to choose anew at the latest.

    `asked` while the shell has just been told to load it; `in_turn` when its class has a floor and
    it may be loaded by that.
    """

    target: Pool | None = None
    wake_ns: int | None = None
    asked: bool = False
    in_turn: bool = False


NO_CHOICE = Choice()


def choose(
    pools: Iterable[Pool],
    want_of: Callable[[Pool], Want | None],
    *,
    now_ns: int,
    window_ns: int,
) -> Choice:
    """The pool to switch to as things are, or none to leave them so."""
    cold: list[Want] = []
    best_loaded: int | None = None
    # Until when loaded pools keep their place against their own rank, and against everybody.
    kept_ns = held_ns = now_ns
    for pool in pools:
        if pool.load_asked_ns is not None:
            answer_ns = pool.load_asked_ns + LOAD_ANSWER_NS
            if now_ns < answer_ns:
                return Choice(pool, answer_ns, asked=True)
        if pool.spec.state is PoolState.LOADING:
            return NO_CHOICE  # one at a time
        want = want_of(pool)
        if pool.ready and pool.in_turn and (want is not None or pool.ledger.seats):
            held_ns = max(held_ns, pool.ready_since_ns + window_ns)
        if want is None:
            continue
        if pool.spec.state is PoolState.COLD:
            cold.append(want)
        elif pool.ready:
            kept_ns = max(kept_ns, pool.ready_since_ns + window_ns)
            if best_loaded is None or want.rank < best_loaded:
                best_loaded = want.rank
    wake_ns: int | None = None
    for want in sorted(cold, key=lambda want: (want.rank, want.record.seq)):
        # One that was asked for in vain waits for its turn, whoever wants it.
        if best_loaded is None:
            due_ns = held_ns
        elif want.rank < best_loaded and want.pool.load_asked_ns is None:
            due_ns = held_ns
        else:
            turn_ns = want.turn_ns(want.rank > best_loaded, window_ns)
            if turn_ns is None:
                continue
            due_ns = max(turn_ns, kept_ns)
        if due_ns <= now_ns:
            floor_ns = want.turn_ns(True, window_ns)
            return Choice(want.pool, in_turn=floor_ns is not None and floor_ns <= now_ns)
        wake_ns = due_ns if wake_ns is None else min(wake_ns, due_ns)
    return Choice(None, wake_ns)
