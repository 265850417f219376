"""The core's whole state, and the questions about it that change nothing."""

from collections.abc import Iterable, Iterator, Mapping

from onegate.admission.floor import Floor
from onegate.admission.lifecycle import State
from onegate.admission.model import (
    Binding,
    ClassSpec,
    GateLimits,
    PoolSpec,
    PoolState,
    Refusal,
    Refused,
)
from onegate.admission.order import Next, does_not_fit, first_of, next_for, nothing_starts
from onegate.admission.protect import Allowance, floor_may_start
from onegate.admission.queue import Backpressure, ClassQueue
from onegate.admission.records import Pool, Record, kv_cost
from onegate.admission.tickets import Tickets


class Book:
    """Requests, queues, pools, floors. `queues` are in the order of their ranks.

    While `switching_to` names a pool, nothing starts in the others. `all_ready` says that every
    pool is, so that there is nothing to choose. `now_ns` is the time of the event at hand.
    """

    def __init__(
        self, limits: GateLimits, classes: tuple[ClassSpec, ...], pools: tuple[PoolSpec, ...]
    ) -> None:
        self.limits = limits
        self.queues: dict[str, ClassQueue] = {}
        self.floors: dict[str, Floor] = {}
        self.allowances: dict[str, Allowance] = {}
        self.tickets = Tickets()
        self.pools: dict[str, Pool] = {spec.model: Pool(spec) for spec in pools}
        self.closed: dict[str, int | None] = {}
        self.records: dict[int, Record] = {}
        self.queued = 0
        self.in_flight = 0
        self.draining = False
        self.all_ready = False
        self.switching_to: str | None = None
        self.switch_wake_ns: int | None = None
        self.preempt_wake_ns: int | None = None
        self.now_ns = 0
        self.preemptible: frozenset[str] = frozenset()
        self.set_classes(classes)
        self.pools_changed()

    def pools_changed(self) -> None:
        """The state of a pool is another."""
        self.all_ready = all(pool.ready for pool in self.pools.values())

    def set_classes(self, classes: tuple[ClassSpec, ...]) -> None:
        """Take the classes as they are configured now; what waits in them stays."""
        gone = self.queues.keys() - {spec.name for spec in classes}
        assert not gone, f"classes cannot be removed while requests may be in them: {gone}"
        assert len({spec.rank for spec in classes}) == len(classes), "two classes share a rank"
        queues = {}
        for spec in sorted(classes, key=lambda spec: spec.rank):
            queue = self.queues.get(spec.name)
            if queue is None:  # an empty one is falsy, and has a rate to keep
                queue = ClassQueue(spec)
            queue.spec = spec
            queues[spec.name] = queue
            share = self.limits.recompute_share
            self.allowances.setdefault(spec.name, Allowance(share)).share = share
            if not spec.floor_share:
                self.floors.pop(spec.name, None)
            elif spec.name in self.floors:
                self.floors[spec.name].share = spec.floor_share
            else:
                self.floors[spec.name] = Floor(spec.floor_share)
        self.queues = queues
        self.preemptible = frozenset(spec.name for spec in classes if spec.preemptible)

    @property
    def queued_tok(self) -> int:
        """Tokens that wait, in all classes."""
        return sum(queue.queued_tok for queue in self.queues.values())

    def waits(self, class_: str, pool: str) -> bool:
        """Does something of an open class wait for this pool?"""
        return class_ not in self.closed and self.queues[class_].waiting_for(pool) > 0

    def up_to(self, class_: str) -> list[ClassQueue]:
        """The queues of better ranks and this class's own, best first."""
        rank = self.queues[class_].spec.rank
        return [queue for queue in self.queues.values() if queue.spec.rank <= rank]

    def better_waits(self, class_: str, pool: str) -> bool:
        """Does something of a better open class wait for this pool?"""
        return any(self.waits(queue.spec.name, pool) for queue in self.up_to(class_)[:-1])

    # --- who is next ----------------------------------------------------------------------------

    def next_for(self, pool: Pool) -> Next | None:
        """Who would start next in this pool."""
        chosen = self._next(pool, self.floors)
        if chosen is not None and chosen.by_floor:
            ahead = self.limits.look_ahead
            if not floor_may_start(pool, self.records, self.preemptible, ahead):
                return self.best_for(pool)
        return chosen

    def best_for(self, pool: Pool) -> Next | None:
        """The same by rank alone."""
        return self._next(pool, {})

    def _next(self, pool: Pool, floors: Mapping[str, Floor]) -> Next | None:
        return next_for(
            pool,
            self.queues.values(),
            floors,
            self.closed,
            self.records,
            self.limits.floor_quantum_tok,
            self.now_ns,
        )

    def heads(self) -> list[tuple[Next, Binding | None]]:
        """Who is next of each pool that has a free seat, and what is in the way of that one."""
        heads = []
        for model, pool in self.pools.items():
            if self._nothing_starts(model, pool) is None:
                chosen = self.next_for(pool)
                if chosen is not None:
                    heads.append((chosen, self._does_not_fit(pool, chosen)))
        return heads

    def next_to_start(self) -> Next | None:
        """Who starts next of all, if anybody can."""
        return first_of(self.heads())

    def _does_not_fit(self, pool: Pool, chosen: Next) -> Binding | None:
        record = chosen.record
        kv_tok = record.kv_tok(pool.capacity)
        if chosen.by_floor:
            return does_not_fit(pool, chosen.rank, record.prefill_tok, kv_tok)
        return self._keeps_out(pool, chosen.rank, record.prefill_tok, kv_tok)

    def _keeps_out(self, pool: Pool, rank: int, prefill_tok: int, kv_tok: int) -> Binding | None:
        """What keeps a request of this size from starting that no floor puts first."""
        return does_not_fit(pool, rank, prefill_tok, kv_tok) or self._slows(pool, rank)

    def _slows(self, pool: Pool, rank: int) -> Binding | None:
        """Would one sequence more make the steps of a better class longer than it wants them?"""
        for queue in self.queues.values():
            if queue.spec.rank >= rank:
                return None
            if queue.spec.itl_target_ns is None or not self._runs_in(queue, pool):
                continue
            step_ns = pool.pace.step_ns(
                decode_seqs=pool.ledger.seats + 1, prefill_tok=0, now_ns=self.now_ns
            )
            if step_ns is not None and step_ns > queue.spec.itl_target_ns:
                return Binding.ITL
        return None

    def _runs_in(self, queue: ClassQueue, pool: Pool) -> bool:
        """Does a request of the class run in the pool? Other pools' steps are their own."""
        if not queue.running:
            return False
        running = (self.records[rid] for rid in pool.ledger)
        return any(r.held and r.spec.class_ == queue.spec.name for r in running)

    def hold(self, heads: Iterable[tuple[Next, Binding | None]]) -> None:
        """Whoever is next and finds a seat, but no cache or step for its size, keeps its place."""
        for chosen, binding in heads:
            if binding in (Binding.KV, Binding.STEP_TOK):
                self.queues[chosen.record.spec.class_].hold(chosen.record.rid)

    def give_up_kept(self) -> None:
        """Seats are not kept for more than those who wait: a cause may have left."""
        for pool in self.pools.values():
            while pool.kept and len(pool.kept) > self._waiting_up_to(max(pool.kept), pool):
                pool.kept.remove(max(pool.kept))

    def _waiting_up_to(self, rank: int, pool: Pool) -> int:
        model = pool.spec.model
        return sum(
            queue.waiting_for(model)
            for queue in self.queues.values()
            if queue.spec.rank <= rank and queue.spec.name not in self.closed
        )

    def _nothing_starts(self, model: str, pool: Pool) -> Binding | None:
        if self.switching_to is not None and self.switching_to != model:
            return Binding.LOADING
        return nothing_starts(pool, self.in_flight, self.limits)

    def in_the_way(
        self, class_: str, model: str, prompt_tok: int, output_tok: int
    ) -> Binding | None:
        """What keeps such a request from starting, were it next."""
        pool, rank = self.pools[model], self.queues[class_].spec.rank
        kv_tok = kv_cost(pool.capacity, prompt_tok, output_tok)
        nothing = self._nothing_starts(model, pool)
        return nothing or self._keeps_out(pool, rank, prompt_tok, kv_tok)

    def in_the_way_of(self, chosen: Next) -> Binding | None:
        """What keeps the one that is next from starting."""
        pool = self.pools[chosen.record.spec.pool]
        return self._nothing_starts(pool.spec.model, pool) or self._does_not_fit(pool, chosen)

    def limited_by(self, pool: Pool) -> Binding | None:
        """What keeps the best waiting request of a pool from starting; None when none waits.

        It is the floor when the best could start and a lower class holds the place by its floor.
        """
        chosen = self.next_for(pool)
        if chosen is None:
            model = pool.spec.model
            waits = any(queue.waiting_for(model) for queue in self.queues.values())
            return Binding.CLOSED if waits else None
        if chosen.by_floor:
            best = self.best_for(pool)
            assert best is not None
            if self.in_the_way_of(best) is None:
                return Binding.FLOOR
        return self.in_the_way_of(chosen)

    def can_go_on(self, record: Record) -> bool:
        """Of one that waits in a shutdown: was it in the engine before, and can it be again as soon
        as there is a seat?"""
        spec = record.spec
        return record.exempt and spec.class_ not in self.closed and self.pools[spec.pool].ready

    # --- newcomers ------------------------------------------------------------------------------

    def door(self, class_: str, model: str, prompt_tok: int, max_tok: int) -> Refusal | None:
        """What refuses a newcomer whatever waits: the daemon, the class, the pool, its size."""
        queue, pool = self.queues[class_], self.pools[model]
        if self.draining:
            return Refusal(Refused.SHUTTING_DOWN, "the daemon is shutting down")
        if class_ in self.closed and not queue.spec.waits_when_closed:
            return Refusal(Refused.PAUSED, f"class {class_} is paused", limited_by=Binding.CLOSED)
        if pool.spec.state is PoolState.RELEASED and not queue.spec.waits_when_closed:
            text = f"the device is lent to something else, and model {model} is not loaded"
            return Refusal(Refused.RELEASED, text, limited_by=Binding.CLOSED)
        if pool.spec.state is PoolState.FAILED:
            return Refusal(Refused.ENGINE_UNAVAILABLE, f"the engine cannot serve model {model} now")
        capacity = pool.capacity
        need_tok, limit_tok = prompt_tok + max_tok, capacity.max_context_tok
        what = "the model's context holds"
        if need_tok <= limit_tok and capacity.kv_tok is not None:
            need_tok, limit_tok = kv_cost(capacity, prompt_tok, max_tok), capacity.kv_tok
            what = "the engine's cache holds"
        if need_tok <= limit_tok:
            return None
        return Refusal(
            Refused.TOO_LARGE,
            f"prompt and answer need {need_tok} tokens, {what} {limit_tok}: "
            "shorten the prompt or lower max_tokens",
            limit=limit_tok,
            used=need_tok,
        )

    def room(
        self, class_: str, principal: str, tok: int, more: float = 0.0
    ) -> Backpressure | tuple[int, ...]:
        """Whether a newcomer of `tok` tokens may wait; its own size counts, bounds may be `more`
        wider. The answer names those who have to leave for it: of the bounds over all classes
        lower ones may be put out, so that no flood of batch work keeps a person out.
        """
        queue, limits = self.queues[class_], self.limits
        if tok > limits.max_queued_tok:
            return Backpressure(Refused.TOO_LARGE, "tokens", limits.max_queued_tok, tok, 0.0)
        full = queue.room(principal, tok, limits, more)
        if full is not None:
            return full
        queued_tok = self.queued_tok
        excess_tok = queued_tok + tok - limits.max_queued_tok * (1 + more)
        excess = self.queued + 1 - limits.max_queued_requests
        if excess_tok <= 0 and excess <= 0:
            return ()
        displaced = self._displaced(queue.spec.rank, excess_tok, excess)
        if displaced:
            return displaced
        if excess_tok > 0:
            return Backpressure(
                Refused.TOKENS_FULL, "tokens", limits.max_queued_tok, queued_tok, excess_tok
            )
        return Backpressure(
            Refused.CLASS_FULL, "requests", limits.max_queued_requests, self.queued, queue.mean_tok
        )

    def overfull(self, more: float) -> bool:
        """Does more wait than the bounds over all classes, `more` wider, let?"""
        limits = self.limits
        too_many = self.queued > limits.max_queued_requests
        return too_many or self.queued_tok > limits.max_queued_tok * (1 + more)

    def _displaced(self, rank: int, excess_tok: float, excess: int) -> tuple[int, ...]:
        """Who leaves so that so much is free: of the lowest class first, of whoever was served
        most, the newest. Nobody, if all of the lower classes would not be enough."""
        if not self.limits.displaces:
            return ()
        lower = [queue for queue in self.queues.values() if queue.spec.rank > rank]
        if sum(queue.queued_tok for queue in lower) < excess_tok:
            return ()
        leave: list[int] = []
        for queue, rid in self._by_displacement(lower):
            leave.append(rid)
            excess_tok -= queue.tok_of(rid)
            if excess_tok <= 0 and len(leave) >= excess:
                return tuple(leave)
        return ()

    def _by_displacement(self, lower: list[ClassQueue]) -> Iterator[tuple[ClassQueue, int]]:
        for queue in reversed(lower):
            for rid in queue.by_displacement():
                yield queue, rid

    def expected_wait_ns(self, class_: str, pool: str, place: int, now_ns: int) -> int | None:
        """How long the request at `place` (0 is the head) of a class's queue for a pool may wait.

        What waits up to it, better ranks included, over what these classes are given now. None
        while the class is closed or its rate is not known.
        """
        own_rate = self.queues[class_].tok_per_ns(now_ns)
        if own_rate is None or class_ in self.closed:
            return None
        *better, own = self.up_to(class_)
        ahead_tok = own.mean_tok * (place + 1)
        rate = own_rate
        for queue in better:
            rate += queue.tok_per_ns(now_ns) or 0.0
            if queue.spec.name not in self.closed:
                ahead_tok += queue.mean_tok * queue.waiting_for(pool)
        return round(ahead_tok / rate)

    # --- invariants -----------------------------------------------------------------------------

    def check(self) -> None:
        """Every invariant; raises AssertionError with what is wrong."""
        waiting: dict[int, str] = {}
        for name, queue in self.queues.items():
            queue.check()
            for rid in queue:
                assert rid not in waiting, f"{rid} waits in {name} and in {waiting[rid]}"
                waiting[rid] = name
            of_class = [r for r in self.records.values() if r.spec.class_ == name]
            held = [r for r in of_class if r.held]
            assert queue.running == len(held), (name, queue.running, len(held))
            live = sum(r.state is not State.SETTLED for r in of_class)
            assert live == queue.accounts.live, (name, live, queue.accounts.live)
        assert waiting.keys() <= self.records.keys()
        assert self.queued == len(waiting)
        assert self.in_flight == sum(record.held for record in self.records.values())
        for rid, record in self.records.items():
            assert rid == record.rid
            ledger = self.pools[record.spec.pool].ledger
            assert not record.pledged_tok or record.state is State.PREEMPTING, record
            if record.state is State.QUEUED:
                assert waiting.get(rid) == record.spec.class_, record
                assert rid not in ledger, f"{rid} waits and has a seat"
                assert not record.prepaid_tok
            else:
                assert rid not in waiting, record
            if record.state is State.SETTLED:
                assert rid in ledger, f"{rid} is over and still remembered"
                assert not record.prepaid_tok
        for pool in self.pools.values():
            quarantined = {
                rid
                for rid, record in self.records.items()
                if record.spec.pool == pool.spec.model and record.state is State.SETTLED
            }
            pool.ledger.check(quarantined)
            of_pool = [r for r in self.records.values() if r.spec.pool == pool.spec.model]
            assert pool.stopping == sum(r.state is State.PREEMPTING for r in of_pool)
            assert not pool.kept or len(pool.kept) <= self._waiting_up_to(max(pool.kept), pool)
            for rid in pool.ledger:
                assert self.records[rid].spec.pool == pool.spec.model
        assert self.closed.keys() <= self.queues.keys()
        assert self.floors.keys() <= self.queues.keys()
        for class_, floor in self.floors.items():
            waits = class_ not in self.closed and len(self.queues[class_]) > 0
            assert waits or floor.credit_tok <= 0, f"{class_} has credit and does not wait"
        self.tickets.check()
        starts = self.next_to_start()
        assert starts is None, f"{starts} could start and does not"
