"""A box in virtual time: the real core, an engine with a cost per step, clients that come and go.

The engine takes only what a grant lets it take, and fails the test when that is more than it can
hold. How long an answer will be is known to the client's script alone, never to the core.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    Refusal,
    RequestSpec,
    Reservation,
)

SECOND = 10**9
# A step costs a + b per prompt token + c per sequence, as of a small card.
STEP_NS, PROMPT_TOK_NS, SEQ_NS = 10_000_000, 50_000, 300_000

# Checking every invariant costs more than an event; the property tests do it after each.
CHECK_EVERY = 101

LIMITS = GateLimits(
    max_in_flight=64,
    max_queued_tok=10**9,
    max_queued_requests=4096,
    look_ahead=0,
    floor_window_ns=30 * SECOND,
    floor_quantum_tok=256,
)


def classes(**floors: float) -> tuple[ClassSpec, ...]:
    """chat, loop and batch with room for everything; floor shares by name."""
    return tuple(
        ClassSpec(name, rank, 10**8, 1.0, 10**6 * SECOND, floors.get(name, 0.0))
        for rank, name in enumerate(("chat", "loop", "batch"))
    )


@dataclass
class Job:
    """One request: what it asks for, how long its answer really is, and what became of it."""

    rid: int
    class_: str
    prompt_tok: int
    max_tok: int
    output_tok: int
    arrived_ns: int
    pool: str
    on_end: Callable[["Job"], None] | None
    granted_ns: int | None = None
    first_ns: int | None = None
    ended_ns: int | None = None
    refusal: Refusal | None = None
    prefilled_tok: int = 0
    made_tok: int = 0

    @property
    def tok(self) -> int:
        """What the engine has computed for it."""
        return self.prefilled_tok + self.made_tok


@dataclass
class Engine:
    """One pool: a continuous batch whose prompts share the step's token budget, best rank first."""

    capacity: PoolCapacity
    step_ns: int = STEP_NS
    running: dict[int, Job] = field(default_factory=dict)

    def take(self, job: Job) -> None:
        self.running[job.rid] = job
        assert len(self.running) <= self.capacity.max_seqs, "more than there are seats"
        if self.capacity.kv_tok is not None and self.capacity.reservation is Reservation.FULL:
            reserved = sum(j.prompt_tok + j.max_tok for j in self.running.values())
            assert reserved <= self.capacity.kv_tok, "more than the cache holds"

    def plan(self) -> tuple[dict[int, int], int]:
        """Prompt tokens of the next step by request, and what the step costs."""
        left = self.capacity.max_step_tok or 2048
        prompts: dict[int, int] = {}
        for job in sorted(self.running.values(), key=lambda j: (j.class_ != "chat", j.rid)):
            prompts[job.rid] = tok = min(left, job.prompt_tok - job.prefilled_tok)
            left -= tok
        return prompts, (
            self.step_ns + PROMPT_TOK_NS * sum(prompts.values()) + SEQ_NS * len(self.running)
        )


