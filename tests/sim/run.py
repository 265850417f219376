"""Runs that are compared: alone, with batch under strict priority, with everything."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.sim.clients import Crowd, Retry
from tests.sim.engine import Machine
from tests.sim.figures import Figures, measure
from tests.sim.profiles import CACHE_TOK, PROFILES
from tests.sim.variants import Setup, without
from tests.sim.workload import CHAT, Ask, papers, people
from tests.sim.world import FOREVER, LIMITS, SECOND, Box

from onegate.admission.model import ClassSpec, Resume

# Batch requests that wait while every seat is taken.
WAITING = 16


def standard(machine: Machine) -> Setup:
    """The classes as they are shipped, with room in every queue, so that order alone is measured,
    and permits for more than there are seats."""
    limits = replace(LIMITS, max_in_flight=2 * machine.capacity.max_seqs + 16)
    room = {"max_queued_tok": 10**8, "per_principal_share": 1.0, "safety_timeout_ns": FOREVER}
    return Setup(
        limits,
        (
            ClassSpec("interactive", 0, **room, preempts=True),
            ClassSpec("loop", 1, **room, floor_share=0.05, preemptible=True,
                      preempt_grace_ns=2 * SECOND),
            ClassSpec("batch", 2, **room, floor_share=0.05, preemptible=True),
        ),
    )  # fmt: skip


# Of a request of people, where one length stands for all.
PROMPT_TOK = 1020
# The longest of all prompts, and an answer.
LONGEST_TOK = 16_384


def capacity_per_s(machine: Machine) -> float:
    """Requests of `PROMPT_TOK` and a conversation's answer that the machine can do in a second
    with every seat taken."""
    rng = Random(0)
    output_tok = sum(CHAT.output.draw(rng) for _ in range(4000)) / 4000
    seats = machine.capacity.max_seqs
    decode_ns = output_tok * machine.cost_ns(0, seats) / seats
    return SECOND / (PROMPT_TOK * machine.prompt_tok_ns + decode_ns)


def shorter(asks: Iterable[Ask], machine: Machine) -> Iterator[Ask]:
    """The same with lengths that the machine's context holds."""
    part = -(-LONGEST_TOK // machine.capacity.max_context_tok)
    for ask in asks:
        lengths = (ask.prompt_tok, ask.output_tok, ask.max_tok)
        prompt_tok, output_tok, max_tok = (-(-tok // part) for tok in lengths)
        yield replace(ask, prompt_tok=prompt_tok, output_tok=output_tok, max_tok=max_tok)


def people_for(machine: Machine, seed: int, seconds: float) -> list[Ask]:
    """Chat and code; fewer of them on a machine of which they would take more than of `slots`."""
    load = min(1.0, _part_taken(PROFILES["slots"]()) / _part_taken(machine))
    return list(shorter(people(seed, seconds=seconds, load=load), machine))


def _part_taken(machine: Machine) -> float:
    """The part of the machine's time that chat and code take, with every seat in use."""
    seconds, seats = 2000.0, machine.capacity.max_seqs
    step_ns = machine.cost_ns(0, seats)
    busy_ns = sum(
        ask.prompt_tok * machine.prompt_tok_ns + ask.output_tok * step_ns / seats
        for ask in shorter(people(0, seconds=seconds), machine)
    )
    return busy_ns / (seconds * SECOND)


@dataclass(frozen=True, slots=True)
class Case:
    """One run: who, on what, for how long."""

    machine: Machine
    setup: Setup
    asks: Sequence[Ask]
    seed: int
    seconds: float
    batch: bool = True
    resume: Resume = Resume.EXACT
    retry: Retry = Retry.NEVER

    def play(self, *, check_every: int = 0) -> tuple[Box, Crowd]:
        """Let it happen."""
        setup = self.setup
        box = Box(setup.classes, {"m": self.machine}, setup.limits, check_every=check_every)
        crowd = Crowd(box, retry=self.retry, one_principal=setup.one_principal)
        if not setup.tickets and self.retry is Retry.HONOUR:
            crowd.retry = Retry.PLAIN
        crowd.come(self.asks)
        if self.batch:
            live = self.machine.capacity.max_seqs + WAITING
            crowd.backlog(live, shorter(papers(self.seed, self.resume), self.machine))
        box.run_until(round(self.seconds * SECOND))
        return box, crowd


@dataclass(frozen=True, slots=True)
class Protection:
    """A run beside the same arrivals alone, and beside strict priority without preemption."""

    run: Figures
    alone: Figures
    strict: Figures

    @property
    def inflation(self) -> tuple[float, ...]:
        """TTFT ÷ the same arrivals alone, at each quantile."""
        pairs = zip(self.run.ttft_ms, self.alone.ttft_ms, strict=True)
        return tuple(ours / theirs for ours, theirs in pairs)

    @property
    def kept(self) -> float:
        """Batch tokens ÷ those of strict priority."""
        return self.run.batch_tok / self.strict.batch_tok


def machine_of(profile: str, variant: str) -> tuple[Machine, Resume]:
    """A profile and how its requests resume: `restart`, `exact` (with a prefix cache) or
    `exact-cold` (without)."""
    machine = PROFILES[profile]()
    if variant == "exact":
        return machine.with_cache(CACHE_TOK), Resume.EXACT
    return machine, Resume.RESTART if variant == "restart" else Resume.EXACT


def protection(
    profile: str,
    variant: str,
    seed: int,
    *,
    seconds: float,
    off: Collection[str] = (),
    change: Callable[[Setup], Setup] = lambda setup: setup,
) -> Protection:
    """Chat and code against an endless batch; `change` makes the setup another one."""
    machine, resume = machine_of(profile, variant)
    setup = change(standard(machine))
    case = Case(machine, without(setup, off), people_for(machine, seed, seconds), seed, seconds,
                resume=resume)  # fmt: skip
    strict = replace(case, setup=without(setup, ("preempt",)))
    alone = replace(case, batch=False)
    return Protection(*(measure(one.play()[0]) for one in (case, alone, strict)))
