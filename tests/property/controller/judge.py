"""Is this effect allowed, was it due, was it the right one: each as it comes."""

from tests.property.controller import moves
from tests.property.controller.world import NEVER, Promise, Req, World

from onegate.admission import effects as fx
from onegate.admission.model import PoolState, Refusal, Refused, RequestSpec
from onegate.admission.switching import LOAD_ANSWER_NS
from onegate.admission.tickets import EARLY_NS, LOW_WATER

MS = 10**6
ROOM = {Refused.PEER_QUOTA, Refused.TOKENS_FULL, Refused.CLASS_FULL}
# Fewer words about output than this say nothing about the pace of a pool.
LEAST_TOLD = 8
# What one that is stopped makes room in.
FREED = ("seats", "in_flight")


class Coming:
    """A newcomer, and what the rules say of it as it is about to wait."""

    def __init__(self, world: World, r: Req) -> None:
        spec = r.spec
        self.r = r
        self.joined = False
        self.displaces = False
        self.ticket = self._ticket(world, spec)
        promise = None if self.ticket is None else world.promises[self.ticket]
        self.early = promise is not None and world.now < promise.due - EARLY_NS
        self.due = promise is not None and not self.early
        self.more = world.limits.ticket_grace if self.due else 0.0
        self.full: Refused | None = None

    @staticmethod
    def _ticket(world: World, spec: RequestSpec) -> str | None:
        """The ticket that it comes with, if it is good: once, for its like, in its time."""
        promise = world.promises.get(spec.ticket or "")
        good = world.core._book.tickets.presented(spec, world.now) is not None
        if promise is None:
            assert not good
            return None
        assert good <= promise.may_be_good(spec, world.now), "good for another, or used before"
        assert good >= promise.must_be_good(spec, world.now), "a promise was forgotten"
        return spec.ticket if good else None

    def join(self, world: World) -> None:
        """Everything that was due has happened; now it waits."""
        self.joined = True
        r = self.r
        r.reserved = world.reserve(r.spec)
        r.tok = world.queue_cost(r.spec.pool, r.prompt, r.reserved)
        self.full = world.room(r.spec, r.tok, self.more)
        world.served[r.spec.class_].enter(r.spec.principal, r.spec.flow)
        world.live[r.spec.rid] = r
        moves.join(world, r)


def grant(world: World, req: Req) -> None:
    assert req.where == "queued"
    able = {by_floor for r, by_floor in world.may_be_next(req.spec.pool) if r is req}
    assert able, "not the next of its pool"
    (by_floor,) = able
    assert world.blocked(req, by_floor) is None
    assert all(due > world.now for due in world.dues(req).values()), "started when expired"
    if not by_floor and not world.switching():
        for name in world.pools:
            others = world.may_be_next(name)
            worse = [
                r
                for r, floor in others
                if (not floor and world.rank_of(r) >= world.rank_of(req)) or world.blocked(r, floor)
            ]
            assert worse or not others, "a better one could have started"
    moves.grant(world, req, by_floor)


# --- newcomers -----------------------------------------------------------------------------------


def queue(world: World, coming: Coming, predicted_ns: int | None) -> None:
    """It may wait: within every bound, those over all classes included, whoever was displaced."""
    spec, more = coming.r.spec, coming.more
    class_ = world.classes[spec.class_]
    assert coming.full is None, coming.full
    mine = [r for r in world.waiting(spec.class_) if r.spec.principal == spec.principal]
    quota = int(class_.max_queued_tok * class_.per_principal_share)
    in_class = sum(r.tok for r in world.waiting(spec.class_))
    assert in_class <= class_.max_queued_tok * (1 + more)
    assert sum(r.tok for r in mine) <= quota * (1 + more)
    everybody = world.all_waiting()
    assert sum(r.tok for r in everybody) <= world.limits.max_queued_tok * (1 + more)
    assert len(everybody) <= world.limits.max_queued_requests
    assert not world.draining
    assert class_.name not in world.closed or class_.waits_when_closed
    assert predicted_ns is None or predicted_ns >= 0
    if world.pools[spec.pool].spec.state is PoolState.READY:
        world.late_in_row[class_.name] = 0
    else:
        assert not load_is_too_late(world, spec), "its time ends before the load can"


