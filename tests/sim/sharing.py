"""Who gets how much: floors, principals, jobs that must end, hints that others cannot move."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from random import Random

from tests.sim.clients import Crowd
from tests.sim.figures import Figures, measure, quantile
from tests.sim.job import Job
from tests.sim.profiles import PROFILES
from tests.sim.run import LONGEST_TOK, capacity_per_s, people_for, standard
from tests.sim.variants import without
from tests.sim.workload import CHAT, Ask, stream
from tests.sim.world import SECOND, Box

from onegate.admission.model import Resume
from onegate.admission.records import queue_cost

LONG = (4000, 1500)
# All of the gate's queue; its largest request is a quarter of it.
FULL_TOK = 4 * LONGEST_TOK


@dataclass(frozen=True, slots=True)
class LongJobs:
    """Restart-only jobs beside chat that never stops."""

    jobs: int
    finished: int
    seconds: float
    chat_p95_ms: float


def chatter(class_: str, rng: Random) -> Callable[[Box, Callable[[Job], None]], Job]:
    """Conversation that goes on as soon as it has its answer."""

    def send(box: Box, on_end: Callable[[Job], None]) -> Job:
        who = f"u{rng.randrange(5)}"
        return box.submit(
            class_, CHAT.prompt.draw(rng), CHAT.output.draw(rng), max_tok=1024,
            principal=who, on_end=on_end,
        )  # fmt: skip

    return send


def long_jobs(seats: int, seed: int, *, jobs: int = 4, off: Collection[str] = ()) -> LongJobs:
    """Until every job is done, or a time has gone by in which the floor alone had done them
    several times over."""
    machine = PROFILES[f"slots-{seats}"]()
    setup = without(standard(machine), off)
    box = Box(setup.classes, {"m": machine}, setup.limits, check_every=0)
    send = chatter("interactive", Random(f"chatter {seed}"))
    box.backlog(2 * seats, lambda on_end: send(box, on_end))
    long = [box.submit("batch", *LONG, principal="b", resume=Resume.RESTART) for _ in range(jobs)]
    # A floor of 5 % of some 600 tokens a second and seat.
    most_ns = round(3 * jobs * sum(LONG) / (0.05 * 600 * seats) * SECOND)
    while any(job.ended_ns is None for job in long) and box.now < most_ns:
        box.turn()
    ttft_ns = [job.ttft_ns for job in box.of_class("interactive") if job.ttft_ns is not None]
    return LongJobs(
        jobs,
        sum(job.finished for job in long),
        box.now / SECOND,
        quantile(ttft_ns, 0.95) / 1e6,
    )


def floor_share(profile: str, seed: int, *, seconds: float, off: Collection[str] = ()) -> Figures:
    """More people than seats, all the time, and batch that would like some too."""
    machine = PROFILES[profile]()
    setup = without(standard(machine), off)
    box = Box(setup.classes, {"m": machine}, setup.limits, check_every=0)
    seats, rng = machine.capacity.max_seqs, Random(f"floor {seed}")
    send = chatter("interactive", rng)
    box.backlog(2 * seats, lambda on_end: send(box, on_end))
    night = chatter("batch", rng)
    box.backlog(2 * seats, lambda on_end: night(box, on_end))
    box.run_until(round(seconds * SECOND))
    return measure(box)


def let_in(profile: str, seed: int, *, seconds: float, off: Collection[str] = ()) -> float:
    """The part of people who are let in at once while more batch comes than the gate has room
    for."""
    machine = PROFILES[profile]()
    setup = without(standard(machine).gate(max_queued_tok=FULL_TOK), off)
    box = Box(setup.classes, {"m": machine}, setup.limits, check_every=0)
    rate = 2 * capacity_per_s(machine)
    night = stream(CHAT, seed, seconds=seconds, rate=rate, name="b", class_="batch")
    Crowd(box).come([*people_for(machine, seed, seconds), *night])
    box.run_until(round(seconds * SECOND))
    persons = list(box.of_class("interactive"))
    return sum(job.refusal is None for job in persons) / len(persons)


def two_principals(
    profile: str, seed: int, *, seconds: float = 60.0, off: Collection[str] = ()
) -> float:
    """One asks with ten times as many requests as the other; returns the smaller one's tokens ÷ an
    equal share, over the time in which both wait."""
    machine = PROFILES[profile]()
    setup = without(standard(machine), off)
    box = Box(setup.classes, {"m": machine}, setup.limits, check_every=0)
    crowd = Crowd(box, one_principal=setup.one_principal)
    rng = Random(f"two {seed}")

    def asks(who: str) -> Iterator[Ask]:
        while True:
            yield Ask(0, "batch", who, who, CHAT.prompt.draw(rng), CHAT.output.draw(rng), 1024)

    few = machine.capacity.max_seqs
    crowd.backlog(10 * few, asks("many"))
    crowd.backlog(few, asks("few"))
    # The box was full of the first one's before the second came.
    box.run_until(10 * SECOND)
    before = dict(box.served)
    box.run_until(round((10 + seconds) * SECOND))
    got = {who: box.served.get(who, 0) - before.get(who, 0) for who in ("many", "few")}
    return 2 * min(got.values()) / sum(got.values())


def pushed_back(times: int = 10_000, off: Collection[str] = ()) -> tuple[float, float]:
    """One principal is refused very often. Returns by how much another's hint has moved, and the
    time in which the first one's share of the queue drains: the most that it may. In seconds."""
    machine = PROFILES["slots"]()
    setup = standard(machine).each_class(max_queued_tok=32_768, per_principal_share=0.5)
    setup = without(setup, off)
    box = Box(setup.classes, {"m": machine}, setup.limits, check_every=0)
    seats, size = machine.capacity.max_seqs, queue_cost(machine.capacity, 1020, 1024)
    for user in range(seats + 32_768 // size):
        # One after the other, so that nobody is refused: the queue is full of them, and no more.
        box.run_until(user * SECOND // 4)
        box.endless("interactive", 1, 1020, 200, max_tok=1024, principal=f"u{user}")
    box.run_until(30 * SECOND)

    def hint_ns() -> int | None:
        """What another one would be told now; None when there is room."""
        verdict = box.core.ask(
            pool="m", class_="interactive", principal="other", prompt_tok=1020, max_tok=1024,
            now_ns=box.now,
        )  # fmt: skip
        return None if verdict.refusal is None else verdict.refusal.retry_after_ns

    box.run(lambda: hint_ns() is not None)
    before_ns = hint_ns()
    for _ in range(times):
        job = box.submit("interactive", 1020, 100, max_tok=1024, principal="greedy")
        assert job.refusal is not None
    after_ns = hint_ns()
    rate = box.core._book.queues["interactive"].rate.tok_per_ns(box.now)
    assert before_ns is not None
    assert after_ns is not None
    assert rate is not None
    return (after_ns - before_ns) / SECOND, 0.5 * 32_768 / rate / SECOND
