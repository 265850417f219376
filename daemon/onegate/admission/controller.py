"""The decision: what may start now, what waits, what is refused.

`Controller.handle` applies one event and returns effects. Nothing here waits, calls back, logs or
reads a clock. DESIGN.md beside this file says why it decides as it does.
"""

from onegate.admission import arrival, meter, preempt, refusals, views
from onegate.admission import events as ev
from onegate.admission.book import Book
from onegate.admission.deadlines import Deadlines, Key, Kind
from onegate.admission.effects import Abort, Effect, Grant, LoadPool, Preempt, Queue, Refuse
from onegate.admission.lifecycle import IllegalMove, Move, State
from onegate.admission.line import NEVER_NS, Member
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolSpec,
    PoolState,
    RequestSpec,
    Standing,
    Verdict,
    View,
)
from onegate.admission.order import Next, first_of
from onegate.admission.predict import predict
from onegate.admission.queue import Backpressure
from onegate.admission.records import Pool, Record, queue_cost, reserved_output
from onegate.admission.switching import NO_CHOICE, Choice, Want, choose
from onegate.admission.timing import due_ns


class Controller:
    """(state, event, now) -> effects."""

    def __init__(
        self, limits: GateLimits, classes: tuple[ClassSpec, ...], pools: tuple[PoolSpec, ...]
    ) -> None:
        self._book = Book(limits, classes, pools)
        self._deadlines = Deadlines(lambda key: due_ns(self._book, key))
        self._seq = 0

    # --- the one way in -------------------------------------------------------------------------

    def handle(self, event: ev.Event, now_ns: int) -> list[Effect]:
        """Apply one event at `now_ns` and return what must be done, in order.

        Raises `IllegalMove` or KeyError for what no shell without a bug can say; nothing has
        changed then.
        """
        book = self._book
        book.now_ns = now_ns
        effects: list[Effect] = []
        # Whom to stop is looked at again when something else happens than a token, or by its time.
        look = True
        match event:
            case ev.Produced(rid, output_tok):
                look = meter.produced(book, book.records[rid], output_tok)
            case ev.Arrived(request):
                return self._arrived(request, now_ns)
            case ev.Withdrawn(rid):
                record = book.records.get(rid)
                if record is not None and record.state is State.QUEUED:
                    self._forget_queued(record, now_ns)
            case ev.Counted(rid, prompt_tok, cached_tok):
                meter.counted(book, book.records[rid], prompt_tok, cached_tok)
            case ev.Prefilled(rid, prefilled_tok):
                look = False
                meter.prefilled(book, book.records[rid], prefilled_tok)
            case ev.Settled(rid, output_tok, finished):
                self._settled(book.records[rid], output_tok, finished, now_ns)
            case ev.SeatFreed(rid):
                self._seat_freed(book.records[rid])
            case ev.Requeued(rid, kept_tok):
                effects += self._requeued(book.records[rid], kept_tok, now_ns)
            case ev.PoolChanged(pool):
                self._pool_changed(pool, now_ns)
            case ev.ClassClosed(class_, until_ns):
                self._close(class_, until_ns)
            case ev.ClassOpened(class_):
                self._book.closed.pop(self._book.queues[class_].spec.name, None)
            case ev.LimitsChanged(limits, classes):
                book.limits = limits
                book.set_classes(classes)
            case ev.DrainStarted():
                effects += self._drain(now_ns)
            case ev.Tick():
                pass
        due = self._deadlines.due_by(now_ns)
        effects += self._expire(now_ns)
        effects += self._start(now_ns)
        if look or due:
            effects += self._preempt(now_ns)
        return effects

    def next_wake_ns(self) -> int | None:
        """When `Tick` is due at the latest; None while nothing is timed."""
        return self._deadlines.next_ns()

    # --- arrival --------------------------------------------------------------------------------

    def _arrived(self, spec: RequestSpec, now_ns: int) -> list[Effect]:
        book = self._book
        queue, pool = book.queues[spec.class_], book.pools[spec.pool]
        if spec.rid in book.records:
            raise IllegalMove(f"request {spec.rid} has arrived before")
        effects: list[Effect] = []
        if self._deadlines.due_by(now_ns):
            effects += self._expire(now_ns)
            effects += self._start(now_ns)
            effects += self._preempt(now_ns)
        refusal = refusals.overdue(spec, now_ns) or refusals.at_door(
            book,
            spec.class_,
            spec.pool,
            spec.prompt_tok,
            spec.max_tok,
            place=spec.rid,
            now_ns=now_ns,
        )
        if refusal is not None:
            return [*effects, Refuse(spec.rid, refusal, queued=False)]
        reserved_tok = reserved_output(pool.capacity, spec, pool.curve(spec))
        tok = queue_cost(pool.capacity, spec.prompt_tok, reserved_tok)
        found = arrival.room(book, spec, tok, now_ns)
        if isinstance(found, Backpressure):
            full: Backpressure | None = found
        else:  # asked before it may have the model loaded
            full = arrival.load_too_late(book, spec, now_ns)
        # What can start at once needs no room in the queue; behind others of its class it cannot.
        if full is None or (pool.ready and not queue.waiting_for(spec.pool)):
            self._seq += 1
            account = queue.accounts.enter(spec.principal, spec.flow)
            excused_ns = pool.excused_ns(now_ns)
            record = Record(spec, self._seq, spec.prompt_tok, excused_ns, account, reserved_tok)
            book.records[spec.rid] = record
            self._join_queue(record, now_ns)
            effects += self._start(now_ns)
            if not record.held and not isinstance(found, Backpressure):
                prediction = predict(book, record, now_ns) if pool.ready else None
                full = arrival.too_late(book, record, prediction, found, now_ns)
                if full is None:
                    wait_ns = None if prediction is None else prediction.first_ns
                    return [*effects, *self._wait(record, found, wait_ns, now_ns)]
            if record.held:
                if (ticket := book.tickets.presented(spec, now_ns)) is not None:
                    book.tickets.use(ticket)
                self._remind((Kind.TTFT, spec.rid))
                self._remind((Kind.WHOLE, spec.rid))
                return effects
            self._forget_queued(record, now_ns)
            effects += self._start(now_ns)
        assert full is not None
        refusal = refusals.for_room(book, spec, full, tok, now_ns)
        return [*effects, Refuse(spec.rid, refusal, queued=False)]

    def _wait(
        self, record: Record, room: arrival.Room, predicted_ns: int | None, now_ns: int
    ) -> list[Effect]:
        """A newcomer waits: others may have to leave for it, or to stop."""
        book = self._book
        if room.ticket is not None:
            book.tickets.use(room.ticket)
        effects: list[Effect] = []
        more = book.limits.ticket_grace if room.promised else 0.0
        for rid in room.displaced:
            if not book.overfull(more):
                break  # its coming has let others start
            if (other := book.records.get(rid)) is not None and other.state is State.QUEUED:
                tok = self._forget_queued(other, now_ns)
                refusal = refusals.displaced(book, other, tok, now_ns)
                effects.append(Refuse(rid, refusal, queued=True))
        self._remind((Kind.TTFT, record.rid))
        self._remind((Kind.WHOLE, record.rid))
        record.predicted_ns = predicted_ns
        effects.append(Queue(record.rid, predicted_ns))
        if room.displaced:
            effects += self._start(now_ns)
        return effects + self._preempt(now_ns)

    def _join_queue(self, record: Record, now_ns: int) -> None:
        spec = record.spec
        queue = self._book.queues[spec.class_]
        tok = queue_cost(
            self._book.pools[spec.pool].capacity, record.prompt_tok, record.reserved_tok
        )
        start_by_ns = min(spec.ttft_deadline_ns or NEVER_NS, spec.deadline_ns or NEVER_NS)
        member = Member(record.rid, record.seq, record.account, tok, start_by_ns, record.exempt)
        queue.add(member, spec.pool)
        queue.rate.backlog(True, now_ns)
        self._book.queued += 1

    def _leave_queue(self, record: Record, now_ns: int) -> int:
        spec = record.spec
        queue = self._book.queues[spec.class_]
        tok = queue.remove(record.rid, spec.pool)
        self._book.queued -= 1
        if not len(queue):
            queue.rate.backlog(False, now_ns)
            if (floor := self._book.floors.get(spec.class_)) is not None:
                floor.idle()
        return tok

    def _forget_queued(self, record: Record, now_ns: int) -> int:
        tok = self._leave_queue(record, now_ns)
        self._forget(record)
        return tok

    def _forget(self, record: Record) -> None:
        """Its permit is gone, or it never had one, and so is its seat."""
        self._book.queues[record.spec.class_].accounts.leave(record.account)
        del self._book.records[record.rid]

    # --- starting -------------------------------------------------------------------------------

    def _start(self, now_ns: int) -> list[Effect]:
        """Grant what may start, best first; then see whether another pool is to be loaded."""
        book = self._book
        book.give_up_kept()
        if not book.queued and book.switching_to is None and book.switch_wake_ns is None:
            return []
        effects: list[Effect] = []
        choice = self._choose_pool(now_ns)
        while (chosen := first_of(heads := book.heads())) is not None:
            self._grant(chosen, now_ns)
            effects.append(Grant(chosen.record.rid))
            # The last who waited for a loaded pool may be gone now.
            choice = self._choose_pool(now_ns)
        book.hold(heads)
        target = choice.target
        if target is None or choice.asked:
            return effects
        if not any(pool.ledger.seats for pool in book.pools.values()):
            target.ask_load(now_ns, in_turn=choice.in_turn)
            self._choose_pool(now_ns)
            effects.append(LoadPool(target.spec.model))
        return effects

    # --- stopping -------------------------------------------------------------------------------

    def _preempt(self, now_ns: int) -> list[Effect]:
        """Stop whom better ones need the room of; then see when to look again."""
        book = self._book
        effects: list[Effect] = []
        wake_ns: int | None = None
        for pool in book.pools.values():
            if pool.spec.state is PoolState.RELEASED:
                effects += self._stop(preempt.for_release(book, pool))
            if (record := preempt.overshooting(book, pool)) is not None:
                effects += self._stop(preempt.Plan((preempt.Stop(record, None),)))
        if book.queued:
            for pool in book.pools.values():
                if pool.ready and book.switching_to in (None, pool.spec.model):
                    plan = preempt.plan(book, pool, now_ns)
                    effects += self._stop(plan)
                    if plan.wake_ns is not None:
                        wake_ns = plan.wake_ns if wake_ns is None else min(wake_ns, plan.wake_ns)
            if book.switching_to is not None:
                effects += self._stop(preempt.for_switch(book, book.switching_to))
        if effects:
            book.give_up_kept()  # a permit that one was stopped for may have gone to another pool
        if wake_ns != book.preempt_wake_ns:
            book.preempt_wake_ns = wake_ns
            self._remind((Kind.PREEMPT, ""))
        return effects

    def _stop(self, plan: preempt.Plan) -> list[Effect]:
        for stop in plan.stops:
            record = stop.record
            pool = self._book.pools[record.spec.pool]
            record.move(Move.PREEMPT)
            meter.pledge(self._book, record)
            pool.stopping += 1
            if stop.for_rank is not None:
                pool.kept.append(stop.for_rank)
        return [Preempt(stop.record.rid) for stop in plan.stops]

    def _grant(self, chosen: Next, now_ns: int) -> None:
        book, record = self._book, chosen.record
        spec, pool = record.spec, book.pools[record.spec.pool]
        queue = book.queues[spec.class_]
        if chosen.by_floor:
            head_tok = record.prompt_tok + record.reserved_tok
            record.by_floor = True
            record.prepaid_tok = min(head_tok, book.limits.floor_quantum_tok)
            book.floors[spec.class_].spend(record.prepaid_tok)
        queue.started(self._leave_queue(record, now_ns), record.prompt_tok, now_ns)
        queue.accounts.chosen(record.account)
        if not record.exempt:  # the prompt is charged once, however often it has to be computed
            queue.accounts.charge(record.account, record.prompt_tok)
        record.move(Move.GRANT)
        record.safety_ns = now_ns + queue.spec.safety_timeout_ns
        book.in_flight += 1
        queue.running += 1
        pool.served = True
        pool.take_kept(chosen.rank)
        # Nobody tells of a lease's prefill, so it would be outstanding until the settle.
        prefill_tok = 0 if spec.lease else record.prefill_tok
        pool.ledger.charge(
            record.rid,
            rank=chosen.rank,
            kv_tok=record.kv_tok(pool.capacity),
            prompt_tok=prefill_tok,
        )
        if not spec.lease:
            pool.pace.granted(record.rid, prefill_tok, now_ns)
        self._remind((Kind.SAFETY, record.rid))

    def _choose_pool(self, now_ns: int) -> Choice:
        book = self._book
        choice = NO_CHOICE
        if not book.all_ready:
            window_ns = book.limits.floor_window_ns
            choice = choose(book.pools.values(), self._want, now_ns=now_ns, window_ns=window_ns)
        book.switching_to = None if choice.target is None else choice.target.spec.model
        if choice.wake_ns != book.switch_wake_ns:
            book.switch_wake_ns = choice.wake_ns
            self._remind((Kind.SWITCH, ""))
        return choice

    def _want(self, pool: Pool) -> Want | None:
        best = self._book.best_for(pool)
        if best is None:
            return None
        share = self._book.queues[best.record.spec.class_].spec.floor_share
        return Want(pool, best.record, best.rank, share)

    # --- giving back ----------------------------------------------------------------------------

    def _settled(self, record: Record, output_tok: int, finished: bool, now_ns: int) -> None:
        pool = self._book.pools[record.spec.pool]
        stopping = record.state is State.PREEMPTING
        record.move(Move.SETTLE)
        pool.stopping -= stopping
        meter.redeem(self._book, record)
        if output_tok > record.output_tok:  # more than was told of as it came
            meter.computed(self._book, record, record.prefill_tok, output_tok)
        if not record.spec.lease:
            meter.learn(pool, record, finished)
            pool.pace.left(record.rid, now_ns)
        self._give_back_permit(record)
        if record.rid not in pool.ledger:
            self._forget(record)
            return
        self._book.queues[record.spec.class_].accounts.leave(record.account)
        record.settled_ns = now_ns
        pool.ledger.quarantine(record.rid)
        pool.ledger.adjust(record.rid, kv_tok=record.kv_tok(pool.capacity))
        pool.ledger.leave_unprefilled(record.rid, 0)

    def _give_back_permit(self, record: Record) -> None:
        book, class_ = self._book, record.spec.class_
        book.in_flight -= 1
        book.queues[class_].running -= 1
        floor = book.floors.get(class_)
        if floor is not None:
            floor.repay(record.prepaid_tok)
            if not len(book.queues[class_]) or class_ in book.closed:
                floor.idle()
        record.by_floor = False
        record.prepaid_tok = 0

    def _seat_freed(self, record: Record) -> None:
        self._book.pools[record.spec.pool].ledger.free(record.rid)
        if record.state is State.SETTLED:
            del self._book.records[record.rid]

    def _requeued(self, record: Record, kept_tok: int, now_ns: int) -> list[Effect]:
        book, pool = self._book, self._book.pools[record.spec.pool]
        stopped = record.state is State.PREEMPTING
        record.move(Move.REQUEUE)
        pool.stopping -= stopped
        if record.rid in pool.ledger:
            pool.ledger.free(record.rid)
        pool.pace.left(record.rid, now_ns)
        self._give_back_permit(record)
        record.lost_tok = 0
        meter.redeem(book, record)
        if stopped and pool.spec.state is not PoolState.RELEASED:
            meter.lost(book, record)
        record.safety_ns = None
        record.computed_tok = 0
        record.kept_tok = record.output_tok = kept_tok
        record.exempt = True
        refusal = record.aborted
        if refusal is None and book.draining and not book.can_go_on(record):
            refusal = refusals.drained(record.seq)
        if refusal is None:
            self._join_queue(record, now_ns)
            return []
        self._forget(record)
        return [Refuse(record.rid, refusal, queued=True)]

    # --- state of the world ---------------------------------------------------------------------

    def _pool_changed(self, spec: PoolSpec, now_ns: int) -> None:
        book = self._book
        pool = book.pools.get(spec.model)
        if pool is None:
            pool = book.pools[spec.model] = Pool(spec)
        pool.become(spec, now_ns)
        book.pools_changed()
        # Default ttft deadlines stood still while it was excused; their times may be known again.
        for queue in book.queues.values():
            for rid in queue:
                if book.records[rid].spec.pool == spec.model:
                    self._remind((Kind.TTFT, rid))

    def _close(self, class_: str, until_ns: int | None) -> None:
        book = self._book
        book.closed[book.queues[class_].spec.name] = until_ns
        if (floor := book.floors.get(class_)) is not None:
            floor.idle()
        self._remind((Kind.OPENING, class_))

    def _drain(self, now_ns: int) -> list[Effect]:
        book = self._book
        book.draining = True
        effects: list[Effect] = []
        waiting = [book.records[rid] for queue in book.queues.values() for rid in queue]
        leaving = [record for record in waiting if not book.can_go_on(record)]
        for place, record in enumerate(sorted(leaving, key=lambda record: record.seq)):
            self._forget_queued(record, now_ns)
            effects.append(Refuse(record.rid, refusals.drained(place), queued=True))
        return effects

    # --- time -----------------------------------------------------------------------------------

    def _remind(self, key: Key) -> None:
        self._deadlines.remind(key, 3 * len(self._book.records) + len(self._book.closed))

    def _expire(self, now_ns: int) -> list[Effect]:
        book = self._book
        effects: list[Effect] = []
        while (key := self._deadlines.pop(now_ns)) is not None:
            kind, name = key
            if isinstance(name, str):
                match kind:
                    case Kind.SWITCH:
                        book.switch_wake_ns = None
                    case Kind.PREEMPT:
                        book.preempt_wake_ns = None
                    case _:
                        del book.closed[name]
                continue
            record = book.records[name]
            refusal = refusals.expiry(kind, record, self._book.pools[record.spec.pool])
            if record.state is State.QUEUED:
                meter.waited(book, record)
                self._forget_queued(record, now_ns)
                effects.append(Refuse(name, refusal, queued=True))
            else:
                record.aborted = refusal
                effects.append(Abort(name, refusal))
        return effects

    # --- questions ------------------------------------------------------------------------------

    def standing(self, rid: int, now_ns: int) -> Standing | None:
        """Where a queued request stands; None once it does not wait any more."""
        return views.standing(self._book, rid, now_ns)

    def ask(
        self, *, pool: str, class_: str, principal: str, prompt_tok: int, max_tok: int, now_ns: int
    ) -> Verdict:
        """What would happen to such a request now; changes nothing."""
        return views.ask(
            self._book,
            pool=pool,
            class_=class_,
            principal=principal,
            prompt_tok=prompt_tok,
            max_tok=max_tok,
            now_ns=now_ns,
        )

    def view(self, now_ns: int) -> View:
        """The whole core for status and metrics."""
        return views.view(self._book, now_ns)

    def validate(self) -> None:
        """Check every invariant; raises AssertionError with what is wrong."""
        self._book.check()
