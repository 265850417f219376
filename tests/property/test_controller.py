"""The admission core under any events in any order, beside a model that knows only the rules.

After each event every effect is judged as it comes: was this grant allowed, was it the best one, is
this refusal true, is this expiry due. Then come the core's own invariants, that whoever could start
has started, and that the next wake is exact. At the end everybody goes home, and nothing may be
remembered.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    Refused,
    RequestSpec,
    Reservation,
)
from onegate.admission.switching import LOAD_ANSWER_NS

S = 10**9
NEVER = 10**30
LIMITS = GateLimits(
    max_in_flight=4,
    max_queued_tok=900,
    max_queued_requests=10,
    look_ahead=0,
    floor_window_ns=30 * S,
    floor_quantum_tok=40,
)
CLASSES = (
    ClassSpec("chat", 0, 400, 0.5, 900 * S),
    ClassSpec("loop", 1, 600, 0.5, 900 * S, 0.2, waits_when_closed=True),
    ClassSpec("batch", 2, 800, 0.9, 1800 * S, 0.1),
)
QUOTAS = {Refused.PEER_QUOTA, Refused.TOKENS_FULL, Refused.CLASS_FULL}

pools_ = st.sampled_from(("a", "a", "a", "b", "b", "c"))
names = st.sampled_from(("chat", "loop", "batch"))
spans = st.sampled_from((1, S // 100, S, S, 11 * S, 40 * S, 400 * S))
states = st.sampled_from((PoolState.READY,) * 5 + (PoolState.COLD,) * 2 + tuple(PoolState))
timeouts = st.sampled_from((None, None, None, 20 * S, 600 * S, S, 1, 0))
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


@dataclass
class Req:
    """What the model knows of a request."""

    spec: RequestSpec
    seq: int
    prompt: int
    unready_before: int
    where: str = "queued"  # queued, held, over (its seat not yet confirmed)
    seat: bool = False
    rank: int = 0
    output: int = 0
    computed: int = 0
    safety: int = NEVER
    exempt: bool = False
    aborted: bool = False
    kv: int = 0
    unprefilled: int = 0
    by_floor: bool = False
    prepaid: float = 0
    tok: int = 0  # charged to the queue


@dataclass
class PoolModel:
    spec: PoolSpec
    unready: int = 0
    since: int | None = None
    asked: int | None = None

    def unready_at(self, now: int) -> int:
        return self.unready + (0 if self.since is None else now - self.since)


@dataclass
class World:
    """The rules, and nothing of how the core keeps them."""

    now: int = 0
    limits: GateLimits = LIMITS
    classes: dict[str, ClassSpec] = field(default_factory=lambda: {c.name: c for c in CLASSES})
    pools: dict[str, PoolModel] = field(default_factory=dict)
    closed: dict[str, int | None] = field(default_factory=dict)
    live: dict[int, Req] = field(default_factory=dict)
    credit: dict[str, float] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    draining: bool = False
    seq: int = 0

    # --- sizes

    def kv_cost(self, pool: str, prompt: int, output: int) -> int:
        cap = self.pools[pool].spec.capacity
        if cap.reservation is Reservation.PER_SLOT:
            return 0
        return (prompt + output + cap.block_tok - 1) // cap.block_tok * cap.block_tok

    def queue_cost(self, pool: str, prompt: int, max_tok: int) -> int:
        per_slot = self.pools[pool].spec.capacity.reservation is Reservation.PER_SLOT
        return max(1, prompt if per_slot else prompt + max_tok)

    # --- who is where

    def ranked(self) -> list[ClassSpec]:
        return sorted(self.classes.values(), key=lambda c: c.rank)

    def waiting(self, class_: str, pool: str | None = None) -> list[Req]:
        found = [
            r
            for r in self.live.values()
            if r.where == "queued" and r.spec.class_ == class_ and pool in (None, r.spec.pool)
        ]
        return sorted(found, key=lambda r: r.seq)

    def seated(self, pool: str) -> list[Req]:
        return [r for r in self.live.values() if r.seat and r.spec.pool == pool]

    def in_flight(self) -> int:
        return sum(r.where == "held" for r in self.live.values())

    def owed(self, class_: str, head: Req) -> bool:
        if not self.classes[class_].floor_share:
            return False
        need = max(1, min(head.prompt + head.spec.max_tok, self.limits.floor_quantum_tok))
        return self.credit.get(class_, 0.0) >= need

    def next_in(self, pool: str) -> tuple[Req, bool] | None:
        """Who must be next in this pool, and whether only by its floor."""
        heads = [
            (c.name, w[0])
            for c in self.ranked()
            if c.name not in self.closed and (w := self.waiting(c.name, pool))
        ]
        for name, head in heads[1:]:
            if self.owed(name, head):
                return head, True
        return (heads[0][1], False) if heads else None

    def blocked(self, r: Req) -> str | None:
        """The limit that forbids this request to start now, whoever is before it."""
        pool = self.pools[r.spec.pool]
        cap, seated = pool.spec.capacity, self.seated(r.spec.pool)
        if pool.spec.state is not PoolState.READY:
            return "not ready"
        if r.spec.class_ in self.closed:
            return "closed"
        if self.in_flight() >= self.limits.max_in_flight:
            return "in_flight"
        if len(seated) >= cap.max_seqs + self.limits.look_ahead:
            return "seats"
        cost = self.kv_cost(r.spec.pool, r.prompt, r.spec.max_tok)
        if cap.kv_tok is not None and seated and sum(s.kv for s in seated) + cost > cap.kv_tok:
            return "kv"
        rank = self.classes[r.spec.class_].rank
        out = sum(s.unprefilled for s in seated if s.rank <= rank)
        if cap.max_step_tok is not None and out and out + r.prompt > cap.max_step_tok:
            return "step"
        return None

    def switching(self) -> bool:
        """Might the core be holding pools back to load another?"""
        cold = any(
            p.spec.state is PoolState.COLD and self.next_in(name) for name, p in self.pools.items()
        )
        return cold or any(p.asked is not None for p in self.pools.values())

    # --- time

    def dues(self, r: Req) -> dict[Refused, int]:
        spec = r.spec
        if r.where == "over" or r.aborted:
            return {}
        due = {}
        if spec.deadline_ns is not None:
            due[Refused.DEADLINE_EXCEEDED] = spec.deadline_ns
        if r.where == "held":
            due[Refused.ENGINE_TIMEOUT] = r.safety
        pool = self.pools[spec.pool]
        if spec.ttft_deadline_ns is None or r.exempt:
            return due
        if spec.ttft_is_own:
            shown = r.output > 0 or (spec.lease and r.where == "held")
            if not shown:
                due[Refused.TTFT_DEADLINE_EXCEEDED] = spec.ttft_deadline_ns
        elif r.where == "queued" and pool.since is None:
            stood_still = pool.unready - r.unready_before
            due[Refused.TTFT_DEADLINE_EXCEEDED] = spec.ttft_deadline_ns + stood_still
        return due

    # --- moves

    def left_queue(self, r: Req) -> None:
        if not self.waiting(r.spec.class_):
            self.no_credit(r.spec.class_)

    def no_credit(self, class_: str) -> None:
        self.credit[class_] = min(0.0, self.credit.get(class_, 0.0))

    def end(self, r: Req) -> None:
        assert r.spec.rid not in self.ended, "ended twice"
        self.ended.add(r.spec.rid)

    def grant(self, r: Req, by_floor: bool) -> None:
        name = r.spec.class_
        if by_floor:
            r.by_floor = True
            head = r.prompt + r.spec.max_tok
            r.prepaid = min(head, self.limits.floor_quantum_tok)
            self.credit[name] -= r.prepaid
        r.where, r.seat = "held", True
        self.left_queue(r)
        r.rank = self.classes[name].rank
        r.kv = self.kv_cost(r.spec.pool, r.prompt, max(r.spec.max_tok, r.output))
        r.unprefilled = 0 if r.spec.lease else r.prompt
        r.safety = self.now + self.classes[name].safety_timeout_ns

    def compute(self, r: Req, prompt: int, output: int) -> None:
        pool, name = r.spec.pool, r.spec.class_
        grown = max(0, prompt - r.computed) + output - r.output
        r.computed, r.output = max(r.computed, prompt), output
        if r.seat:
            r.unprefilled = min(r.unprefilled, max(0, r.prompt - r.computed))
        for c in self.classes.values():
            if c.floor_share and c.name not in self.closed and self.waiting(c.name, pool):
                self.credit[c.name] = self.credit.get(c.name, 0.0) + c.floor_share * grown
        if not self.classes[name].floor_share:
            return
        rank = self.classes[name].rank
        better = any(
            c.rank < rank and c.name not in self.closed and self.waiting(c.name, pool)
            for c in self.classes.values()
        )
        have = self.credit.get(name, 0.0)
        if r.by_floor and better:
            used = min(r.prepaid, grown)
            r.prepaid -= used
            self.credit[name] = have - (grown - used)
        else:
            self.credit[name] = max(min(have, 0.0), have - grown)

    def give_back(self, r: Req) -> None:
        name = r.spec.class_
        if r.by_floor and self.classes[name].floor_share:
            self.credit[name] = self.credit.get(name, 0.0) + r.prepaid
            if not self.waiting(name) or name in self.closed:
                self.no_credit(name)
        r.by_floor, r.prepaid = False, 0


class CoreMachine(RuleBasedStateMachine):
    """Random shells, engines and administrators around one core."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.next_rid = 0

    @initialize(
        caps=st.tuples(capacities, capacities, capacities),
        states=st.tuples(
            st.sampled_from((PoolState.READY, PoolState.LOADING)),
            st.sampled_from((PoolState.READY, PoolState.COLD)),
            st.sampled_from((PoolState.COLD, PoolState.FAILED)),
        ),
        cost=st.sampled_from((None, 0, 5 * S)),
        look_ahead=st.sampled_from((0, 0, 1)),
    )
    def begin(self, caps: Any, states: Any, cost: int | None, look_ahead: int) -> None:
        world = self.world
        world.limits = replace(LIMITS, look_ahead=look_ahead)
        specs = tuple(PoolSpec(n, s, c, cost) for n, s, c in zip("abc", states, caps, strict=True))
        self.core = Controller(world.limits, CLASSES, specs)
        for spec in specs:
            since = None if spec.state is PoolState.READY else 0
            world.pools[spec.model] = PoolModel(spec, since=since)

    # --- one event -------------------------------------------------------------------------------

    def tell(self, event: ev.Event, arriving: Req | None = None) -> None:
        world = self.world
        answers = 0
        for effect in self.core.handle(event, world.now):
            # What opens now is open for whatever comes after it.
            self.open_due()
            match effect:
                case fx.Grant(rid):
                    self.judge_grant(world.live[rid])
                    answers += arriving is not None and rid == arriving.spec.rid
                case fx.Queue(rid):
                    assert arriving is not None
                    assert arriving.spec.rid == rid
                    answers += 1
                    self.judge_queue(arriving)
                case fx.Refuse(rid, refusal, queued):
                    if arriving is not None and rid == arriving.spec.rid:
                        assert not queued
                        answers += 1
                        self.judge_refusal(arriving, refusal.reason)
                        del world.live[rid]
                        world.end(arriving)
                        world.left_queue(arriving)
                    else:
                        assert queued
                        self.judge_end(world.live[rid], refusal.reason)
                case fx.Abort(rid, refusal):
                    req = world.live[rid]
                    assert req.where == "held"
                    assert world.dues(req)[refusal.reason] <= world.now
                    req.aborted = True
                case fx.LoadPool(model):
                    self.judge_load(model)
        self.open_due()
        if arriving is not None:
            assert answers == 1
        self.judge_rest()

    def open_due(self) -> None:
        for name, until in list(self.world.closed.items()):
            if until is not None and until <= self.world.now:
                del self.world.closed[name]

    def judge_grant(self, req: Req) -> None:
        world = self.world
        assert req.where == "queued"
        assert world.blocked(req) is None
        assert all(due > world.now for due in world.dues(req).values()), "started when expired"
        must, by_floor = world.next_in(req.spec.pool)  # type: ignore[misc]
        assert must is req, "not the next of its pool"
        if not by_floor:
            for name in world.pools:
                if (other := world.next_in(name)) is None or world.switching():
                    continue
                better = other[1] or (
                    world.classes[other[0].spec.class_].rank < world.classes[req.spec.class_].rank
                )
                assert not better or world.blocked(other[0]), "a better one could have started"
        world.grant(req, by_floor)

    def judge_queue(self, req: Req) -> None:
        world, spec = self.world, req.spec
        class_ = world.classes[spec.class_]
        mine = [r for r in world.waiting(spec.class_) if r.spec.principal == spec.principal]
        assert sum(r.tok for r in world.waiting(spec.class_)) <= class_.max_queued_tok
        assert sum(r.tok for r in mine) <= int(class_.max_queued_tok * class_.per_principal_share)
        own_or_better = [
            r for c in world.ranked() if c.rank <= class_.rank for r in world.waiting(c.name)
        ]
        assert sum(r.tok for r in own_or_better) <= world.limits.max_queued_tok
        assert len(own_or_better) <= world.limits.max_queued_requests
        assert not world.draining
        assert class_.name not in world.closed or class_.waits_when_closed

    def judge_refusal(self, req: Req, reason: Refused) -> None:
        world, spec = self.world, req.spec
        class_, pool = world.classes[spec.class_], world.pools[spec.pool].spec
        late = {
            Refused.DEADLINE_EXCEEDED: spec.deadline_ns,
            Refused.TTFT_DEADLINE_EXCEEDED: spec.ttft_deadline_ns,
        }
        if reason in late:
            assert late[reason] is not None
            assert late[reason] <= world.now
            return
        assert all(due is None or due > world.now for due in late.values())
        if reason is Refused.SHUTTING_DOWN:
            assert world.draining
        elif reason is Refused.PAUSED:
            assert class_.name in world.closed
            assert not class_.waits_when_closed
        elif reason is Refused.RELEASED:
            assert pool.state is PoolState.RELEASED
            assert not class_.waits_when_closed
        elif reason is Refused.ENGINE_UNAVAILABLE:
            assert pool.state is PoolState.FAILED
        elif not self.fits_pool(spec):
            assert reason is Refused.TOO_LARGE
        else:
            # For want of room, and so only when it could not start at once.
            is_next = world.next_in(spec.pool)
            if is_next is not None and is_next[0] is req and not world.switching():
                assert world.blocked(req) is not None, "could have started at once"
            quota = int(class_.max_queued_tok * class_.per_principal_share)
            alone = req.tok > min(quota, world.limits.max_queued_tok)
            assert (reason is Refused.TOO_LARGE) == alone
            assert alone or reason in QUOTAS
            self.judge_want_of_room(req, reason)

    def judge_want_of_room(self, req: Req, reason: Refused) -> None:
        world, spec = self.world, req.spec
        class_ = world.classes[spec.class_]
        mine = [r for r in world.waiting(spec.class_) if r.spec.principal == spec.principal]
        own_or_better = [
            r for c in world.ranked() if c.rank <= class_.rank for r in world.waiting(c.name)
        ]
        quota = int(class_.max_queued_tok * class_.per_principal_share)
        most = max(1, int(world.limits.max_queued_requests * class_.per_principal_share))
        if reason is Refused.PEER_QUOTA:
            assert sum(r.tok for r in mine) > quota or len(mine) > most
        elif reason is Refused.TOKENS_FULL:
            in_class = sum(r.tok for r in world.waiting(spec.class_))
            in_all = sum(r.tok for r in own_or_better)
            assert in_class > class_.max_queued_tok or in_all > world.limits.max_queued_tok
        elif reason is Refused.CLASS_FULL:
            assert len(own_or_better) > world.limits.max_queued_requests

    def fits_pool(self, spec: RequestSpec) -> bool:
        cap = self.world.pools[spec.pool].spec.capacity
        cost = self.world.kv_cost(spec.pool, spec.prompt_tok, spec.max_tok)
        in_context = spec.prompt_tok + spec.max_tok <= cap.max_context_tok
        return in_context and (cap.kv_tok is None or cost <= cap.kv_tok)

    def judge_end(self, req: Req, reason: Refused) -> None:
        world = self.world
        assert req.where == "queued"
        if reason is Refused.SHUTTING_DOWN:
            assert world.draining
        elif not req.aborted:
            assert world.dues(req)[reason] <= world.now
        del world.live[req.spec.rid]
        world.end(req)
        world.left_queue(req)

    def judge_load(self, model: str) -> None:
        world = self.world
        pool = world.pools[model]
        assert pool.spec.state is PoolState.COLD
        assert pool.asked is None or world.now >= pool.asked + LOAD_ANSWER_NS, "asked twice"
        assert not any(r.seat for r in world.live.values()), "work would be lost to the switch"
        assert world.next_in(model) is not None, "nobody wants it"
        assert not any(p.spec.state is PoolState.LOADING for p in world.pools.values())
        pool.asked = world.now

    def judge_rest(self) -> None:
        world, core = self.world, self.core
        for pool in world.pools.values():
            if pool.asked is not None and world.now >= pool.asked + LOAD_ANSWER_NS:
                pool.asked = None
        core.validate()
        # Work conserving: whoever is next and fits has started.
        if not world.switching():
            for name in world.pools:
                chosen = world.next_in(name)
                assert chosen is None or world.blocked(chosen[0]), "a seat idles"
        # Deadlines: nothing is overdue, and the next wake is the first that will be.
        dues = [due for req in world.live.values() for due in world.dues(req).values()]
        dues += [until for until in world.closed.values() if until is not None]
        assert all(due > world.now for due in dues)
        first, wake = min(dues, default=None), core.next_wake_ns()
        assert first is None or (wake is not None and world.now < wake <= first)
        if not world.switching():
            assert wake == first
        self.judge_view()

    def judge_view(self) -> None:
        world, view = self.world, self.core.view(self.world.now)
        assert view.in_flight == world.in_flight()
        assert view.queued == sum(r.where == "queued" for r in world.live.values())
        assert view.draining == world.draining
        for class_ in view.classes:
            waiting = world.waiting(class_.name)
            assert (class_.queued, class_.queued_tok) == (len(waiting), sum(r.tok for r in waiting))
            assert class_.closed == (class_.name in world.closed)
        for shown in view.pools:
            seated = world.seated(shown.model)
            assert shown.seats_used == len(seated)
            assert shown.seats_quarantined == sum(r.where == "over" for r in seated)
            assert shown.kv_tok_used == sum(r.kv for r in seated)
            assert shown.unprefilled_tok == sum(r.unprefilled for r in seated)

    def pick(self, pick: int, *where: str) -> Req | None:
        found = [r for r in self.world.live.values() if r.where in where]
        return found[pick % len(found)] if found else None

    # --- shells and clients ----------------------------------------------------------------------

    @rule(
        count=st.sampled_from((1, 1, 2, 4)),
        class_=names,
        pool=pools_,
        principal=st.sampled_from("xyz"),
        prompt=st.sampled_from((0, 1, 10, 50, 120)),
        max_tok=st.sampled_from((1, 10, 60, 300)),
        ttft=timeouts,
        own=st.booleans(),
        timeout=timeouts,
        lease=st.booleans(),
        age=st.sampled_from((0, 0, S)),
    )
    def arrive(
        self,
        count: int,
        class_: str,
        pool: str,
        principal: str,
        prompt: int,
        max_tok: int,
        ttft: int | None,
        own: bool,
        timeout: int | None,
        lease: bool,
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
                    principal,
                    prompt,
                    max_tok,
                    arrived,
                    ttft_deadline_ns=None if ttft is None else arrived + ttft,
                    ttft_is_own=own,
                    deadline_ns=None if timeout is None else arrived + timeout,
                    lease=lease,
                )
            )

    def arrive_plainly(self, class_: str, pool: str, prompt: int, max_tok: int) -> None:
        self.next_rid += 1
        who, now = class_[0], self.world.now
        self.arrive_one(RequestSpec(self.next_rid, pool, class_, who, who, prompt, max_tok, now))

    @rule(pool=pools_, rounds=st.integers(2, 8), low=st.sampled_from(("loop", "batch")))
    def rush(self, pool: str, rounds: int, low: str) -> None:
        """Chats keep coming while others wait, which is when floors are earned."""
        for i in range(rounds):
            self.arrive_plainly("chat", pool, 20, 20)
            self.arrive_plainly(low, pool, 10 + i, 30)
            self.finish(i, 100)

    def arrive_one(self, spec: RequestSpec) -> None:
        world = self.world
        before = world.pools[spec.pool].unready_at(world.now)
        world.seq += 1
        tok = world.queue_cost(spec.pool, spec.prompt_tok, spec.max_tok)
        req = Req(spec, world.seq, spec.prompt_tok, before, tok=tok)
        self.ask_first(spec)
        world.live[spec.rid] = req
        self.tell(ev.Arrived(spec), req)

    def ask_first(self, spec: RequestSpec) -> None:
        """What `ask` foretells must be what the arrival then brings; and asking changes nothing."""
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
        if world.switching() or min(spec.deadline_ns or NEVER, spec.ttft_deadline_ns or NEVER) <= (
            world.now
        ):
            return
        trial = self.probe(spec)
        if isinstance(trial, fx.Grant):
            assert (verdict.position, verdict.refusal) == (0, None)
        elif isinstance(trial, fx.Refuse):
            assert verdict.refusal is not None
            assert verdict.refusal.reason == trial.refusal.reason
        else:
            assert verdict.refusal is None
            assert verdict.position > 0

    def probe(self, spec: RequestSpec) -> fx.Effect:
        """The arrival's answer by the rules: a grant iff next and not blocked."""
        world = self.world
        req = Req(spec, world.seq, spec.prompt_tok, 0)
        req.tok = world.queue_cost(spec.pool, spec.prompt_tok, spec.max_tok)
        world.live[spec.rid] = req
        try:
            return self._probe(req)
        finally:
            del world.live[spec.rid]

    def _probe(self, req: Req) -> fx.Effect:
        world, spec = self.world, req.spec
        class_, pool = world.classes[spec.class_], world.pools[spec.pool].spec

        def no(reason: Refused) -> fx.Effect:
            from onegate.admission.model import Refusal

            return fx.Refuse(spec.rid, Refusal(reason, ""), queued=False)

        if world.draining:
            return no(Refused.SHUTTING_DOWN)
        if class_.name in world.closed and not class_.waits_when_closed:
            return no(Refused.PAUSED)
        if pool.state is PoolState.RELEASED and not class_.waits_when_closed:
            return no(Refused.RELEASED)
        if pool.state is PoolState.FAILED:
            return no(Refused.ENGINE_UNAVAILABLE)
        if not self.fits_pool(spec):
            return no(Refused.TOO_LARGE)
        chosen = world.next_in(spec.pool)
        if chosen is not None and chosen[0] is req and world.blocked(req) is None:
            return fx.Grant(spec.rid)
        if req.tok > int(class_.max_queued_tok * class_.per_principal_share):
            return no(Refused.TOO_LARGE)
        if req.tok > world.limits.max_queued_tok:
            return no(Refused.TOO_LARGE)
        for reason in (Refused.PEER_QUOTA, Refused.TOKENS_FULL, Refused.CLASS_FULL):
            try:
                self.judge_want_of_room(req, reason)
            except AssertionError:
                continue
            return no(reason)
        return fx.Queue(spec.rid)

    @rule(pick=picks)
    def withdraw(self, pick: int) -> None:
        req = self.pick(pick, "queued", "held", "over")
        rid = 10**6 if req is None else req.spec.rid
        if req is not None and req.where == "queued":
            del self.world.live[rid]
            self.world.end(req)
            self.world.left_queue(req)
        self.tell(ev.Withdrawn(rid))

    @rule(pick=picks, finished=st.booleans(), more=st.integers(0, 20))
    def settle(self, pick: int, finished: bool, more: int) -> None:
        req = self.pick(pick, "held")
        if req is not None:
            self.settle_one(req, req.output + more, finished)

    def settle_one(self, req: Req, output: int, finished: bool) -> None:
        world = self.world
        if output > req.output:
            world.compute(req, req.prompt, output)
        req.where = "over"
        world.end(req)
        world.give_back(req)
        req.unprefilled = 0
        if world.pools[req.spec.pool].spec.capacity.reservation is Reservation.GROW:
            req.kv = world.kv_cost(req.spec.pool, req.prompt, req.output)
        else:
            whole = max(req.spec.max_tok, req.output)
            req.kv = world.kv_cost(req.spec.pool, req.prompt, whole)
        if not req.seat:
            del world.live[req.spec.rid]
        self.tell(ev.Settled(req.spec.rid, output, finished))

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

    def free_one(self, req: Req) -> None:
        req.seat, req.kv, req.unprefilled = False, 0, 0
        if req.where == "over":
            del self.world.live[req.spec.rid]
        self.tell(ev.SeatFreed(req.spec.rid))

    @rule(pick=picks)
    def requeue(self, pick: int) -> None:
        world, req = self.world, self.pick(pick, "held")
        if req is None:
            return
        world.give_back(req)
        req.seat, req.kv, req.unprefilled, req.computed = False, 0, 0, 0
        req.where, req.exempt, req.safety = "queued", True, NEVER
        req.tok = world.queue_cost(req.spec.pool, req.prompt, req.spec.max_tok)
        self.tell(ev.Requeued(req.spec.rid))
        assert not (req.aborted or world.draining) or req.spec.rid in world.ended

    # --- the engine ------------------------------------------------------------------------------

    @rule(pick=picks, prompt=st.sampled_from((0, 1, 30, 200)))
    def counted(self, pick: int, prompt: int) -> None:
        world, req = self.world, self.pick(pick, "queued", "held", "over")
        if req is None:
            return
        pool = req.spec.pool
        req.prompt = prompt
        if req.where == "queued":
            req.tok = world.queue_cost(pool, prompt, req.spec.max_tok)
        elif req.seat:
            grow = world.pools[pool].spec.capacity.reservation is Reservation.GROW
            over = req.where == "over"
            output = req.output if over and grow else max(req.spec.max_tok, req.output)
            req.kv = world.kv_cost(pool, prompt, output)
            if req.unprefilled:
                req.unprefilled = max(0, prompt - req.computed)
        self.tell(ev.Counted(req.spec.rid, prompt))

    @rule(pick=picks, done=st.sampled_from((0, 1, 20, 500)))
    def prefilled(self, pick: int, done: int) -> None:
        req = self.pick(pick, "held")
        if req is not None:
            self.world.compute(req, min(done, req.prompt), req.output)
            self.tell(ev.Prefilled(req.spec.rid, done))

    @rule(pick=picks, more=st.sampled_from((0, 1, 20, 300)), anew=st.booleans())
    def produced(self, pick: int, more: int, anew: bool) -> None:
        req = self.pick(pick, "held")
        if req is None:
            return
        if req.exempt and anew and more < req.output:
            output, req.output = more, 0  # begun from the start after an engine's death
        else:
            output = req.output + more
        self.produce(req, output)

    def produce(self, req: Req, output: int) -> None:
        self.world.compute(req, req.prompt, output)
        self.tell(ev.Produced(req.spec.rid, output))

    @rule(pool=pools_, state=states, cap=st.none() | capacities)
    def pool_changed(self, pool: str, state: PoolState, cap: PoolCapacity | None) -> None:
        self.say(pool, state, cap)

    @rule(took=spans)
    def load_as_asked(self, took: int) -> None:
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

    def say(self, pool: str, state: PoolState, cap: PoolCapacity | None = None) -> None:
        world = self.world
        known = world.pools[pool]
        known.spec = replace(known.spec, state=state, capacity=cap or known.spec.capacity)
        if state is PoolState.READY and known.since is not None:
            known.unready, known.since = known.unready_at(world.now), None
        elif state is not PoolState.READY and known.since is None:
            known.since = world.now
        if state not in (PoolState.COLD, PoolState.LOADING):
            known.asked = None
        self.tell(ev.PoolChanged(known.spec))

    # --- administrators and time -----------------------------------------------------------------

    @rule(class_=names, span=st.none() | spans, opens=st.integers(0, 2))
    def close_or_open(self, class_: str, span: int | None, opens: int) -> None:
        if opens:
            self.open(class_)
            return
        until = None if span is None else self.world.now + span - 1
        self.world.closed[class_] = until
        self.world.no_credit(class_)
        self.open_due()
        self.tell(ev.ClassClosed(class_, until))

    def open(self, class_: str) -> None:
        self.world.closed.pop(class_, None)
        self.tell(ev.ClassOpened(class_))

    @rule(
        in_flight=st.integers(1, 6),
        tok=st.sampled_from((300, 900)),
        requests=st.sampled_from((3, 10)),
        quantum=st.sampled_from((10, 40)),
        floor=st.sampled_from((0.0, 0.1, 0.3)),
        swap=st.booleans(),
    )
    def limits_changed(
        self, in_flight: int, tok: int, requests: int, quantum: int, floor: float, swap: bool
    ) -> None:
        world = self.world
        world.limits = replace(
            world.limits,
            max_in_flight=in_flight,
            max_queued_tok=tok,
            max_queued_requests=requests,
            floor_quantum_tok=quantum,
        )
        loop, batch = world.classes["loop"], world.classes["batch"]
        if swap:
            loop, batch = replace(loop, rank=batch.rank), replace(batch, rank=loop.rank)
        batch = replace(batch, floor_share=floor, safety_timeout_ns=in_flight * 300 * S)
        if not floor:
            world.credit.pop("batch", None)
        world.classes |= {"loop": loop, "batch": batch}
        self.tell(ev.LimitsChanged(world.limits, tuple(world.classes.values())))

    @precondition(lambda self: self.next_rid > 12)
    @rule(sure=st.integers(0, 30))
    def drain(self, sure: int) -> None:
        if sure:
            return
        self.world.draining = True
        self.tell(ev.DrainStarted())
        assert not any(r.where == "queued" for r in self.world.live.values())

    @rule(span=spans)
    def time_passes(self, span: int) -> None:
        """A timer that is late: whatever comes next finds time gone by."""
        self.world.now += span

    @rule()
    def wake(self) -> None:
        wake = self.core.next_wake_ns()
        if wake is not None:
            self.world.now = max(self.world.now, wake)
        self.open_due()
        self.tell(ev.Tick())

    # --- the end ---------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
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
        assert core._book.records == {}
        assert len(core._deadlines) == 0
        for queue in core._book.queues.values():
            assert (queue.queued_tok, queue.running, len(queue)) == (0, 0, 0)
            assert queue._by_principal == {}
        for pool in core._book.pools.values():
            assert (pool.ledger.seats, pool.ledger.kv_tok, pool.ledger.unprefilled_tok) == (0, 0, 0)

    def serve(self) -> None:
        """What runs ends; if nothing does, what was asked for is loaded; if nothing was, time."""
        for req in [r for r in self.world.live.values() if r.where == "held"]:
            self.settle_one(req, req.output, True)
        seated = [r for r in self.world.live.values() if r.seat]
        for req in seated:
            self.free_one(req)
        if not seated:
            if any(pool.asked is not None for pool in self.world.pools.values()):
                self.load_as_asked(S)
            else:
                self.wake()


CoreMachine.TestCase.settings = settings(
    max_examples=250,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCore = CoreMachine.TestCase
