"""The admission core under any events in any order, beside a model that knows only the rules.

After each event every effect is judged as it comes: was this grant allowed, was it the best one, is
this refusal true, is this expiry due, had this one to be stopped. Then come the core's own
invariants, that whoever could start has started, and that the next wake is exact. At the end
everybody goes home, and nothing may be remembered but who was served how much.
"""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.property.controller import moves
from tests.property.controller.shell import Shell
from tests.property.controller.world import (
    CLASSES,
    LIMITS,
    NEVER,
    PoolModel,
    S,
)

from onegate.admission import events as ev
from onegate.admission import fairness
from onegate.admission.controller import Controller
from onegate.admission.model import (
    PoolCapacity,
    PoolSpec,
    PoolState,
    RequestSpec,
    Reservation,
    Resume,
)

MS = 10**6

pools_ = st.sampled_from(("a", "a", "a", "a", "b", "c"))
names = st.sampled_from(("chat", "loop", "batch"))
spans = st.sampled_from((1, S // 100, S, S, 11 * S, 40 * S, 400 * S))
states = st.sampled_from((PoolState.READY,) * 5 + (PoolState.COLD,) * 2 + tuple(PoolState))
timeouts = st.sampled_from((None, None, None, 20 * S, 600 * S, S, 1, 0))
resumes = st.sampled_from((Resume.EXACT, Resume.RESTART, Resume.UNSEEN, Resume.NEVER))
picks = st.integers(0, 1000)
capacities = st.builds(
    PoolCapacity,
    max_seqs=st.integers(1, 3),
    max_context_tok=st.sampled_from((200, 1000)),
    reservation=st.sampled_from(Reservation),
    kv_tok=st.sampled_from((None, 100, 320, 1000)),
    max_step_tok=st.sampled_from((None, 60, 150)),
    block_tok=st.sampled_from((1, 16)),
)


class CoreMachine(Shell):
    """Random shells, engines and administrators around one core."""

    @initialize(
        caps=st.tuples(capacities, capacities, capacities),
        states=st.tuples(
            st.sampled_from((PoolState.READY, PoolState.LOADING)),
            st.sampled_from((PoolState.READY, PoolState.COLD)),
            st.sampled_from((PoolState.COLD, PoolState.FAILED)),
        ),
        cost=st.sampled_from((None, 0, 5 * S)),
        look_ahead=st.sampled_from((0, 0, 1)),
        stops=st.sampled_from((True, True, False)),
        keeps_prefix=st.booleans(),
        itl_ms=st.sampled_from((None, None, 5, 50)),
        tolerance=st.sampled_from((0, 0, 60)),
    )
    def begin(
        self,
        caps: Any,
        states: Any,
        cost: int | None,
        look_ahead: int,
        stops: bool,
        keeps_prefix: bool,
        itl_ms: int | None,
        tolerance: int,
    ) -> None:
        fairness.TOLERANCE_TOK = tolerance
        world = self.world
        world.limits = replace(LIMITS, look_ahead=look_ahead)
        for c in CLASSES:
            c = replace(c, preempts=c.preempts and stops)
            if c.name == "chat" and itl_ms is not None:
                c = replace(c, itl_target_ns=itl_ms * MS)
            world.classes[c.name] = c
        specs = tuple(
            PoolSpec(n, s, c, cost, keeps_prefix=keeps_prefix)
            for n, s, c in zip("abc", states, caps, strict=True)
        )
        self.core = world.core = Controller(world.limits, tuple(world.classes.values()), specs)
        for spec in specs:
            since = None if spec.state is PoolState.READY else 0
            world.pools[spec.model] = PoolModel(spec, since=since)
        self.sound = True

    # --- shells and clients ----------------------------------------------------------------------

    @rule(
        count=st.sampled_from((1, 1, 2, 4)),
        class_=names,
        pool=pools_,
        principal=st.sampled_from("xyz"),
        flow=st.sampled_from("ffg"),
        prompt=st.sampled_from((0, 1, 10, 50, 120)),
        max_tok=st.sampled_from((1, 10, 60, 300)),
        likely=st.sampled_from((None, None, 5, 400)),
        ttft=timeouts,
        own=st.booleans(),
        timeout=timeouts,
        lease=st.booleans(),
        resume=resumes,
        age=st.sampled_from((0, 0, S)),
    )
    def arrive(
        self,
        count: int,
        class_: str,
        pool: str,
        principal: str,
        flow: str,
        prompt: int,
        max_tok: int,
        likely: int | None,
        ttft: int | None,
        own: bool,
        timeout: int | None,
        lease: bool,
        resume: Resume,
        age: int,
    ) -> None:
        arrived = max(0, self.world.now - age)
        for _ in range(count):
            self.next_rid += 1
            self.arrive_one(
                RequestSpec(
                    self.next_rid,
                    pool,
                    class_,
                    principal,
                    flow,
                    prompt,
                    max_tok,
                    arrived,
                    ttft_deadline_ns=None if ttft is None else arrived + ttft,
                    ttft_is_own=own,
                    likely_tok=likely,
                    deadline_ns=None if timeout is None else arrived + timeout,
                    lease=lease,
                    resume=Resume.NEVER if lease else resume,
                    prompt_bytes=4 * prompt,
                )
            )

    @rule(pool=pools_, rounds=st.integers(2, 8), low=st.sampled_from(("loop", "batch")))
    def rush(self, pool: str, rounds: int, low: str) -> None:
        """Chats keep coming while others wait, which is when floors are earned."""
        for i in range(rounds):
            self.arrive_plainly("chat", pool, 20, 20)
            self.arrive_plainly(low, pool, 10 + i, 30)
            self.finish(i, 100)

    @rule(class_=names, pool=pools_, rounds=st.integers(2, 8), ttft=timeouts, own=st.booleans())
    def crowd(self, class_: str, pool: str, rounds: int, ttft: int | None, own: bool) -> None:
        """More come than can be served, for so long that a rate is known."""
        for i in range(rounds):
            for who in "xyx":
                now = self.world.now
                due = None if ttft is None else now + ttft
                more = {"ttft_deadline_ns": due, "ttft_is_own": own}
                self.arrive_plainly(class_, pool, 50, 30, who, **more)
            self.world.now += S // 3
            self.finish(i, 20)

    @rule(
        class_=names, pool=pools_, output=st.sampled_from((2, 15)), count=st.sampled_from((3, 10))
    )
    def learn(self, class_: str, pool: str, output: int, count: int) -> None:
        """Answers of one length, which are then expected."""
        for i in range(count):
            self.arrive_plainly(class_, pool, 10, 60, "xyz"[i % 3])
            req = self.world.live.get(self.next_rid)
            if req is None or not req.seat:
                return
            for tok in (1, 2, 3, output):
                self.world.now += 10 * MS
                if req.where == "held":
                    self.produce(req, max(tok, req.output))
            if req.where == "held":
                self.settle_one(req, req.output, True)
            if req.seat:
                self.free_one(req)
        # What is known now is used: somebody reads along, and there is work beside it.
        self.arrive_plainly("chat", pool, 10, 60)
        self.arrive_plainly("batch", pool, 10, 60)

    @rule(
        pool=st.sampled_from(("a", "a", "b")),
        low=st.sampled_from(("loop", "batch", "batch")),
        resume=resumes,
        made=st.sampled_from((0, 1, 25)),
        better=st.sampled_from((("chat",), ("chat", "chat"), ("loop",), ("loop", "chat"))),
        patience=st.sampled_from((0, 0, S, 3 * S)),
        ends=st.sampled_from((None, 0, 0, 0, 1, 2)),
    )
    def person_comes(
        self,
        pool: str,
        low: str,
        resume: Resume,
        made: int,
        better: tuple[str, ...],
        patience: int,
        ends: int | None,
    ) -> None:
        """Somebody finds a pool full of work that is not urgent."""
        for i in range(3):
            self.arrive_plainly(low, pool, 20, 60, "xyz"[i], resume=resume)
            req = self.world.live.get(self.next_rid)
            if req is not None and req.where == "held" and made:
                self.produce(req, made)
        for class_ in better:
            self.arrive_plainly(class_, pool, 10, 20)
        if patience:
            self.world.now += patience
            self.tick()
        if ends is not None:
            self.stop(0, 0, ends)

    @rule(
        pick=st.sampled_from((-1, -1, -2, 0, 1)),
        wait=st.sampled_from((0, 0, 0, -S // 2, 2 * S, -NEVER, -NEVER)),
        more_tok=st.sampled_from((0, 0, 0, -1, 1)),
        other=st.sampled_from((None, None, None, "z")),
    )
    def come_again(self, pick: int, wait: int, more_tok: int, other: str | None) -> None:
        """With a ticket: at its hint, too early, too late; larger, or another's."""
        promises = list(self.world.promises.items())
        if not promises:
            return
        name, promise = promises[pick % len(promises)]
        if promise.spec.class_ in self.world.closed:
            self.open(promise.spec.class_)
        self.world.now = max(self.world.now, promise.due + wait)
        self.next_rid += 1
        self.arrive_one(
            replace(
                promise.spec,
                rid=self.next_rid,
                principal=other or promise.spec.principal,
                arrived_ns=self.world.now,
                max_tok=max(1, promise.spec.max_tok + more_tok),
                ttft_deadline_ns=None,
                deadline_ns=None,
                ticket=name,
            )
        )

    @rule(pick=picks)
    def withdraw(self, pick: int) -> None:
        req = self.pick(pick, "queued", "held", "over")
        rid = 10**6 if req is None else req.spec.rid
        if req is not None and req.where == "queued":
            moves.forget_queued(self.world, req)
        self.tell(ev.Withdrawn(rid))

    @rule(pick=picks, finished=st.booleans(), more=st.integers(0, 20))
    def settle(self, pick: int, finished: bool, more: int) -> None:
        req = self.pick(pick, "held")
        if req is not None:
            self.settle_one(req, req.output + more, finished)

    @rule(pick=picks, more=st.sampled_from((1, 30, 300)))
    def finish(self, pick: int, more: int) -> None:
        """What most requests do."""
        req = self.pick(pick, "held")
        if req is not None and req.seat:
            self.produce(req, req.output + more)
            self.settle_one(req, req.output, True)
            self.free_one(req)

    @rule(pick=picks)
    def free_seat(self, pick: int) -> None:
        found = [r for r in self.world.live.values() if r.seat]
        if found:
            self.free_one(found[pick % len(found)])

    @rule(pick=picks)
    def lose(self, pick: int) -> None:
        """The engine dies with a request of which nobody has seen anything."""
        if (req := self.pick(pick, "held")) is not None:
            self.requeue(req, 0)

    @rule(pick=picks, more=st.sampled_from((0, 0, 5)), ends=st.sampled_from((0, 0, 0, 1, 2)))
    def stop(self, pick: int, more: int, ends: int) -> None:
        """The engine does as it was told, unless the request is over first or its client gone."""
        stopping = [r for r in self.world.live.values() if r.stopping]
        if not stopping:
            return
        req = stopping[pick % len(stopping)]
        if more:
            self.produce(req, req.output + more)
        if ends:
            self.settle_one(req, req.output, finished=ends == 1)
            assert req.spec.rid in self.world.ended, "who finishes first has finished"
        else:
            self.requeue(req, req.output if req.spec.resume is Resume.EXACT else 0)

    # --- the engine ------------------------------------------------------------------------------

    @rule(
        pick=picks, prompt=st.sampled_from((0, 1, 30, 200)), cached=st.sampled_from((0, 0, 25, 500))
    )
    def counted(self, pick: int, prompt: int, cached: int) -> None:
        req = self.pick(pick, "queued", "held", "over")
        if req is not None:
            moves.count(self.world, req, prompt, cached)
            self.tell(ev.Counted(req.spec.rid, prompt, cached))

    @rule(pick=picks, done=st.sampled_from((0, 1, 20, 500)))
    def prefilled(self, pick: int, done: int) -> None:
        req = self.pick(pick, "held")
        if req is not None:
            moves.compute(self.world, req, min(done, req.prefill), req.output)
            self.tell(ev.Prefilled(req.spec.rid, done))

    @rule(pick=picks, more=st.sampled_from((0, 1, 20, 300)), anew=st.booleans())
    def produced(self, pick: int, more: int, anew: bool) -> None:
        req = self.pick(pick, "held")
        if req is None:
            return
        if req.exempt and anew and more < req.output:
            output, req.output = more, 0  # begun from the start, and nobody has said so
        else:
            output = req.output + more
        self.produce(req, output)

    @rule(pool=pools_, state=states, cap=st.none() | capacities, identity=st.sampled_from("mmmn"))
    def pool_changed(
        self, pool: str, state: PoolState, cap: PoolCapacity | None, identity: str
    ) -> None:
        self.say(pool, state, cap, identity)

    @rule(took=spans)
    def load_as_asked(self, took: int) -> None:
        """An engine that holds one pool at a time does what it was told."""
        self.load(took)

    # --- administrators and time -----------------------------------------------------------------

    @rule(class_=names, span=st.none() | spans, opens=st.integers(0, 2))
    def close_or_open(self, class_: str, span: int | None, opens: int) -> None:
        if opens:
            self.open(class_)
            return
        until = None if span is None else self.world.now + span - 1
        self.world.closed[class_] = until
        moves.no_credit(self.world, class_)
        self.world.open_due()
        self.tell(ev.ClassClosed(class_, until))

    @rule(
        in_flight=st.integers(1, 6),
        tok=st.sampled_from((300, 900)),
        requests=st.sampled_from((3, 10)),
        quantum=st.sampled_from((10, 40)),
        floor=st.sampled_from((0.0, 0.1, 0.3)),
        again=st.sampled_from((0.0, 0.05, 0.5)),
        swap=st.booleans(),
    )
    def limits_changed(
        self,
        in_flight: int,
        tok: int,
        requests: int,
        quantum: int,
        floor: float,
        again: float,
        swap: bool,
    ) -> None:
        world = self.world
        world.limits = replace(
            world.limits,
            max_in_flight=in_flight,
            max_queued_tok=tok,
            max_queued_requests=requests,
            floor_quantum_tok=quantum,
            recompute_share=again,
        )
        loop, batch = world.classes["loop"], world.classes["batch"]
        if swap:
            loop, batch = replace(loop, rank=batch.rank), replace(batch, rank=loop.rank)
        batch = replace(batch, floor_share=floor, safety_timeout_ns=in_flight * 300 * S)
        if not floor:
            world.credit.pop("batch", None)
            world.lead.pop("batch", None)
        world.classes |= {"loop": loop, "batch": batch}
        self.tell(ev.LimitsChanged(world.limits, tuple(world.classes.values())))

    @precondition(lambda self: self.next_rid > 12)
    @rule(sure=st.integers(0, 30))
    def drain(self, sure: int) -> None:
        if sure:
            return
        self.world.draining = True
        self.tell(ev.DrainStarted())
        assert all(map(self.world.can_go_on, self.world.all_waiting()))

    @rule(span=spans)
    def time_passes(self, span: int) -> None:
        """A timer that is late: whatever comes next finds time gone by."""
        self.world.now += span

    @rule()
    def wake(self) -> None:
        self.tick()


CoreMachine.TestCase.settings = settings(
    max_examples=250,
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCore = CoreMachine.TestCase
