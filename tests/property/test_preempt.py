"""Stopping one for another: as few as have to be, as many as help, and everybody still ends."""

from collections import deque
from dataclasses import dataclass, field
from itertools import product
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    RequestSpec,
    Reservation,
    Resume,
)
from onegate.admission.preempt import SURE, _sure
from onegate.admission.protect import BURST_TOK, Allowance

S = 10**9
MS = 10**6
CLASSES = (
    ClassSpec("chat", 0, 10**6, 1.0, 9000 * S, preempts=True),
    ClassSpec("batch", 1, 10**6, 1.0, 9000 * S, floor_share=0.05, preemptible=True),
)


@given(st.lists(st.floats(0, 1), max_size=6), st.integers(0, 6))
@settings(deadline=None)
def test_so_many_seats_come_free_as_are_sure_to(ends: list[float], most: int) -> None:
    def at_least(n: int) -> float:
        return sum(
            prod(p if ended else 1 - p for p, ended in zip(ends, outcome, strict=True))
            for outcome in product((False, True), repeat=len(ends))
            if sum(outcome) >= n
        )

    sure = _sure(ends, most)
    assert sure <= min(most, len(ends))
    assert all(at_least(n) >= SURE - 1e-9 for n in range(1, sure + 1))
    if sure < min(most, len(ends)):
        assert at_least(sure + 1) < SURE + 1e-9


@given(
    st.floats(0, 1), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), max_size=80)
)
@settings(deadline=None)
def test_what_is_computed_again_stays_within_its_share(
    share: float, told: list[tuple[int, int]]
) -> None:
    allowance, computed, again = Allowance(share), 0, 0
    for made, lost in told:
        allowance.earn(made)
        computed += made
        if allowance.allows(lost):
            allowance.spend(lost)
            again += lost
    assert again <= BURST_TOK + share * computed + 1e-6 * again


@dataclass
class Running:
    """What the engine knows of one: what is left to prefill, what it has made and will make."""

    spec: RequestSpec
    length: int
    left: int = 0
    output: int = 0
    computed: int = 0
    stops: int = 0


@dataclass
class Engine:
    """One token a step for everybody who is prefilled; a prompt of any size takes one step."""

    core: Controller
    step_ns: int = 10 * MS
    now_ns: int = S
    jobs: dict[int, Running] = field(default_factory=dict)
    runs: dict[int, Running] = field(default_factory=dict)
    stopping: deque[int] = field(default_factory=deque)
    waits: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    rid: int = 0

    def comes(self, class_: str, prompt: int, length: int, resume: Resume) -> int:
        self.rid += 1
        spec = RequestSpec(
            self.rid, "m", class_, class_, class_, prompt, length, self.now_ns, resume=resume
        )
        self.jobs[self.rid] = Running(spec, length)
        self.tell(ev.Arrived(spec))
        return self.rid

    def tell(self, event: ev.Event) -> None:
        for effect in self.core.handle(event, self.now_ns):
            match effect:
                case fx.Grant(rid):
                    job = self.runs[rid] = self.jobs[rid]
                    job.left = job.spec.prompt_tok + job.output
                    self.waits.setdefault(rid, self.now_ns - job.spec.arrived_ns)
                case fx.Preempt(rid):
                    assert rid in self.runs
                    assert rid not in self.stopping
                    assert self.jobs[rid].spec.class_ == "batch"
                    self.stopping.append(rid)
                case fx.Refuse() | fx.Abort() | fx.LoadPool():
                    raise AssertionError(effect)
                case fx.Queue():
                    pass
        if not isinstance(event, ev.Produced):
            self.core.validate()

    def step(self) -> None:
        """Everybody goes on by one; then who was told to stop has stopped."""
        self.now_ns += self.step_ns
        wake_ns = self.core.next_wake_ns()
        if wake_ns is not None and wake_ns <= self.now_ns:
            self.tell(ev.Tick())
        for rid, job in list(self.runs.items()):
            if job.left:
                job.computed += job.left
                job.left = 0
            job.output += 1
            job.computed += 1
            self.tell(ev.Produced(rid, job.output))
            if job.output >= job.length:
                del self.runs[rid]
                if rid in self.stopping:
                    self.stopping.remove(rid)
                self.done.add(rid)
                self.tell(ev.Settled(rid, job.output, True))
                self.tell(ev.SeatFreed(rid))
        while self.stopping:
            rid = self.stopping.popleft()
            job = self.runs.pop(rid)
            job.stops += 1
            job.output = job.output if job.spec.resume is Resume.EXACT else 0
            self.tell(ev.Requeued(rid, job.output))


def engine(seats: int, *, keeps_prefix: bool = False) -> Engine:
    limits = GateLimits(1000, 10**7, 10**6, 0, 30 * S, 200)
    capacity = PoolCapacity(seats, 10**6, Reservation.PER_SLOT)
    pool = PoolSpec("m", PoolState.READY, capacity, keeps_prefix=keeps_prefix)
    return Engine(Controller(limits, CLASSES, (pool,)))


