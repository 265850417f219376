"""The rules of admission, and nothing of how the core keeps them.

What the core has learned (usual lengths, the time of a step) is taken at its word; what it makes of
that is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from tests.property.controller.served import Served

from onegate.admission import protect
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolSpec,
    PoolState,
    Refused,
    RequestSpec,
    Reservation,
    Resume,
)

S = 10**9
NEVER = 10**30
LIMITS = GateLimits(
    max_in_flight=4,
    max_queued_tok=900,
    max_queued_requests=10,
    look_ahead=0,
    floor_window_ns=30 * S,
    floor_quantum_tok=40,
    probe_after=3,
)
CLASSES = (
    ClassSpec("chat", 0, 400, 0.5, 900 * S, preempts=True),
    ClassSpec(
        "loop",
        1,
        600,
        0.5,
        900 * S,
        0.2,
        waits_when_closed=True,
        preempts=True,
        preemptible=True,
        preempt_grace_ns=2 * S,
    ),
    ClassSpec("batch", 2, 800, 0.9, 1800 * S, 0.1, preemptible=True),
)
# What a class may be behind with, of requests that are as small as these.
BURST_TOK = 100.0


@dataclass
class Req:
    """What the model knows of a request."""

    spec: RequestSpec
    seq: int
    prompt: int
    excused_before: int
    reserved: int
    where: str = "queued"  # queued, held, over (its seat not yet confirmed)
    stopping: bool = False
    seat: bool = False
    rank: int = 0
    output: int = 0
    computed: int = 0
    kept: int = 0
    again: float = 0.0
    lost: int = 0
    charged: int = 0
    safety: int = NEVER
    settled: int = NEVER
    exempt: bool = False
    aborted: bool = False
    kv: int = 0
    unprefilled: int = 0
    by_floor: bool = False
    prepaid: float = 0
    tok: int = 0  # charged to the queue

    @property
    def start_by(self) -> int:
        """Orders it within its flow."""
        return min(self.spec.ttft_deadline_ns or NEVER, self.spec.deadline_ns or NEVER)

    @property
    def prefill(self) -> int:
        """Comes before its next token."""
        return self.prompt + self.kept

    @property
    def made(self) -> int:
        """The output of this run."""
        return max(0, self.output - self.kept)

    @property
    def can_stop(self) -> bool:
        """Would nobody see it in the answer?"""
        if self.spec.resume is Resume.UNSEEN:
            return self.output == 0
        return self.spec.resume is not Resume.NEVER


@dataclass
class PoolModel:
    spec: PoolSpec
    excused: int = 0
    since: int | None = None
    asked: int | None = None  # and no answer is overdue
    asked_at: int | None = None
    loading_at: int | None = None
    kept: list[int] = field(default_factory=list)
    told: int = 0  # words about output
    computed: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.spec.state is PoolState.LOADING:
            self.loading_at = 0

    def excused_at(self, now: int) -> int:
        return self.excused + (0 if self.since is None else now - self.since)


@dataclass
class Promise:
    """A ticket that a client holds."""

    spec: RequestSpec
    issued: int
    due: int
    used: bool = False

    def may_be_good(self, spec: RequestSpec, now: int) -> bool:
        mine = (self.spec.class_, self.spec.principal) == (spec.class_, spec.principal)
        small = spec.prompt_bytes <= self.spec.prompt_bytes and spec.max_tok <= self.spec.max_tok
        life = max(5 * S, (self.due - self.issued) // 5 + 1)
        return mine and small and not self.used and now < self.due + life

    def must_be_good(self, spec: RequestSpec, now: int) -> bool:
        life = max(5 * S, int((self.due - self.issued) / 1.05) // 5 - 1)
        return self.may_be_good(spec, now) and now < self.due + life


@dataclass
class World:
    """Everything that the shell, the engines and the clients did and were told."""

    now: int = 0
    limits: GateLimits = LIMITS
    classes: dict[str, ClassSpec] = field(default_factory=lambda: {c.name: c for c in CLASSES})
    pools: dict[str, PoolModel] = field(default_factory=dict)
    closed: dict[str, int | None] = field(default_factory=dict)
    live: dict[int, Req] = field(default_factory=dict)
    credit: dict[str, float] = field(default_factory=dict)
    lead: dict[str, float] = field(default_factory=dict)
    allowed: dict[str, float] = field(default_factory=dict)
    work: list[tuple[str, str, int, int]] = field(default_factory=list)
    served: dict[str, Served] = field(default_factory=dict)
    held: dict[tuple[str, str], int] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)
    backlog: dict[str, int] = field(default_factory=dict)
    late_in_row: dict[str, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    draining: bool = False
    seq: int = 0
    core: Controller = field(init=False)

    def __post_init__(self) -> None:
        for name in self.classes:
            self.allowed[name] = float(protect.BURST_TOK)
            self.served[name] = Served()

    # --- what the core has learned

    def step_ns(self, pool: str, seqs: int) -> float | None:
        return self.core._book.pools[pool].pace.step_ns(seqs, 0, self.now)

    def usual_tok(self, spec: RequestSpec) -> int | None:
        curve = self.core._book.pools[spec.pool].curve(spec)
        return None if curve is None else curve.quantile(0.9)

    def weight(self, pool: str) -> float:
        """Of a prompt token, beside one of output."""
        return self.core._book.pools[pool].weight

    def line_is_out(self, class_: str) -> bool:
        return self.core._book.tickets.are_out(class_, self.now)

    # --- sizes

    def kv_cost(self, pool: str, prompt: int, output: int) -> int:
        cap = self.pools[pool].spec.capacity
        if cap.reservation is Reservation.PER_SLOT:
            return 0
        return (prompt + output + cap.block_tok - 1) // cap.block_tok * cap.block_tok

    def kv_of(self, r: Req) -> int:
        grow = self.pools[r.spec.pool].spec.capacity.reservation is Reservation.GROW
        output = r.output if r.where == "over" and grow else max(r.reserved, r.output)
        return self.kv_cost(r.spec.pool, r.prompt, output)

    def queue_cost(self, pool: str, prompt: int, output: int) -> int:
        per_slot = self.pools[pool].spec.capacity.reservation is Reservation.PER_SLOT
        return max(1, prompt if per_slot else prompt + output)

    def reserve(self, spec: RequestSpec) -> int:
        """Output that is reserved for a newcomer: all, or where an engine grows the usual,
        and of one without a bound what is likely until that is known."""
        grow = self.pools[spec.pool].spec.capacity.reservation is Reservation.GROW
        usual = self.usual_tok(spec) if grow else None
        if grow and usual is None:
            usual = spec.likely_tok
        return spec.max_tok if usual is None else max(1, min(spec.max_tok, usual))

    # --- who is where

    def ranked(self) -> list[ClassSpec]:
        return sorted(self.classes.values(), key=lambda c: c.rank)

    def rank_of(self, r: Req) -> int:
        return self.classes[r.spec.class_].rank

    def waiting(self, class_: str, pool: str | None = None) -> list[Req]:
        return [
            r
            for r in self.live.values()
            if r.where == "queued" and r.spec.class_ == class_ and pool in (None, r.spec.pool)
        ]

    def all_waiting(self) -> list[Req]:
        return [r for r in self.live.values() if r.where == "queued"]

    def seated(self, pool: str) -> list[Req]:
        return [r for r in self.live.values() if r.seat and r.spec.pool == pool]

    def running(self, pool: str) -> list[Req]:
        return [r for r in self.seated(pool) if r.where == "held" and not r.stopping]

    def stopping(self, pool: str) -> int:
        return sum(r.stopping for r in self.live.values() if r.spec.pool == pool)

    def in_flight(self) -> int:
        return sum(r.where == "held" for r in self.live.values())

    def can_go_on(self, r: Req) -> bool:
        """In a shutdown: it was in the engine before, and nothing keeps it from coming back."""
        ready = self.pools[r.spec.pool].spec.state is PoolState.READY
        return r.exempt and ready and r.spec.class_ not in self.closed

    # --- who is next

    def heads_of(self, class_: str, pool: str) -> list[Req]:
        """Who may be the first of a class for a pool.

        First who was in the engine before, then who is held, and then whose turn it is; or, since
        the model does not guess how soon the others start, who has the least time left.
        """
        line = self.waiting(class_, pool)
        returned = [r for r in line if r.exempt]
        if returned:
            return [min(returned, key=lambda r: r.seq)]
        if (rid := self.held.get((class_, pool))) is not None:
            return [self.live[rid]]
        found = [first] if (first := self.fair_first(class_, pool)) else []
        timed = [r for r in line if r.start_by < NEVER]
        if timed and self.now - self.backlog[class_] >= S:
            soonest = min(timed, key=lambda r: (r.start_by, r.seq))
            found += [soonest] if soonest not in found else []
        return found

    def head(self, class_: str, pool: str) -> Req | None:
        """Of these the one that the core has chosen, once it has."""
        able = self.heads_of(class_, pool)
        if len(able) > 1:
            chosen = self.live.get(self.core._book.queues[class_].head(pool, self.now) or -1)
            if chosen in able:
                return chosen
        return able[0] if able else None

    def fair_first(self, class_: str, pool: str) -> Req | None:
        """Of the principal whose turn it is, and of its flow whose turn it is, who runs out of time
        first. Of equals it is the turn of whose request came first."""
        served, line = self.served[class_], self.waiting(class_, pool)
        if not line:
            return None
        oldest: dict[str, int] = {}
        for r in line:
            oldest[r.spec.principal] = min(r.seq, oldest.get(r.spec.principal, r.seq))
        principal = min(oldest, key=lambda name: (served.turn_of(name), oldest[name]))
        of = served.parts[principal]
        line = [r for r in line if r.spec.principal == principal]
        flows: dict[str, int] = {}
        for r in line:
            flows[r.spec.flow] = min(r.seq, flows.get(r.spec.flow, r.seq))
        flow = min(flows, key=lambda name: (of.turn_of(name), flows[name]))
        line = [r for r in line if r.spec.flow == flow]
        return min(line, key=lambda r: (r.start_by, r.seq))

    def owed(self, class_: str, head: Req) -> bool:
        if not self.classes[class_].floor_share:
            return False
        need = max(1, min(head.prompt + head.reserved, self.limits.floor_quantum_tok))
        return self.credit.get(class_, 0.0) >= need

    def heads(self, pool: str) -> list[tuple[ClassSpec, Req]]:
        """Of each open class the first, best rank first."""
        return [
            (c, head)
            for c in self.ranked()
            if c.name not in self.closed and (head := self.head(c.name, pool)) is not None
        ]

    def next_in(self, pool: str) -> tuple[Req, bool] | None:
        """Who must be next in this pool, and whether only by its floor."""
        return self.next_of(pool, self.heads(pool))

    def next_of(self, pool: str, heads: list[tuple[ClassSpec, Req]]) -> tuple[Req, bool] | None:
        for c, head in heads[1:]:
            if self.owed(c.name, head):
                if self.floor_may_start(pool):
                    return head, True
                break
        return (heads[0][1], False) if heads else None

    def may_be_next(self, pool: str) -> list[tuple[Req, bool]]:
        """The same while the core has not said whom it takes for the first of each class."""
        lines = [
            [(c, r) for r in self.heads_of(c.name, pool)]
            for c in self.ranked()
            if c.name not in self.closed and self.waiting(c.name, pool)
        ]
        found = [self.next_of(pool, list(heads)) for heads in product(*lines)]
        return [each for each in found if each is not None]

    def floor_may_start(self, pool: str) -> bool:
        """A seat that was made free for somebody is his; not too many are protected."""
        model = self.pools[pool]
        cap, seated = model.spec.capacity, self.seated(pool)
        free = cap.max_seqs + self.limits.look_ahead - len(seated)
        if model.kept and free <= len(model.kept) - self.stopping(pool):
            return False
        preemptible = [r for r in seated if self.classes[r.spec.class_].preemptible]
        if not any(c.preemptible for c in self.classes.values()):
            return True
        return sum(map(self.is_protected, preemptible)) < max(1, cap.max_seqs // 2)

    def blocked(self, r: Req, by_floor: bool = False) -> str | None:
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
        cost = self.kv_of(r)
        if cap.kv_tok is not None and seated and sum(s.kv for s in seated) + cost > cap.kv_tok:
            return "kv"
        rank = self.rank_of(r)
        out = sum(s.unprefilled for s in seated if s.rank <= rank)
        if cap.max_step_tok is not None and out and out + r.prefill > cap.max_step_tok:
            return "step"
        step_ns = self.step_ns(r.spec.pool, len(seated) + 1)
        if step_ns is None or by_floor:
            return None
        here = {h.spec.class_ for h in seated if h.where == "held"}
        targets = [c.itl_target_ns for c in self.ranked()[:rank] if c.name in here]
        return "itl" if any(each is not None and step_ns > each for each in targets) else None

    def switching(self) -> bool:
        """Might the core be holding pools back to load another?"""
        cold = any(
            p.spec.state is PoolState.COLD and self.next_in(name) for name, p in self.pools.items()
        )
        return cold or any(p.asked is not None for p in self.pools.values())

    def give_up_kept(self) -> None:
        """A seat is kept only while somebody waits for it."""
        for name, model in self.pools.items():
            ranks = [
                self.rank_of(r)
                for r in self.all_waiting()
                if r.spec.class_ not in self.closed and r.spec.pool == name
            ]
            model.kept.sort()
            while model.kept and len(model.kept) > sum(rank <= model.kept[-1] for rank in ranks):
                model.kept.pop()

    # --- who may wait

    def room(self, spec: RequestSpec, tok: int, more: float = 0.0) -> Refused | None:
        """What a newcomer that has to wait is refused for; bounds are `more` wider."""
        class_, limits = self.classes[spec.class_], self.limits
        line = self.waiting(spec.class_)
        mine = [r.tok for r in line if r.spec.principal == spec.principal]
        quota = int(class_.max_queued_tok * class_.per_principal_share)
        if tok > min(quota, limits.max_queued_tok):
            return Refused.TOO_LARGE
        most = max(1, int(limits.max_queued_requests * class_.per_principal_share))
        if mine and (sum(mine) + tok > quota * (1 + more) or len(mine) >= most * (1 + more)):
            return Refused.PEER_QUOTA
        if sum(r.tok for r in line) + tok > class_.max_queued_tok * (1 + more):
            return Refused.TOKENS_FULL
        everybody = self.all_waiting()
        over_tok = sum(r.tok for r in everybody) + tok - limits.max_queued_tok * (1 + more)
        over = len(everybody) + 1 - limits.max_queued_requests
        lower = [r for r in everybody if self.rank_of(r) > class_.rank and not r.exempt]
        if max(0, over_tok) <= sum(r.tok for r in lower) and over <= len(lower):
            return None
        return Refused.TOKENS_FULL if over_tok > 0 else Refused.CLASS_FULL

    # --- who may be stopped

    def cost(self, r: Req) -> float:
        """The work that is lost if it is stopped, in output tokens."""
        weight = self.weight(r.spec.pool)
        if r.spec.resume is Resume.EXACT:
            return weight * (r.computed + r.made)
        return weight * r.computed + r.made

    def again(self, r: Req) -> float:
        """What of it would probably be done again."""
        cached = self.pools[r.spec.pool].spec.keeps_prefix and r.spec.resume is Resume.EXACT
        return 0.0 if cached else self.cost(r)

    def is_protected(self, r: Req) -> bool:
        size = self.weight(r.spec.pool) * r.prompt + r.spec.max_tok
        to_its_end = r.by_floor and r.spec.resume is not Resume.EXACT
        used_up = r.again + self.again(r) > size
        return r.where == "held" and (to_its_end or r.prepaid > 0 or used_up)

    def able(self, pool: str) -> list[Req]:
        return [
            r for r in self.running(pool) if self.classes[r.spec.class_].preemptible and r.can_stop
        ]

    def spared(self, pool: str) -> int:
        """How many of the protected ones of a pool may not be stopped."""
        most = max(1, self.pools[pool].spec.capacity.max_seqs // 2)
        return min(most, sum(map(self.is_protected, self.able(pool))))

    def may_stop(self, r: Req, rank: int, waited: int) -> bool:
        """Of a class that lets it, for a better rank that has been patient, within the budget."""
        class_ = self.classes[r.spec.class_]
        return (
            r.where == "held"
            and not r.stopping
            and not r.aborted
            and r.can_stop
            and class_.preemptible
            and class_.rank > rank
            and waited >= class_.preempt_grace_ns
            and self.again(r) <= self.allowed[class_.name]
        )

    def causes(self, pool: str) -> list[Req]:
        """Who may have others stopped here: those before the first that may not."""
        found: list[Req] = []
        for c, _ in self.heads(pool):
            if not c.preempts:
                break
            found += self.waiting(c.name, pool)
        return found[: self.pools[pool].spec.capacity.max_seqs]

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
            stood_still = pool.excused - r.excused_before
            due[Refused.TTFT_DEADLINE_EXCEEDED] = spec.ttft_deadline_ns + stood_still
        return due

    def all_dues(self) -> Iterator[int]:
        for r in self.live.values():
            yield from self.dues(r).values()
        yield from (until for until in self.closed.values() if until is not None)

    def open_due(self) -> None:
        for name, until in list(self.closed.items()):
            if until is not None and until <= self.now:
                del self.closed[name]
