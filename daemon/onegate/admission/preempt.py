"""Whom to stop for whom, so that a person does not wait for a night's work.

A class that `preempts` and finds no seat, permit or cache has running requests of worse,
preemptible classes stopped: of the worst rank first, and of these the one with the least to lose.
Nobody is stopped for what probably comes by itself: when a seat is likely to be free within
`preempt_delta_ns`, by the survival of answers that are as old as those that run. (True lengths are
hidden. Means or quantiles of whole answers in place of survival at an age cost twice to five times
the wait.)

What limits it: a floor grant runs until its quantum is used; a request is computed twice at most;
of what a class has computed, `recompute_share` may be computed again. Of the requests of a pool at
most half, and one at least, are protected by that at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from onegate.admission.book import Book
from onegate.admission.lifecycle import State
from onegate.admission.model import Binding, Resume
from onegate.admission.protect import again_tok, is_protected, likely_again_tok, most_protected
from onegate.admission.queue import ClassQueue
from onegate.admission.records import Pool, Record

SURE = 0.8


@dataclass(frozen=True, slots=True)
class Stop:
    """This one makes room; its seat is kept for a request of that rank, or for nobody."""

    record: Record
    for_rank: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Whom to stop now, and when to look again at the latest."""

    stops: tuple[Stop, ...] = ()
    wake_ns: int | None = None


NOBODY = Plan()


def plan(book: Book, pool: Pool, now_ns: int) -> Plan:
    """Whom to stop in a pool where the best waiting request cannot start."""
    if not any(q.spec.preempts and q.waiting_for(pool.spec.model) for q in book.queues.values()):
        return NOBODY  # as nearly always, and cheaper to see than who is next
    best = book.best_for(pool)
    if best is None or not book.queues[best.record.spec.class_].spec.preempts:
        return NOBODY
    held = [book.records[rid] for rid in pool.ledger if book.records[rid].held]
    running = [record for record in held if record.state is not State.PREEMPTING]
    if not any(_rank(book, record) > best.rank for record in running):
        return NOBODY
    match book.in_the_way_of(best):
        case Binding.SEATS | Binding.IN_FLIGHT:
            return _for_seats(book, pool, running, now_ns)
        case Binding.KV:
            return _for_cache(book, pool, running, best.record, best.rank, now_ns)
        case _:
            return NOBODY


def for_switch(book: Book, model: str) -> Plan:
    """Whom to stop so that this pool can be loaded for its best waiting request: everybody else,
    or nobody where somebody has to finish.

    Nor for a load that was asked for in vain: it has to wait for its turn behind those who wait, so
    whoever is stopped for it would start again.
    """
    if book.pools[model].load_asked_ns is not None:
        return NOBODY
    best = book.best_for(book.pools[model])
    if best is None or not book.queues[best.record.spec.class_].spec.preempts:
        return NOBODY
    stops: list[Stop] = []
    again = _Again(book)
    for pool in book.pools.values():
        for rid in pool.ledger:
            record = book.records[rid]
            if record.state is State.PREEMPTING:
                continue
            if not _stoppable(book, record, best.rank, None) or is_protected(pool, record):
                return NOBODY
            if not again.allows(record):
                return NOBODY
            stops.append(Stop(record, None))
    return Plan(tuple(stops))


def for_release(book: Book, pool: Pool) -> Plan:
    """Whom to stop in a pool that is lent to something else: those of classes that are stopped at
    once. The others are let finish. Protection and budgets do not count: nobody else takes their
    room.
    """
    stops: list[Stop] = []
    for rid in pool.ledger:
        record = book.records[rid]
        running = record.held and record.state is not State.PREEMPTING and record.aborted is None
        at_once = book.queues[record.spec.class_].spec.stops_at_once
        if running and at_once and record.can_stop:
            stops.append(Stop(record, None))
    return Plan(tuple(stops))


def overshooting(book: Book, pool: Pool) -> Record | None:
    """Whom to stop where more of the cache has grown full than there is, before the engine picks
    somebody itself."""
    kv_tok = pool.capacity.kv_tok
    if kv_tok is None or pool.ledger.kv_tok <= kv_tok or pool.stopping:
        return None
    running = [book.records[rid] for rid in pool.ledger]
    able = [r for r in running if r.held and r.can_stop]
    if len(able) < 2:  # somebody has to go on
        return None
    return max(able, key=lambda r: (_rank(book, r), -again_tok(pool, r), r.seq))


def may_stop(book: Book, record: Record, rank: int, waited_ns: int | None) -> bool:
    """May it be stopped for a request of that rank that has waited so long (None: long enough)?"""
    return _stoppable(book, record, rank, waited_ns) and _Again(book).allows(record)


def _stoppable(book: Book, record: Record, rank: int, waited_ns: int | None) -> bool:
    """The same, whatever its class may still have done again."""
    spec = book.queues[record.spec.class_].spec
    if not spec.preemptible or spec.rank <= rank or record.aborted is not None:
        return False
    if waited_ns is not None and waited_ns < spec.preempt_grace_ns:
        return False
    return record.can_stop and record.held


