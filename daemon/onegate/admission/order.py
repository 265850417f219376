"""Who is next, and what is in the way: the order between classes and the limits of a pool."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from onegate.admission.floor import Floor
from onegate.admission.model import Binding, GateLimits, PoolState
from onegate.admission.queue import ClassQueue
from onegate.admission.records import Pool, Record


@dataclass(frozen=True, slots=True)
class Next:
    """The request that a pool would start next; `by_floor` when its class's floor puts it first."""

    record: Record
    rank: int
    by_floor: bool

    @property
    def place(self) -> tuple[bool, int, int]:
        """Orders the candidates of several pools: the floor, then rank, then arrival."""
        return not self.by_floor, self.rank, self.record.seq


def next_for(
    pool: Pool,
    queues: Iterable[ClassQueue],
    floors: Mapping[str, Floor],
    closed: Collection[str],
    records: Mapping[int, Record],
    quantum_tok: int,
    now_ns: int,
) -> Next | None:
    """The best waiting request of an open class: by floor if one is owed, else by rank.

    `queues` come by rank. Only this request may start. If it does not fit, nothing behind it does
    either: that is what keeps small requests from starving a large one.
    """
    best: Next | None = None
    for queue in queues:
        rid = queue.head(pool.spec.model, now_ns)
        if rid is None or queue.spec.name in closed:
            continue
        if best is None:
            best = Next(records[rid], queue.spec.rank, by_floor=False)
            continue
        floor = floors.get(queue.spec.name)
        if floor is not None:
            record = records[rid]
            if floor.owed(record.prompt_tok + record.reserved_tok, quantum_tok):
                return Next(record, queue.spec.rank, by_floor=True)
    return best


def first_of(heads: Iterable[tuple[Next, Binding | None]]) -> Next | None:
    """Of those with nothing in the way, the one that goes first: pools share the permits."""
    free = [chosen for chosen, binding in heads if binding is None]
    return min(free, key=lambda chosen: chosen.place, default=None)


def nothing_starts(pool: Pool, in_flight: int, limits: GateLimits) -> Binding | None:
    """The limit that keeps any request whatever from starting in the pool now."""
    if pool.spec.state is PoolState.RELEASED:
        return Binding.CLOSED
    if pool.spec.state is not PoolState.READY:
        return Binding.LOADING
    if in_flight >= limits.max_in_flight:
        return Binding.IN_FLIGHT
    if pool.ledger.seats >= pool.spec.capacity.max_seqs + limits.look_ahead:
        return Binding.SEATS
    return None


def does_not_fit(pool: Pool, rank: int, prefill_tok: int, kv_tok: int) -> Binding | None:
    """The limit that keeps a request of this size from starting, seats and permits apart.

    `prefill_tok` are computed before its next token; it reserves `kv_tok` of the cache.
    """
    capacity, ledger = pool.spec.capacity, pool.ledger
    if capacity.kv_tok is not None and ledger.seats:
        # An empty pool takes anything: what does not fit then never will, and the engine says so.
        if ledger.kv_tok + kv_tok > capacity.kv_tok:
            return Binding.KV
    if capacity.max_step_tok is not None:
        outstanding_tok = ledger.unprefilled_up_to(rank)
        if outstanding_tok and outstanding_tok + prefill_tok > capacity.max_step_tok:
            return Binding.STEP_TOK
    return None