@given(
    st.integers(1, 2),
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 120)), min_size=1, max_size=3),
    st.integers(20, 40),
    st.sampled_from((Resume.RESTART, Resume.EXACT, Resume.NEVER)),
)
@settings(max_examples=15, deadline=None)
def test_every_job_ends_beside_constant_chat(
    seats: int, jobs: list[tuple[int, int]], chat: int, resume: Resume
) -> None:
    """Somebody always waits for each seat, and the night's work is done nevertheless."""
    box = engine(seats)
    batch = [box.comes("batch", prompt, length, resume) for prompt, length in jobs]
    chats = [box.comes("chat", 10, chat, Resume.NEVER) for _ in range(seats + 1)]
    for _ in range(20_000):
        box.step()
        for rid in [rid for rid in chats if rid in box.done]:
            chats.remove(rid)
            chats.append(box.comes("chat", 10, chat, Resume.NEVER))
        if box.done.issuperset(batch):
            break
    assert box.done.issuperset(batch), "a job is stopped for ever"
    for rid in batch:
        job = box.jobs[rid]
        size_tok = job.spec.prompt_tok + job.length
        assert job.computed >= size_tok
        assert resume is not Resume.NEVER or (job.stops, job.computed) == (0, size_tok)


@given(
    st.integers(1, 4),
    st.sampled_from((Resume.RESTART, Resume.EXACT, Resume.UNSEEN)),
    st.integers(0, 30),
    st.booleans(),
)
@settings(deadline=None)
def test_a_person_waits_for_one_step_where_nothing_is_known(
    seats: int, resume: Resume, age: int, keeps_prefix: bool
) -> None:
    """All seats are taken by work that may be stopped; it has shown output from its first step."""
    box = engine(seats, keeps_prefix=keeps_prefix)
    for _ in range(seats):
        box.comes("batch", 10, 5000, resume)
    for _ in range(age):
        box.step()
    person = box.comes("chat", 10, 5, Resume.NEVER)
    stoppable = resume is not Resume.UNSEEN or age == 0
    box.step()
    if stoppable and age < 16:  # until then no pace is known
        assert box.waits.get(person, 10**18) <= box.step_ns
        assert sum(job.stops for job in box.jobs.values()) == 1
    if not stoppable:
        assert person not in box.waits
        assert not any(job.stops for job in box.jobs.values())


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 4), st.integers(0, 15))
@settings(deadline=None)
def test_no_more_are_stopped_than_wait(seats: int, batch: int, people: int, age: int) -> None:
    box = engine(seats)
    for _ in range(batch):
        box.comes("batch", 10, 5000, Resume.RESTART)
    for _ in range(age):
        box.step()
    persons = [box.comes("chat", 10, 5, Resume.NEVER) for _ in range(people)]
    short = max(0, people - max(0, seats - batch))
    assert len(box.stopping) == min(short, batch, seats)
    box.step()
    # The seats went to those for whom they were made free.
    assert sum(rid in box.waits for rid in persons) == min(people, seats)


@given(st.integers(1, 30), st.booleans())
@settings(deadline=None)
def test_who_finishes_first_has_finished(age: int, gone: bool) -> None:
    """Told to stop, it ends in that very step, or its client leaves."""
    box = engine(1)
    job = box.comes("batch", 10, 5000, Resume.EXACT)
    for _ in range(age):
        box.step()
    person = box.comes("chat", 10, 5, Resume.NEVER)
    if job not in box.stopping:
        return
    if gone:
        box.tell(ev.Withdrawn(job))  # only what waits can be withdrawn
    else:
        box.tell(ev.Produced(job, box.jobs[job].output + 1))
    box.stopping.clear()
    del box.runs[job]
    box.tell(ev.Settled(job, box.jobs[job].output + 1, finished=not gone))
    box.tell(ev.SeatFreed(job))
    assert person in box.runs
    assert job not in box.core._book.records
    assert box.core._book.pools["m"].stopping == 0
    assert box.core._book.pools["m"].kept == []


@given(st.integers(1, 3), st.sampled_from((Resume.RESTART, Resume.EXACT)))
@settings(deadline=None)
def test_a_seat_that_was_made_free_is_not_taken_by_a_floor(seats: int, resume: Resume) -> None:
    """However much is owed to the class of the one that was stopped."""
    box = engine(seats)
    for _ in range(seats + 2):
        box.comes("batch", 10, 5000, resume)
    person = box.comes("chat", 10, 5, Resume.NEVER)
    assert len(box.stopping) == 1
    box.core._book.floors["batch"].credit_tok = 10.0**6
    rid = box.stopping.popleft()
    del box.runs[rid]
    box.tell(ev.Requeued(rid, 0))
    assert person in box.runs


@given(st.lists(st.sampled_from(tuple(Resume)), min_size=1, max_size=3), st.booleans())
@settings(deadline=None)
def test_a_model_is_put_aside_only_if_all_of_its_work_can_be_stopped(
    resumes: list[Resume], by_floor: bool
) -> None:
    """Also what a floor has begun, which has a quantum to itself."""
    limits = GateLimits(1000, 10**7, 10**6, 0, 30 * S, 200)
    capacity = PoolCapacity(4, 10**6, Reservation.PER_SLOT)
    pools = (
        PoolSpec("m", PoolState.READY, capacity),
        PoolSpec("other", PoolState.COLD, capacity, 5 * S),
    )
    core = Controller(limits, CLASSES, pools)
    for rid, resume in enumerate(resumes):
        spec = RequestSpec(rid, "m", "batch", "p", "p", 10, 100, S, resume=resume)
        core.handle(ev.Arrived(spec), S)
        core.handle(ev.Produced(rid, 1), S)
    if by_floor:
        core._book.records[0].by_floor, core._book.records[0].prepaid_tok = True, 50
    effects = core.handle(ev.Arrived(RequestSpec(99, "other", "chat", "c", "c", 10, 10, S)), S)
    stopped = {effect.rid for effect in effects if isinstance(effect, fx.Preempt)}
    all_may = all(resume in (Resume.RESTART, Resume.EXACT) for resume in resumes)
    assert stopped == (set(range(len(resumes))) if all_may and not by_floor else set())