def displaced(world: World, coming: Coming | None, victim: Req) -> None:
    """Of the lowest class, of whoever was served most the newest; and only who has to."""
    assert coming is not None
    newcomer = coming.r.spec
    assert victim.where == "queued"
    assert not victim.exempt, "it was in the engine"
    everybody = world.all_waiting()
    over_tok = sum(r.tok for r in everybody) > world.limits.max_queued_tok * (1 + coming.more)
    assert over_tok or len(everybody) > world.limits.max_queued_requests, "nobody had to leave"
    lower = [r for r in everybody if not r.exempt and world.rank_of(r) >= world.rank_of(victim)]
    assert world.rank_of(victim) > world.classes[newcomer.class_].rank
    assert all(r.spec.class_ == victim.spec.class_ for r in lower), "not of the lowest class"
    served, spec = world.served[victim.spec.class_], victim.spec
    line = [r for r in lower if r.spec.pool == spec.pool]
    tok = served.toks(spec.principal, spec.flow)
    for r in line:
        assert served.toks(r.spec.principal, r.spec.flow)[0] <= tok[0], "of a lesser served one"
        if r.spec.principal == spec.principal:
            assert served.toks(r.spec.principal, r.spec.flow)[1] <= tok[1]
            assert r.spec.flow != spec.flow or r.seq <= victim.seq, "not the newest"
    if not coming.displaces:
        longest = max(len(world.waiting(spec.class_, r.spec.pool)) for r in lower)
        assert len(world.waiting(spec.class_, spec.pool)) == longest, "not of the longest line"
    coming.displaces = True


def refusal(world: World, coming: Coming, no: Refusal) -> None:
    req, reason = coming.r, no.reason
    spec = req.spec
    late = {
        Refused.DEADLINE_EXCEEDED: spec.deadline_ns,
        Refused.TTFT_DEADLINE_EXCEEDED: spec.ttft_deadline_ns,
    }
    if reason in late:
        due = late[reason]
        assert due is not None
        assert due <= world.now
        return
    assert all(due is None or due > world.now for due in late.values())
    at_door = door(world, spec)
    if at_door is not None:
        assert reason is at_door
        return
    # For want of room or time, and so only when it could not start at once.
    able = world.may_be_next(spec.pool)
    if all(r is req for r, _ in able) and not world.switching():
        assert all(world.blocked(*each) for each in able), "could have started at once"
    if reason is Refused.WONT_MEET_DEADLINE:
        assert coming.full is None
        wont_meet(world, coming, no)
    elif coming.full is None:
        assert reason is Refused.TOKENS_FULL
        assert not coming.due, "the promise was for it"
        kept_for_it(world, req)
    else:
        assert reason is coming.full
    if reason is Refused.TOO_LARGE:
        assert (no.retry_after_ns, no.ticket) == (None, None), "it never will fit"


def kept_for_it(world: World, req: Req) -> None:
    """There is room, and it is for others: for those with a ticket, or in time."""
    class_ = world.classes[req.spec.class_]
    in_class = sum(r.tok for r in world.waiting(class_.name)) - req.tok
    line = any(promise.spec.class_ == class_.name for promise in world.promises.values())
    crowded = in_class >= LOW_WATER * class_.max_queued_tok or req.start_by < NEVER
    others = [r for r in world.waiting(class_.name, req.spec.pool) if r is not req]
    late = any(req.start_by <= r.start_by < NEVER for r in others)
    assert (line and crowded) or late, "kept for nobody"


