"""A box in virtual time: the real core, engines with a cost per step, clients that come and go.

The engines take only what a grant lets them take, and fail the run when that is more than they can
hold. Nothing is told to the core within another event, as in the gate.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.sim.engine import Engine, Machine, Work
from tests.sim.job import Job

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolSpec,
    PoolState,
    RequestSpec,
    Resume,
)

SECOND = 10**9
FOREVER = 10**6 * SECOND

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


class Box:
    """The core, its engines, and a clock that jumps from one event to the next.

    `computed` and `served` count tokens that the engines have computed, by class and by principal.
    Every `check_every` events the invariants are checked, 0 never. `record` is given everything
    that the core was told, and what it said.
    """

    def __init__(
        self,
        classes: tuple[ClassSpec, ...],
        pools: Mapping[str, Machine],
        limits: GateLimits = LIMITS,
        *,
        one_loadable: bool = False,
        switch_ns: int = 5 * SECOND,
        check_every: int = CHECK_EVERY,
        record: Callable[[int, ev.Event, list[fx.Effect]], None] | None = None,
    ) -> None:
        first = next(iter(pools))
        self.states = {
            name: PoolState.COLD if one_loadable and name != first else PoolState.READY
            for name in pools
        }
        self.machines, self.switch_ns = pools, switch_ns
        self.check_every, self._record = check_every, record
        self.core = Controller(limits, classes, tuple(self.spec(name) for name in pools))
        self.ranks = {spec.name: spec.rank for spec in classes}
        self.jobs: dict[int, Job] = {}
        self.granted: list[Job] = []
        self.loads: list[tuple[int, str]] = []
        self.now = 0
        self.computed: dict[str, int] = {}
        self.served: dict[str, int] = {}
        self.leaving = False
        self.told = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._runs: dict[int, Job] = {}
        self._last_run = 0
        self._stepping: set[str] = set()
        self._taken: list[tuple[int, int, int]] = []
        self.engines = {
            name: Engine(machine, lambda rid: self.jobs[rid].output_tok, self)
            for name, machine in pools.items()
        }

    def spec(self, name: str) -> PoolSpec:
        """A pool as the core is told of it."""
        machine = self.machines[name]
        return PoolSpec(
            name, self.states[name], machine.capacity, self.switch_ns,
            keeps_prefix=machine.cache_tok > 0, identity=name,
        )  # fmt: skip

    # --- clients -------------------------------------------------------------------------------

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        """Let something happen then."""
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
        flow: str | None = None,
        ttft_ns: int | None = None,
        own: bool = False,
        timeout_ns: int | None = None,
        resume: Resume = Resume.NEVER,
        ticket: str | None = None,
        who: str | None = None,
    ) -> Job:
        """Send a request now. `on_end` is called when it is over, however it ends; `who` is whom
        its tokens are counted for, if the core is told somebody else."""
        rid = len(self.jobs) + 1
        spec = RequestSpec(
            rid,
            pool or next(iter(self.engines)),
            class_,
            principal,
            flow or principal,
            prompt_tok,
            output_tok if max_tok is None else max_tok,
            self.now,
            ttft_deadline_ns=None if ttft_ns is None else self.now + ttft_ns,
            ttft_is_own=own,
            deadline_ns=None if timeout_ns is None else self.now + timeout_ns,
            resume=resume,
            prompt_bytes=4 * prompt_tok,
            ticket=ticket,
        )
        job = self.jobs[rid] = Job(spec, min(output_tok, spec.max_tok), who or principal, on_end)
        self.tell(ev.Arrived(spec))
        return job

    def cancel(self, job: Job) -> None:
        """The client is gone. A running request leaves the engine at the next step."""
        if job.ended_ns is not None:
            return
        if job.run is None:
            self.end(job)
            self.tell(ev.Withdrawn(job.rid))
        else:
            self.settle(job, finished=False)

    def endless(
        self, class_: str, live: int, prompt_tok: int, output_tok: int, **more: Any
    ) -> None:
        """Keep `live` requests of that size in the box for ever."""
        self.backlog(live, lambda on_end: self.submit(
            class_, prompt_tok, output_tok, on_end=on_end, **more))  # fmt: skip

    def backlog(self, live: int, send: Callable[[Callable[[Job], None]], Job]) -> None:
        """Keep `live` requests in the box for ever; `send(on_end)` submits the next."""

        def again(_job: Job | None = None) -> None:
            # In a turn of its own: no event is told within another.
            self.at(self.now, lambda: None if self.leaving else void(send(again)))

        def void(_job: Job) -> None:
            return None

        for _ in range(live):
            send(again)

    # --- the world turns ------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        """Tell the core, and carry out what it says."""
        effects = self.core.handle(event, self.now)
        self.told += 1
        if self._record is not None:
            self._record(self.now, event, effects)
        if self.check_every and self.told % self.check_every == 0:
            self.core.validate()
        for effect in effects:
            match effect:
                case fx.Grant(rid):
                    self._granted(self.jobs[rid])
                case fx.Refuse(rid, refusal, _):
                    self.jobs[rid].refusal = refusal
                    self.end(self.jobs[rid])
                case fx.Preempt(rid):
                    job = self.jobs[rid]
                    assert job.run is not None, "stopped, and does not run"
                    self.engines[job.pool].stop(job.run)
                case fx.Abort(rid, refusal):
                    job = self.jobs[rid]
                    job.refusal = refusal
                    self.at(self.now, lambda job=job: self.settle(job, finished=False))
                case fx.LoadPool(model):
                    self.at(self.now, lambda model=model: self.load(model))

    def _granted(self, job: Job) -> None:
        job.granted_ns = self.now
        self.granted.append(job)
        assert self.states[job.pool] is PoolState.READY, "sent to a pool that is away"
        assert job.run is None, "granted, and runs"
        self._last_run += 1
        job.run = self._last_run
        self._runs[job.run] = job
        spec, kept_tok = job.spec, job.kept_tok
        cached_tok = self.engines[job.pool].take(
            Work(job.run, job.rid, spec.prompt_tok, spec.max_tok - kept_tok, kept_tok,
                 self.ranks[spec.class_], spec.principal)
        )  # fmt: skip
        job.computed_tok = cached_tok
        self._taken.append((job.run, spec.rid, cached_tok))
        if len(self._taken) == 1:
            self.at(self.now, self._accepted)
        self.step(job.pool)

    def _accepted(self) -> None:
        """The engines have counted what they were given."""
        taken, self._taken = self._taken, []
        for run, rid, cached_tok in taken:
            if self._runs[run].ended_ns is None:
                prompt_tok = self.jobs[rid].spec.prompt_tok
                self.tell(ev.Counted(rid, prompt_tok, cached_tok))

    def end(self, job: Job) -> None:
        """It is over for its client."""
        assert job.ended_ns is None, "ended twice"
        job.ended_ns = self.now
        if job.on_end is not None:
            job.on_end(job)

    def settle(self, job: Job, *, finished: bool) -> None:
        """Give its permit back; unless it finished, it leaves the engine at the next step."""
        if job.ended_ns is not None:
            return
        job.finished = finished
        if not finished:
            assert job.run is not None
            self.engines[job.pool].stop(job.run)
        self.end(job)
        self.tell(ev.Settled(job.rid, job.made_tok, finished))

    def load(self, model: str) -> None:
        """Put the loaded pool away and bring this one."""
        assert not any(engine.running for engine in self.engines.values())
        self.loads.append((self.now, model))
        old = [name for name, state in self.states.items() if state is PoolState.READY]
        self.states |= dict.fromkeys(old, PoolState.COLD)
        # The engine tells of the new one first; nothing may slip into the old one meanwhile.
        for name in (model, *old):
            self.change(name, PoolState.LOADING if name == model else PoolState.COLD)
        self.at(self.now + self.switch_ns, lambda: self.change(model, PoolState.READY))

    def change(self, name: str, state: PoolState) -> None:
        """A pool is now so."""
        self.states[name] = state
        self.tell(ev.PoolChanged(self.spec(name)))

    def step(self, name: str) -> None:
        """Let the engine go on if it stands still: from the end of this moment, so that everything
        that is granted in it takes part."""
        if name not in self._stepping:
            self._stepping.add(name)
            self.at(self.now, lambda: self._begin(name))

    def _begin(self, name: str) -> None:
        cost_ns = self.engines[name].begin()
        if cost_ns is None:
            self._stepping.discard(name)
        else:
            self.at(self.now + cost_ns, lambda: self._stepped(name))

    def _stepped(self, name: str) -> None:
        self.engines[name].end()
        self.at(self.now, lambda: self._begin(name))

    # --- what the engines say (`engine.Listener`) ------------------------------------------------

    def prefilled(self, id: int, computed_tok: int, tok: int) -> None:
        """More of a prompt is computed."""
        job = self._runs[id]
        self._count(job, tok, 0)
        if job.ended_ns is None and self.machines[job.pool].tells_prefill:
            self.tell(ev.Prefilled(job.rid, computed_tok))

    def produced(self, id: int, made_tok: int, tok: int) -> None:
        """There is one more token."""
        job = self._runs[id]
        self._count(job, tok, 1)
        if job.ended_ns is not None:
            return
        job.made_tok = job.kept_tok + made_tok
        if job.first_ns is None:
            job.first_ns = self.now
        elif job.last_ns is not None:
            job.gaps_ns.append(self.now - job.last_ns)
        job.last_ns = self.now
        self.tell(ev.Produced(job.rid, job.made_tok))

    def finished(self, id: int) -> None:
        """An answer is complete."""
        job = self._runs.pop(id)
        self.settle(job, finished=True)
        job.run = None
        self.tell(ev.SeatFreed(job.rid))

    def left(self, id: int) -> None:
        """A stopped request has left; one that is over for its client as well."""
        job = self._runs.pop(id)
        if job.ended_ns is None:
            self.tell(ev.Requeued(job.rid, job.lose()))
        else:
            job.run = None
            self.tell(ev.SeatFreed(job.rid))

    def _count(self, job: Job, tok: int, made: int) -> None:
        job.compute(tok, made)
        class_, principal = job.spec.class_, job.who
        self.computed[class_] = self.computed.get(class_, 0) + tok + made
        self.served[principal] = self.served.get(principal, 0) + tok + made

    # --- time -----------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Until that holds; fails when nothing is left to happen."""
        while not until():
            self.turn()

    def run_until(self, end_ns: int) -> None:
        """Everything that happens before `end_ns`; the clock stands there afterwards."""
        while self._next_ns() < end_ns:
            self.turn()
        self.now = end_ns

    def _next_ns(self) -> float:
        wake_ns = self.core.next_wake_ns()
        due_ns = self._due[0][0] if self._due else math.inf
        return due_ns if wake_ns is None else min(wake_ns, due_ns)

    def turn(self) -> None:
        """The next thing happens."""
        wake_ns = self.core.next_wake_ns()
        if wake_ns is not None and (not self._due or wake_ns < self._due[0][0]):
            self.now = max(self.now, wake_ns)
            self.tell(ev.Tick())
            return
        assert self._due, "nothing will ever happen again"
        self.now, _, what = heapq.heappop(self._due)
        what()

    # --- questions ------------------------------------------------------------------------------

    def tokens(self) -> int:
        """Everything the engines have computed."""
        return sum(self.computed.values())

    def share(self, class_: str) -> float:
        """The part of all computed tokens that was this class's."""
        return self.computed.get(class_, 0) / self.tokens()

    def of_class(self, class_: str) -> Iterator[Job]:
        """The requests of a class."""
        return (job for job in self.jobs.values() if job.spec.class_ == class_)

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
