"""A shell around one core: it tells what happens, has each effect judged, and brings all home."""

from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis.stateful import RuleBasedStateMachine
from tests.property.controller import judge, moves
from tests.property.controller.world import BURST_TOK, NEVER, Req, S, World

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission import fairness, protect
from onegate.admission.controller import Controller
from onegate.admission.fairness import IDLE_KEPT
from onegate.admission.model import PoolCapacity, PoolState, Refused, RequestSpec, Resume
from onegate.admission.switching import LOAD_ANSWER_NS
from onegate.admission.tickets import LOW_WATER, MOST

# Words after which nobody is stopped at once.
TOKENS = (ev.Produced, ev.Prefilled)


class Shell(RuleBasedStateMachine):
    """What all rules have in common: the core, the world beside it, and the words between them."""

    core: Controller

    def __init__(self) -> None:
        super().__init__()
        # Of the size of these requests.
        self.sizes: list[Any] = [
            mock.patch.object(protect, "BURST_TOK", BURST_TOK),
            mock.patch.object(fairness, "TOLERANCE_TOK", 0),
        ]
        for size in self.sizes:
            size.start()
        self.world = World()
        self.next_rid = 0
        self.sound = False  # nothing has been found wrong

    def tell(self, event: ev.Event, arriving: Req | None = None) -> None:
        world, self.sound = self.world, False
        coming = None if arriving is None else judge.Coming(world, arriving)
        # What is due happens, and all that follows from it, before a newcomer is looked at.
        first_due = self.core._deadlines.due_by(world.now)
        answers: list[fx.Effect] = []
        stopped = False
        effects = self.core.handle(event, world.now)
        moves.earn_allowances(world)
        for effect in effects:
            # What opens now is open for whatever comes after it.
            world.open_due()
            if coming and not coming.joined and self.is_about(effect, coming, first_due):
                if first_due:
                    world.give_up_kept()
                coming.join(world)
            if isinstance(effect, fx.Grant | fx.Preempt | fx.LoadPool):
                world.give_up_kept()
            stopped |= isinstance(effect, fx.Preempt)
            self.judge(effect, coming)
            if coming is not None and getattr(effect, "rid", None) == coming.r.spec.rid:
                answers.append(effect)
        world.open_due()
        world.give_up_kept()
        judge.heads_hold(world, sure=not (first_due or stopped))
        self.judge_kept(stopped)
        queued = coming is not None and any(isinstance(answer, fx.Queue) for answer in answers)
        if coming is not None:
            assert [type(answer) for answer in answers] in ([fx.Grant], [fx.Queue], [fx.Refuse])
        judge.rest(world, queued if coming is not None else not isinstance(event, TOKENS))
        self.sound = True

    def is_about(self, effect: fx.Effect, coming: judge.Coming, first_due: bool) -> bool:
        """Does it follow from the newcomer's joining, and not from what was due before?"""
        world = self.world
        if not first_due or getattr(effect, "rid", None) == coming.r.spec.rid:
            return True
        match effect:
            case fx.LoadPool(model):
                return world.next_in(model) is None
            case fx.Grant(rid):
                able = world.may_be_next(world.live[rid].spec.pool)
                return all(r.spec.rid != rid for r, _ in able)
            case fx.Refuse(_, refusal):
                return refusal.reason is Refused.DISPLACED
            case _:
                return False

    def judge(self, effect: fx.Effect, coming: judge.Coming | None) -> None:
        world = self.world
        match effect:
            case fx.Grant(rid):
                judge.grant(world, world.live[rid])
                if coming is not None and coming.r.spec.rid == rid and coming.ticket is not None:
                    world.promises[coming.ticket].used = True
            case fx.Queue(rid, predicted_ns):
                assert coming is not None
                assert coming.r.spec.rid == rid
                judge.queue(world, coming, predicted_ns)
                if coming.ticket is not None:
                    world.promises[coming.ticket].used = True
            case fx.Refuse(rid, refusal, queued):
                req = world.live[rid]
                if coming is not None and req is coming.r:
                    assert not queued
                    judge.refusal(world, coming, refusal)
                    judge.promised(world, req.spec, refusal, coming)
                else:
                    assert queued
                    if refusal.reason is Refused.DISPLACED:
                        judge.displaced(world, coming, req)
                    else:
                        judge.queued_end(world, req, refusal.reason)
                    judge.promised(world, req.spec, refusal, None)
                moves.forget_queued(world, req)
            case fx.Abort():
                judge.abort(world, effect)
            case fx.Preempt(rid):
                judge.preempt(world, world.live[rid])
            case fx.LoadPool(model):
                judge.load(world, model)

    def judge_kept(self, stopped: bool) -> None:
        """A seat for each that somebody was stopped for, and for nobody else."""
        for name, pool in self.world.pools.items():
            kept = sorted(self.core._book.pools[name].kept)
            if not stopped:
                assert kept == sorted(pool.kept)
            for rank in kept[:]:
                if rank in pool.kept:
                    pool.kept.remove(rank)
                else:
                    ranks = {self.world.rank_of(r) for r in self.world.causes(name)}
                    assert rank in ranks, "kept for nobody"
            assert stopped or not pool.kept, "a seat that was made free is not kept"
            pool.kept = kept

    def pick(self, pick: int, *where: str) -> Req | None:
        found = [r for r in self.world.live.values() if r.where in where]
        return found[pick % len(found)] if found else None

    def arrive_plainly(
        self, class_: str, pool: str, prompt: int, max_tok: int, who: str = "", **more: Any
    ) -> None:
        self.next_rid += 1
        who, now = who or class_[0], self.world.now
        fields: dict[str, Any] = {"resume": Resume.RESTART, "prompt_bytes": 4 * prompt} | more
        self.arrive_one(
            RequestSpec(self.next_rid, pool, class_, who, who, prompt, max_tok, now, **fields)
        )

    def arrive_one(self, spec: RequestSpec) -> None:
        world = self.world
        before = world.pools[spec.pool].excused_at(world.now)
        world.seq += 1
        self.ask_first(spec)
        self.tell(ev.Arrived(spec), Req(spec, world.seq, spec.prompt_tok, before, spec.max_tok))

    def ask_first(self, spec: RequestSpec) -> None:
        """What `ask` foretells is what the rules say of it; and asking changes nothing."""
        world = self.world
        wake = self.core.next_wake_ns()
        if wake is not None and wake <= world.now:
            return  # time has passed that the core has not been told of
        before = self.core.view(world.now)
        verdict = self.core.ask(
            pool=spec.pool,
            class_=spec.class_,
            principal=spec.principal,
            prompt_tok=spec.prompt_tok,
            max_tok=spec.max_tok,
            now_ns=world.now,
        )
        assert self.core.view(world.now) == before
        if world.switching():
            return
        # Nobody asks with a flow, a ticket or a deadline.
        plain = RequestSpec(
            0, spec.pool, spec.class_, spec.principal, "", spec.prompt_tok, spec.max_tok, world.now
        )
        refused = judge.door(world, plain)
        if refused is None:
            starts = self.would_start(plain)
            if starts is None:
                return
            if starts:
                assert (verdict.position, verdict.refusal) == (0, None)
                return
            reserved = world.reserve(plain)
            tok = world.queue_cost(spec.pool, spec.prompt_tok, reserved)
            refused = world.room(plain, tok)
            class_ = world.classes[spec.class_]
            in_class = sum(r.tok for r in world.waiting(spec.class_))
            if refused is None and in_class >= LOW_WATER * class_.max_queued_tok:
                refused = Refused.TOKENS_FULL if world.line_is_out(spec.class_) else None
        if refused is None:
            assert verdict.refusal is None
            assert verdict.position > 0
        else:
            assert verdict.refusal is not None
            assert verdict.refusal.reason is refused

    def would_start(self, spec: RequestSpec) -> bool | None:
        """By the rules: iff it would be next, and nothing is in the way. None: may be."""
        world = self.world
        req = Req(spec, world.seq, spec.prompt_tok, 0, world.reserve(spec))
        world.live[spec.rid] = req
        world.served[spec.class_].enter(spec.principal, spec.flow)
        moves.join(world, req)
        try:
            able = world.may_be_next(spec.pool)
            starts = {r is req and world.blocked(r, by_floor) is None for r, by_floor in able}
            return starts.pop() if len(starts) == 1 else None if starts else False
        finally:
            del world.live[spec.rid]
            world.served[spec.class_].leave(spec.principal, spec.flow)

    def settle_one(self, req: Req, output: int, finished: bool) -> None:
        moves.settle(self.world, req, output)
        self.tell(ev.Settled(req.spec.rid, output, finished))

    def free_one(self, req: Req) -> None:
        moves.free(self.world, req)
        self.tell(ev.SeatFreed(req.spec.rid))

    def requeue(self, req: Req, kept: int) -> None:
        moves.requeue(self.world, req, kept)
        self.tell(ev.Requeued(req.spec.rid, kept))
        world = self.world
        leaves = req.aborted or (world.draining and not world.can_go_on(req))
        assert leaves <= (req.spec.rid in world.ended)

    def produce(self, req: Req, output: int) -> None:
        self.world.pools[req.spec.pool].told += 1
        moves.compute(self.world, req, req.prefill, output)
        self.tell(ev.Produced(req.spec.rid, output))

    def say(
        self,
        pool: str,
        state: PoolState,
        cap: PoolCapacity | None = None,
        identity: str | None = None,
    ) -> None:
        known = self.world.pools[pool].spec
        spec = replace(
            known,
            state=state,
            capacity=cap or known.capacity,
            identity=identity or known.identity,
        )
        moves.become(self.world, spec)
        self.tell(ev.PoolChanged(spec))

    def open(self, class_: str) -> None:
        self.world.closed.pop(class_, None)
        self.tell(ev.ClassOpened(class_))

    def teardown(self) -> None:
        try:
            if self.sound:
                self.everybody_goes_home()
        finally:
            for size in self.sizes:
                size.stop()

    def everybody_goes_home(self) -> None:
        world, core = self.world, self.core
        for name in list(world.closed):
            self.open(name)
        for name, pool in world.pools.items():
            if pool.spec.state in (PoolState.FAILED, PoolState.RELEASED, PoolState.LOADING):
                self.say(name, PoolState.COLD)
        # From any state there is a way to the end for everybody, with no more than time and an
        # engine that obeys.
        for _ in range(10 * len(world.live) + 10):
            self.serve()
        assert not world.live, "some wait for ever"
        self.world.now += 2 * LOAD_ANSWER_NS
        self.tell(ev.Tick())
        assert world.ended == set(range(1, self.next_rid + 1)), "everybody ends once"
        assert core.next_wake_ns() is None
        book = core._book
        assert book.records == {}
        assert len(core._deadlines) == 0
        for queue in book.queues.values():
            assert (queue.queued_tok, queue.running, len(queue)) == (0, 0, 0)
            assert queue._by_principal == {}
            assert queue._lines == {}
            assert queue.accounts.live == 0
            assert len(queue.accounts) <= IDLE_KEPT
        for own in book.pools.values():
            assert (own.ledger.seats, own.ledger.kv_tok, own.ledger.unprefilled_tok) == (0, 0, 0)
            assert (own.stopping, own.kept) == (0, [])
            assert (own.pace._filling, own.pace._decoding, own.pace._probe) == ({}, {}, None)
        # Promises run out.
        assert len(book.tickets) <= MOST
        assert not any(book.tickets.are_out(name, NEVER) for name in world.classes)
        assert len(book.tickets) == 0
        book.tickets.check()

    def serve(self) -> None:
        """What runs ends; if nothing does, what was asked for is loaded; if nothing was, time."""
        for req in [r for r in self.world.live.values() if r.where == "held"]:
            self.settle_one(req, req.output, True)
        seated = [r for r in self.world.live.values() if r.seat]
        for req in seated:
            self.free_one(req)
        if not seated:
            if any(pool.asked is not None for pool in self.world.pools.values()):
                self.load(S)
            else:
                self.tick()

    def load(self, took: int) -> None:
        """An engine that holds one pool at a time does what it was told."""
        for name in [name for name, pool in self.world.pools.items() if pool.asked is not None]:
            loaded = [
                other
                for other, pool in self.world.pools.items()
                if pool.spec.state is PoolState.READY
            ]
            words = [(other, PoolState.COLD) for other in loaded] + [(name, PoolState.LOADING)]
            for word in words if took > S else reversed(words):
                self.say(*word)
            self.world.now += took
            self.say(name, PoolState.READY)

    def tick(self) -> None:
        """The timer goes off."""
        wake = self.core.next_wake_ns()
        if wake is not None:
            self.world.now = max(self.world.now, wake)
        self.world.open_due()
        self.tell(ev.Tick())