def door(world: World, spec: RequestSpec) -> Refused | None:
    """What refuses a newcomer whatever waits."""
    class_, pool = world.classes[spec.class_], world.pools[spec.pool].spec
    if world.draining:
        return Refused.SHUTTING_DOWN
    if class_.name in world.closed and not class_.waits_when_closed:
        return Refused.PAUSED
    if pool.state is PoolState.RELEASED and not class_.waits_when_closed:
        return Refused.RELEASED
    if pool.state is PoolState.FAILED:
        return Refused.ENGINE_UNAVAILABLE
    cap = pool.capacity
    cost = world.kv_cost(spec.pool, spec.prompt_tok, spec.max_tok)
    in_context = spec.prompt_tok + spec.max_tok <= cap.max_context_tok
    fits = in_context and (cap.kv_tok is None or cost <= cap.kv_tok)
    return None if fits else Refused.TOO_LARGE


def wont_meet(world: World, coming: Coming, no: Refusal) -> None:
    """Early, and never without a reason: not where nothing runs or nothing is known, and not for
    ever."""
    spec = coming.r.spec
    pool = world.pools[spec.pool]
    if pool.spec.state is not PoolState.READY:
        assert load_is_too_late(world, spec), "the load may be in time"
        return
    assert spec.ttft_deadline_ns is not None or spec.deadline_ns is not None
    assert world.seated(spec.pool), "refused on an idle pool"
    waited_ns = world.now - world.backlog.get(spec.class_, world.now)
    others = len(world.waiting(spec.class_)) > 1
    known = (others and waited_ns >= 10**9) or pool.told >= LEAST_TOLD
    assert known, "nothing is known"
    row = world.late_in_row.get(spec.class_, 0)
    assert row < world.limits.probe_after, "one had to be let in to see"
    world.late_in_row[spec.class_] = row + 1
    assert no.limit is not None
    assert no.used is not None
    assert no.limit >= 0


def load_is_too_late(world: World, spec: RequestSpec) -> bool:
    """Its own ttft ends before the pool can be in memory."""
    pool = world.pools[spec.pool]
    if pool.spec.state is PoolState.READY or pool.spec.switch_cost_ns is None:
        return False
    if spec.ttft_deadline_ns is None or not spec.ttft_is_own:
        return False
    since = pool.loading_at if pool.asked_at is None else pool.asked_at
    if since is None:
        since = world.now
    return since + pool.spec.switch_cost_ns > spec.ttft_deadline_ns


def promised(world: World, spec: RequestSpec, no: Refusal, coming: Coming | None) -> None:
    """A hint and a ticket for later; one that comes early keeps what it has, and so does one that
    is too large."""
    assert no.retry_after_ns is None or no.retry_after_ns >= 0
    if no.reason not in ROOM | {Refused.DISPLACED, Refused.WONT_MEET_DEADLINE}:
        assert no.ticket is None
        return
    if coming is not None and coming.ticket is not None:
        promise = world.promises[coming.ticket]
        if coming.early:
            assert no.ticket == coming.ticket, "too early, and the promise is gone"
            assert no.retry_after_ns == promise.due - world.now
            return
        promise.used = True
    if no.ticket is None:
        return
    assert no.retry_after_ns is not None
    assert no.ticket not in world.promises, "a ticket of somebody else"
    world.promises[no.ticket] = Promise(spec, world.now, world.now + no.retry_after_ns)


# --- those who wait or run -----------------------------------------------------------------------


def queued_end(world: World, req: Req, reason: Refused) -> None:
    assert req.where == "queued"
    if reason is Refused.SHUTTING_DOWN:
        assert world.draining
        assert not world.can_go_on(req), "it was in the engine, and can come back"
    elif not req.aborted:
        assert world.dues(req)[reason] <= world.now


def abort(world: World, effect: fx.Abort) -> None:
    req = world.live[effect.rid]
    assert req.where == "held"
    assert world.dues(req)[effect.refusal.reason] <= world.now
    req.aborted = True


def preempt(world: World, req: Req) -> None:
    """One is stopped: for a better one that cannot start otherwise, for the cache that has run
    over, or for another model; and never who may not be."""
    assert req.where == "held", "it does not run"
    assert not req.stopping, "asked twice"
    assert req.can_stop, "it would be seen"
    grounds = [why for why in (_cause, _overshoot, _switch, _lent) if why(world, req)]
    assert grounds, "no ground to stop it"
    req.stopping = True


