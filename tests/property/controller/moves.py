"""What changes in the world of the rules when something happens."""

from tests.property.controller.world import NEVER, Req, World

from onegate.admission import protect
from onegate.admission.model import PoolSpec, PoolState
from onegate.admission.rate import BUCKET_NS


def join(world: World, r: Req) -> None:
    """It waits from now on."""
    r.where = "queued"
    _backlog(world, r.spec.class_)


def _backlog(world: World, class_: str) -> None:
    if len(world.waiting(class_)) == 1:
        world.backlog[class_] = world.now


def left_queue(world: World, r: Req) -> None:
    """It does not wait any more."""
    place = r.spec.class_, r.spec.pool
    if world.held.get(place) == r.spec.rid:
        del world.held[place]
    if not world.waiting(r.spec.class_):
        no_credit(world, r.spec.class_)


def no_credit(world: World, class_: str) -> None:
    world.credit[class_] = min(0.0, world.credit.get(class_, 0.0))


def end(world: World, r: Req) -> None:
    assert r.spec.rid not in world.ended, "ended twice"
    world.ended.add(r.spec.rid)
    world.served[r.spec.class_].leave(r.spec.principal, r.spec.flow)


def forget_queued(world: World, r: Req) -> None:
    """It waits, and goes home."""
    del world.live[r.spec.rid]
    end(world, r)
    left_queue(world, r)


def grant(world: World, r: Req, by_floor: bool) -> None:
    spec, served = r.spec, world.served[r.spec.class_]
    if by_floor:
        r.by_floor = True
        r.prepaid = min(r.prompt + r.reserved, world.limits.floor_quantum_tok)
        world.credit[spec.class_] -= r.prepaid
    r.where, r.seat = "held", True
    left_queue(world, r)
    served.chosen(spec.principal, spec.flow)
    if not r.exempt:
        served.charge(r.prompt, spec.principal, spec.flow)
    r.rank = world.rank_of(r)
    kept = world.pools[spec.pool].kept
    if able := [rank for rank in kept if rank >= r.rank]:
        kept.remove(min(able))
    r.kv = world.kv_of(r)
    r.unprefilled = 0 if spec.lease else r.prefill
    r.safety = world.now + world.classes[spec.class_].safety_timeout_ns


def compute(world: World, r: Req, prefilled: int, output: int) -> None:
    """The engine has computed so much before its next token, and made so much output, in all."""
    spec = r.spec
    pool, name = spec.pool, spec.class_
    filled, made = max(0, prefilled - r.computed), output - r.output
    grown = filled + made
    r.computed, r.output = max(r.computed, prefilled), output
    if output > r.charged:
        world.served[name].charge(output - r.charged, spec.principal, spec.flow)
        r.charged = output
    if r.seat:
        r.unprefilled = min(r.unprefilled, max(0, r.prefill - r.computed))
        if output > r.reserved:
            block = world.pools[pool].spec.capacity.block_tok
            r.reserved = min(spec.max_tok, output + block)
            r.kv = world.kv_of(r)
    world.work.append((name, pool, filled, made))
    lately = computed_lately(world, pool, grown)
    for c in world.classes.values():
        if c.floor_share and c.name not in world.closed and world.waiting(c.name, pool):
            # What it has had beyond its share is earned off first.
            earned = c.floor_share * grown
            lead = min(world.lead.get(c.name, 0.0), c.floor_share * lately)
            world.lead[c.name] = max(0.0, lead - earned)
            gained = earned - (lead - world.lead[c.name])
            world.credit[c.name] = world.credit.get(c.name, 0.0) + gained
    share = world.classes[name].floor_share
    if not share:
        return
    rank = world.classes[name].rank
    better = any(
        c.rank < rank and c.name not in world.closed and world.waiting(c.name, pool)
        for c in world.classes.values()
    )
    have = world.credit.get(name, 0.0)
    if r.by_floor and better:
        used = min(r.prepaid, grown)
        r.prepaid -= used
        world.credit[name] = have - (grown - used)
    else:
        paid = min(grown, max(0.0, have))
        world.credit[name] = have - paid
        world.lead[name] = min(share * lately, world.lead.get(name, 0.0) + grown - paid)