class _Again:
    """What those of one plan would have to do again, by class, within its allowance."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._planned: dict[str, float] = {}

    def allows(self, record: Record) -> bool:
        """May this one be stopped as well? If so it is counted."""
        class_ = record.spec.class_
        tok = likely_again_tok(self._book.pools[record.spec.pool], record)
        planned_tok = self._planned.get(class_, 0.0) + tok
        if not self._book.allowances[class_].allows(planned_tok):
            return False
        self._planned[class_] = planned_tok
        return True


def _for_seats(book: Book, pool: Pool, running: list[Record], now_ns: int) -> Plan:
    delta_ns = book.limits.preempt_delta_ns
    candidates = _candidates(book, pool, running)
    if pool.spec.keeps_prefix and candidates and candidates[0].spec.resume is Resume.EXACT:
        delta_ns = 0  # stopping costs next to nothing, so nobody has to wait
    coming = pool.stopping + sum(
        settled_ns is not None and now_ns - settled_ns < book.limits.preempt_delta_ns
        for settled_ns in (book.records[rid].settled_ns for rid in pool.ledger)
    )
    causes = list(_causes(book, pool))[: pool.capacity.max_seqs]
    coming += _sure(_ends(book, pool, running, delta_ns, now_ns), len(causes))
    wake_ns = now_ns + delta_ns if coming and delta_ns else None
    stops: list[Stop] = []
    again = _Again(book)
    for queue in causes[coming:]:
        rid = queue.head(pool.spec.model, now_ns)
        assert rid is not None
        waited_ns = now_ns - book.records[rid].spec.arrived_ns
        for record in candidates:
            if _stoppable(book, record, queue.spec.rank, waited_ns) and again.allows(record):
                stops.append(Stop(record, queue.spec.rank))
                candidates.remove(record)
                break
            grace_ns = book.queues[record.spec.class_].spec.preempt_grace_ns
            if waited_ns < grace_ns:
                again_ns = now_ns + grace_ns - waited_ns
                wake_ns = again_ns if wake_ns is None else min(wake_ns, again_ns)
        else:
            break
    return Plan(tuple(stops), wake_ns)


def _for_cache(
    book: Book, pool: Pool, running: list[Record], cause: Record, rank: int, now_ns: int
) -> Plan:
    """Those whose cache makes the cause fit, or nobody if that is not enough."""
    if pool.stopping:
        return NOBODY
    kv_tok = pool.capacity.kv_tok
    assert kv_tok is not None
    short_tok = cause.kv_tok(pool.capacity) - (kv_tok - pool.ledger.kv_tok)
    waited_ns = now_ns - cause.spec.arrived_ns
    stops: list[Stop] = []
    again = _Again(book)
    for record in _candidates(book, pool, running):
        if short_tok <= 0:
            break
        if _stoppable(book, record, rank, waited_ns) and again.allows(record):
            stops.append(Stop(record, None if stops else rank))  # one seat is enough
            short_tok -= record.kv_tok(pool.capacity)
    return Plan(tuple(stops)) if short_tok <= 0 else NOBODY


def _causes(book: Book, pool: Pool) -> Iterator[ClassQueue]:
    """The class of each request that may have others stopped, in the order in which they start."""
    for queue in book.queues.values():
        if queue.spec.name in book.closed:
            continue
        if queue.waiting_for(pool.spec.model) and not queue.spec.preempts:
            return
        for _ in range(queue.waiting_for(pool.spec.model)):
            yield queue


def _candidates(book: Book, pool: Pool, running: list[Record]) -> list[Record]:
    """Who may be stopped as far as protection goes: worst rank first, then least to lose."""
    able = [r for r in running if book.queues[r.spec.class_].spec.preemptible and r.can_stop]
    able.sort(
        key=lambda r: (-_rank(book, r), likely_again_tok(pool, r), again_tok(pool, r), -r.seq)
    )
    # Those with the most to lose are protected first.
    kept = [r for r in reversed(able) if is_protected(pool, r)][: most_protected(pool)]
    return [r for r in able if r not in kept]


def _rank(book: Book, record: Record) -> int:
    return book.queues[record.spec.class_].spec.rank


def _ends(book: Book, pool: Pool, running: list[Record], delta_ns: int, now_ns: int) -> list[float]:
    """For each that runs, how probably it ends within `delta_ns`; 0 where nobody knows."""
    if not delta_ns:
        return []
    step_ns = pool.pace.step_ns(decode_seqs=len(running), prefill_tok=0, now_ns=now_ns)
    if not step_ns:
        return []
    ends = []
    for record in running:
        left_ns = delta_ns
        if not record.output_tok:
            prefill_ns = pool.pace.prefill_ns(record.prefill_tok - record.computed_tok, now_ns)
            left_ns -= round(prefill_ns or 0)
        steps = int(left_ns / step_ns)
        if steps <= 0:
            continue
        if record.spec.max_tok - record.output_tok <= steps:
            ends.append(1.0)
            continue
        curve = pool.curve(record.spec)
        p = None if curve is None else curve.ends_within(record.output_tok, steps)
        if p:
            ends.append(p)
    return ends


def _sure(ends: list[float], most: int) -> int:
    """How many end, up to `most`, with a probability of `SURE` for each number taken alone."""
    if not most:
        return 0
    # p[n]: exactly n have ended, of those looked at.
    p = [1.0] + [0.0] * (most - 1)
    for end in ends:
        for n in range(most - 1, 0, -1):
            p[n] = p[n] * (1 - end) + p[n - 1] * end
        p[0] *= 1 - end
    at_least, sure = 1.0, 0
    for n in range(1, most + 1):
        at_least -= p[n - 1]
        if at_least < SURE:
            break
        sure = n
    return sure