def _cause(world: World, req: Req) -> bool:
    name, pool = req.spec.pool, world.pools[req.spec.pool]
    causes = [r for r in world.causes(name) if world.rank_of(r) < world.rank_of(req)]
    if not causes or req.aborted:
        return False
    _, best = world.heads(name)[0]
    match world.blocked(best):
        case "seats" | "in_flight":
            if world.stopping(name) >= len(world.causes(name)):
                return False
        case "kv":
            stopping = [r for r in world.seated(name) if r.stopping]
            if sum(map(world.kv_of, stopping)) >= _short(world, name, best):
                return False
        case _:
            return False
    ranks = {world.rank_of(r) for r in causes}
    waited = {rank: _patience(world, name, rank) for rank in ranks}
    if not any(world.may_stop(req, rank, waited[rank]) for rank in ranks):
        return False
    protected = sum(map(world.is_protected, world.able(name)))
    if world.is_protected(req) and protected <= max(1, pool.spec.capacity.max_seqs // 2):
        return False
    # The worst rank first, and of it who has the least to lose.
    order = (-world.rank_of(req), world.again(req), world.cost(req))
    for other in world.able(name):
        if other is req or world.is_protected(other):
            continue
        stoppable = all(world.may_stop(other, rank, waited[rank]) for rank in ranks)
        if stoppable and (-world.rank_of(other), world.again(other), world.cost(other)) < order:
            return False
    return True


def _patience(world: World, pool: str, rank: int) -> int:
    head = next(r for c, r in world.heads(pool) if c.rank == rank)
    return world.now - head.spec.arrived_ns


def _overshoot(world: World, req: Req) -> bool:
    name = req.spec.pool
    kv_tok = world.pools[name].spec.capacity.kv_tok
    if kv_tok is None or sum(r.kv for r in world.seated(name)) <= kv_tok or world.stopping(name):
        return False
    able = [r for r in world.running(name) if r.can_stop]
    first = max((world.rank_of(r), -world.cost(r), r.seq) for r in able)
    return len(able) > 1 and (world.rank_of(req), -world.cost(req), req.seq) == first


def _switch(world: World, req: Req) -> bool:
    """Everybody leaves so that another model can be loaded for a better one."""
    for name, pool in world.pools.items():
        if pool.spec.state is not PoolState.COLD or not (heads := world.heads(name)):
            continue
        best, _ = heads[0]
        seated = [r for r in world.live.values() if r.seat and not r.stopping]
        if best.preempts and all(
            world.may_stop(r, best.rank, NEVER) and not world.is_protected(r) for r in seated
        ):
            return True
    return False


def _lent(world: World, req: Req) -> bool:
    """Its device is lent to something else, and nobody would have to be patient with it."""
    class_ = world.classes[req.spec.class_]
    lent = world.pools[req.spec.pool].spec.state is PoolState.RELEASED
    return lent and class_.preemptible and not class_.preempt_grace_ns and not req.aborted


def load(world: World, model: str) -> None:
    pool = world.pools[model]
    assert pool.spec.state is PoolState.COLD
    assert pool.asked is None or world.now >= pool.asked + LOAD_ANSWER_NS, "asked twice"
    assert not any(r.seat for r in world.live.values()), "work would be lost to the switch"
    assert world.next_in(model) is not None, "nobody wants it"
    assert not any(p.spec.state is PoolState.LOADING for p in world.pools.values())
    pool.asked = pool.asked_at = world.now


# --- after each event ----------------------------------------------------------------------------


def rest(world: World, looked: bool) -> None:
    """The core's own invariants; nobody idles, nobody is late, the next wake is exact."""
    core = world.core
    for pool in world.pools.values():
        if pool.asked is not None and world.now >= pool.asked + LOAD_ANSWER_NS:
            pool.asked = None
    core.validate()
    if not world.switching():
        for name in world.pools:
            found = world.next_in(name)
            assert found is None or world.blocked(*found), "a seat idles"
            if looked:
                nobody_to_stop(world, name)
    dues = list(world.all_dues())
    look_ns = core._book.preempt_wake_ns
    if look_ns is not None:
        assert look_ns > world.now, "nobody has looked whom to stop"
        assert any(world.classes[r.spec.class_].preempts for r in world.all_waiting())
        dues.append(look_ns)
    assert all(due > world.now for due in dues)
    first, wake = min(dues, default=None), core.next_wake_ns()
    assert first is None or (wake is not None and world.now < wake <= first)
    if not world.switching():
        assert wake == first
    shown(world)


def heads_hold(world: World, *, sure: bool) -> None:
    """Whoever is next and did not find cache or step of its size is not passed by its class."""
    for class_, queue in world.core._book.queues.items():
        for name in world.pools:
            place = class_, name
            line = queue._lines.get(name)
            rid = None if line is None else line._held
            known = world.held.get(place)
            assert known in (None, rid), "its place is lost"
            if rid is not None and known is None:
                req = world.live[rid]
                if sure:
                    assert req in world.heads_of(class_, name), "held, and was not next"
                    assert world.blocked(req) in ("kv", "step"), "held for nothing"
                world.held[place] = rid
    if sure and not world.switching():
        for name in world.pools:
            found = world.next_in(name)
            if found is not None and world.blocked(*found) in ("kv", "step"):
                returned = found[0].exempt
                assert returned or (found[0].spec.class_, name) in world.held, "not held"


def nobody_to_stop(world: World, name: str) -> None:
    """Whoever may have others stopped either has room coming or nobody can make it."""
    cap = world.pools[name].spec.capacity
    able = [r for r in world.running(name) if r.can_stop]
    over = cap.kv_tok is not None and sum(r.kv for r in world.seated(name)) > cap.kv_tok
    assert not over or world.stopping(name) or len(able) < 2, "the cache runs over"
    assert not any(_lent(world, r) for r in able), "it keeps a device that is lent"
    heads = world.heads(name)
    if not heads or not heads[0][0].preempts:
        return
    c, best = heads[0]
    limit = world.blocked(best)
    free = [r for r in world.able(name) if not world.is_protected(r)]
    if limit in FREED and world.step_ns(name, len(world.running(name))) is None:
        coming = world.stopping(name) + sum(
            r.where == "over" and world.now - r.settled < world.limits.preempt_delta_ns
            for r in world.seated(name)
        )
        for cause in world.causes(name)[coming : coming + 1]:
            waited = _patience(world, name, world.rank_of(cause))
            left = [r for r in free if world.may_stop(r, world.rank_of(cause), waited)]
            assert not left, "somebody waits, and nobody is stopped"
    if limit == "kv" and not world.stopping(name):
        short = _short(world, name, best)
        waited = _patience(world, name, c.rank)
        left = [r for r in free if world.may_stop(r, c.rank, waited)]
        assert sum(world.kv_of(r) for r in left) < short, "enough could be stopped"


def _short(world: World, name: str, best: Req) -> int:
    """Cache that is missing for it."""
    kv_tok = world.pools[name].spec.capacity.kv_tok
    assert kv_tok is not None
    return world.kv_of(best) + sum(r.kv for r in world.seated(name)) - kv_tok


def shown(world: World) -> None:
    view = world.core.view(world.now)
    assert view.in_flight == world.in_flight()
    assert view.queued == len(world.all_waiting())
    assert view.draining == world.draining
    for class_ in view.classes:
        waiting = world.waiting(class_.name)
        assert (class_.queued, class_.queued_tok) == (len(waiting), sum(r.tok for r in waiting))
        assert class_.closed == (class_.name in world.closed)
    for pool in view.pools:
        seated = world.seated(pool.model)
        assert pool.seats_used == len(seated)
        assert pool.seats_quarantined == sum(r.where == "over" for r in seated)
        assert pool.kv_tok_used == sum(r.kv for r in seated)
        assert pool.unprefilled_tok == sum(r.unprefilled for r in seated)