def computed_lately(world: World, pool: str, grown: int) -> int:
    """What the pool has computed within the window, with this."""
    made = world.pools[pool].computed
    bucket = world.now - world.now % BUCKET_NS
    made[bucket] = made.get(bucket, 0) + grown
    since = world.now - world.limits.floor_window_ns
    return sum(tok for at, tok in made.items() if at > since)


def earn_allowances(world: World) -> None:
    """By what was computed, at the weight that the core has learned from it."""
    for class_, pool, filled, made in world.work:
        work = world.weight(pool) * filled + made
        spend_allowance(world, class_, -world.limits.recompute_share * work)
    world.work.clear()


def spend_allowance(world: World, class_: str, tok: float) -> None:
    world.allowed[class_] = min(protect.BURST_TOK, world.allowed[class_] - tok)


def count(world: World, r: Req, prompt: int, cached: int) -> None:
    estimated, r.prompt = r.prompt, prompt
    if r.where == "queued":
        r.tok = world.queue_cost(r.spec.pool, prompt, r.reserved)
    if not r.seat:
        return
    r.kv = world.kv_of(r)
    cached = min(cached, r.prefill)
    if saved := min(cached, r.lost):
        r.lost = 0
        r.again -= world.weight(r.spec.pool) * saved
        spend_allowance(world, r.spec.class_, -world.weight(r.spec.pool) * saved)
    if r.where == "held" and not r.exempt:
        served, who = world.served[r.spec.class_], (r.spec.principal, r.spec.flow)
        more = prompt - max(0, min(cached, prompt) - r.computed) - estimated
        served.charge(max(0, more), *who)
        served.give_credit(max(0, -more), *who)
    r.computed = max(r.computed, cached)
    if r.unprefilled:
        r.unprefilled = max(0, r.prefill - r.computed)


def settle(world: World, r: Req, output: int) -> None:
    if output > r.output:
        compute(world, r, r.prefill, output)
    r.where, r.stopping = "over", False
    end(world, r)
    give_back(world, r)
    r.unprefilled = 0
    r.settled = world.now
    if r.seat:
        r.kv = world.kv_of(r)
    else:
        del world.live[r.spec.rid]


def requeue(world: World, r: Req, kept: int) -> None:
    """Out of the engine and back in its place; what it lost is paid for if it was stopped."""
    give_back(world, r)
    r.lost = 0
    if r.stopping and world.pools[r.spec.pool].spec.state is not PoolState.RELEASED:
        r.lost = r.computed + r.made
        r.again += world.cost(r)
        spend_allowance(world, r.spec.class_, world.cost(r))
    r.seat, r.kv, r.unprefilled, r.computed, r.stopping = False, 0, 0, 0, False
    r.where, r.exempt, r.safety = "queued", True, NEVER
    r.kept = r.output = kept
    r.tok = world.queue_cost(r.spec.pool, r.prompt, r.reserved)
    if not (r.aborted or (world.draining and not world.can_go_on(r))):
        _backlog(world, r.spec.class_)


def give_back(world: World, r: Req) -> None:
    name = r.spec.class_
    if r.by_floor and world.classes[name].floor_share:
        world.credit[name] = world.credit.get(name, 0.0) + r.prepaid
        if not world.waiting(name) or name in world.closed:
            no_credit(world, name)
    r.by_floor, r.prepaid = False, 0


def free(world: World, r: Req) -> None:
    r.seat, r.kv, r.unprefilled = False, 0, 0
    if r.where == "over":
        del world.live[r.spec.rid]


def become(world: World, spec: PoolSpec) -> None:
    """The engine says that this is the pool now."""
    known = world.pools[spec.model]
    if spec.identity != known.spec.identity:
        known.told = 0
    known.spec = spec
    # Who waits for a pool that has failed waits for nobody knows what.
    stands = spec.state not in (PoolState.READY, PoolState.FAILED)
    if not stands and known.since is not None:
        known.excused, known.since = known.excused_at(world.now), None
    elif stands and known.since is None:
        known.since = world.now
    if spec.state not in (PoolState.COLD, PoolState.LOADING):
        known.asked = known.asked_at = None
    if spec.state is not PoolState.LOADING:
        known.loading_at = None
    elif known.loading_at is None:
        known.loading_at = world.now