class Box:
    """The core, its engines, and a clock that jumps from one event to the next."""

    def __init__(
        self,
        classes: tuple[ClassSpec, ...],
        pools: dict[str, PoolCapacity],
        limits: GateLimits = LIMITS,
        one_loadable: bool = False,
        switch_ns: int = 5 * SECOND,
        step_ns: int = STEP_NS,
    ) -> None:
        first = next(iter(pools))
        self.states = {
            name: PoolState.COLD if one_loadable and name != first else PoolState.READY
            for name in pools
        }
        self.capacities, self.switch_ns = pools, switch_ns
        self.core = Controller(limits, classes, tuple(self.spec(name) for name in pools))
        self.engines = {name: Engine(capacity, step_ns) for name, capacity in pools.items()}
        self.jobs: dict[int, Job] = {}
        self.granted: list[Job] = []
        self.loads: list[tuple[int, str]] = []
        self.now = 0
        self.computed: dict[str, int] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._stepping: set[str] = set()
        self._told = 0
        self.leaving = False

    def spec(self, name: str) -> PoolSpec:
        return PoolSpec(name, self.states[name], self.capacities[name], self.switch_ns)

    # --- clients -------------------------------------------------------------------------------

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._due, (when_ns, self._serial, what))

    def submit(
        self,
        class_: str,
        prompt_tok: int,
        output_tok: int,
        *,
        max_tok: int | None = None,
        pool: str | None = None,
        on_end: Callable[[Job], None] | None = None,
        principal: str = "p",
        ttft_ns: int | None = None,
        own: bool = False,
    ) -> Job:
        """Send a request now. `on_end` is called when it is over, however it ends."""
        pool = pool or next(iter(self.engines))
        rid = len(self.jobs) + 1
        most = output_tok if max_tok is None else max_tok
        job = Job(rid, class_, prompt_tok, most, output_tok, self.now, pool, on_end)
        self.jobs[rid] = job
        self.tell(
            ev.Arrived(
                RequestSpec(
                    rid,
                    pool,
                    class_,
                    principal,
                    principal,
                    prompt_tok,
                    most,
                    self.now,
                    ttft_deadline_ns=None if ttft_ns is None else self.now + ttft_ns,
                    ttft_is_own=own,
                )
            )
        )
        return job

    def cancel(self, job: Job) -> None:
        """The client is gone. A running request leaves the engine at the next step."""
        if job.ended_ns is not None:
            return
        if job.granted_ns is None:
            self.end(job)
            self.tell(ev.Withdrawn(job.rid))
        else:
            self.settle(job, finished=False)

    def endless(
        self, class_: str, live: int, prompt_tok: int, output_tok: int, **more: int
    ) -> None:
        """Keep `live` requests of that size in the box for ever."""

        def send() -> None:
            if not self.leaving:
                self.submit(class_, prompt_tok, output_tok, on_end=again, **more)

        def again(_job: Job | None = None) -> None:
            self.at(self.now, send)  # in a turn of its own: no event is told within another

        for _ in range(live):
            send()

    # --- the world turns ------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        for effect in self.core.handle(event, self.now):
            match effect:
                case fx.Grant(rid):
                    job = self.jobs[rid]
                    job.granted_ns = self.now
                    self.granted.append(job)
                    assert self.states[job.pool] is PoolState.READY, "sent to a pool that is away"
                    self.engines[job.pool].take(job)
                    self.step(job.pool)
                case fx.Refuse(rid, refusal, _):
                    self.jobs[rid].refusal = refusal
                    self.end(self.jobs[rid])
                case fx.Abort(rid, refusal):
                    job = self.jobs[rid]
                    job.refusal = refusal
                    self.at(self.now, lambda job=job: self.settle(job, finished=False))
                case fx.LoadPool(model):
                    self.at(self.now, lambda model=model: self.load(model))
        self._told += 1
        if self._told % CHECK_EVERY == 0:
            self.core.validate()

    def end(self, job: Job) -> None:
        assert job.ended_ns is None, "ended twice"
        job.ended_ns = self.now
        if job.on_end is not None:
            job.on_end(job)

    def settle(self, job: Job, *, finished: bool) -> None:
        if job.ended_ns is None:
            self.end(job)
            self.tell(ev.Settled(job.rid, job.made_tok, finished))

    def load(self, model: str) -> None:
        assert not any(engine.running for engine in self.engines.values())
        self.loads.append((self.now, model))
        old = [name for name, state in self.states.items() if state is PoolState.READY]
        self.states |= dict.fromkeys(old, PoolState.COLD)
        # The engine tells of the new one first; nothing may slip into the old one meanwhile.
        for name in (model, *old):
            self.change(name, PoolState.LOADING if name == model else PoolState.COLD)
        self.at(self.now + self.switch_ns, lambda: self.change(model, PoolState.READY))

    def change(self, name: str, state: PoolState) -> None:
        self.states[name] = state
        self.tell(ev.PoolChanged(self.spec(name)))

    def step(self, name: str) -> None:
        if name in self._stepping or not self.engines[name].running:
            return
        self._stepping.add(name)
        prompts, cost_ns = self.engines[name].plan()
        self.at(self.now + cost_ns, lambda: self.stepped(name, prompts))

    def stepped(self, name: str, prompts: dict[int, int]) -> None:
        engine = self.engines[name]
        for rid, tok in prompts.items():
            job = engine.running[rid]
            if job.ended_ns is not None:  # aborted during the step
                del engine.running[rid]
                self.tell(ev.SeatFreed(rid))
                continue
            job.prefilled_tok += tok
            if job.prefilled_tok < job.prompt_tok:
                self.count(job, tok)
                self.tell(ev.Prefilled(rid, job.prefilled_tok))
                continue
            job.made_tok += 1
            job.first_ns = job.first_ns or self.now
            self.count(job, tok + 1)
            self.tell(ev.Produced(rid, job.made_tok))
            if job.made_tok == job.output_tok:
                del engine.running[rid]
                self.settle(job, finished=True)
                self.tell(ev.SeatFreed(rid))
        self._stepping.discard(name)
        self.step(name)

    def count(self, job: Job, tok: int) -> None:
        self.computed[job.class_] = self.computed.get(job.class_, 0) + tok

    def run(self, until: Callable[[], bool]) -> None:
        """Until that holds; fails when nothing is left to happen."""
        while not until():
            self.turn()

    def turn(self) -> None:
        """The next thing happens."""
        wake_ns = self.core.next_wake_ns()
        if wake_ns is not None and (not self._due or wake_ns < self._due[0][0]):
            self.now = wake_ns
            self.tell(ev.Tick())
            return
        assert self._due, "nothing will ever happen again"
        self.now, _, what = heapq.heappop(self._due)
        what()

    def tokens(self) -> int:
        """Everything the engines have computed."""
        return sum(self.computed.values())

    def share(self, class_: str) -> float:
        """The part of all computed tokens that was this class's."""
        return self.computed.get(class_, 0) / self.tokens()

    def go_home(self) -> None:
        """All clients leave; afterwards nothing may be remembered."""
        self.leaving = True
        for job in sorted(self.jobs.values(), key=lambda job: -job.rid):
            self.cancel(job)
        self.run(lambda: not self._due)
        view = self.core.view(self.now)
        assert (view.in_flight, view.queued, view.queued_tok) == (0, 0, 0)
        assert all(pool.seats_used == 0 for pool in view.pools)
        assert all(pool.kv_tok_used == pool.unprefilled_tok == 0 for pool in view.pools)
        assert self.core._book.records == {}
        assert self.core.next_wake_ns() is None
        assert len(self.core._deadlines) == 0


@pytest.fixture
def box() -> type[Box]:
    """The box."""
    return Box
