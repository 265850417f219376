"""`python -m tests.sim calibrate`: what the real embedded engine costs, and whether the simulator
then says the same as it.

Two parts, in turn. *Fit*: steps of known sizes are run (`costs`). *Check*: people come at random,
as many at a time as there are seats, twice with the same arrivals, which is the noise; the same
arrivals are played in the simulator, and both say how long they waited. A machine is not always as
fast: each check is simulated at the pace of what was measured right before and after it.
"""

import asyncio
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from tests.sim.costs import Costs, Row, decoding, fit, middle, mixed, pace, reading
from tests.sim.engine import Machine
from tests.sim.figures import median, quantile
from tests.sim.profiles import HOST, host
from tests.sim.real import Arrival, Real, Seen, Served, Stepped
from tests.sim.run import standard
from tests.sim.tables import rows
from tests.sim.world import SECOND, Box

from onegate.bench import machine
from onegate.engines.base import EngineCapacity

# Processes whose use of the machine is the measurement's own.
OURS = {"calibrate": os.getpid()}

DECODE_TOK = 32
# Sequences that make a token in each step, and tokens of their prompts.
DECODING = ((1, 16), (2, 16), (4, 16), (8, 16), (16, 16), (1, 512), (4, 512))
PROMPTS_TOK = (16, 32, 64, 128, 256, 512, 1024)
# Sequences that make a token, and tokens of a prompt that comes meanwhile.
MIXED = ((1, 32), (4, 16), (4, 64), (4, 192), (12, 64))
REPEATS = 2

# People come as often as takes this part of what the engine can do.
CHECK_SEEDS, CHECK_S, CHECK_LOAD = (1, 2, 3), 45.0, 0.5
CHECK_PROMPT_TOK, CHECK_OUTPUT_TOK = (24, 512), (16, 96)
CHECK_QUANTILES = (0.25, 0.5, 0.75, 0.95)


async def observe(real: Real, step_tok: int, seats: int) -> list[Row]:
    """Steady decoding at several widths and lengths, prompts with nobody beside, and both."""
    found: list[Row] = []
    for seqs, prompt_tok in DECODING:
        if seqs <= seats:
            seen = await real.play([Arrival(0, prompt_tok, DECODE_TOK)] * seqs)
            read_tok = seqs * (prompt_tok + DECODE_TOK / 2)
            found.append(Row(decoding(seqs, read_tok), median(_steady_ns(seen))))
    for _ in range(REPEATS):
        for prompt_tok in PROMPTS_TOK:
            (one,) = await real.play([Arrival(0, prompt_tok, 1)])
            took_ns = one.pieces_ns[0] - one.arrived_ns
            found.append(Row(reading(prompt_tok, step_tok), took_ns))
        for seqs, prompt_tok in MIXED:
            if seqs < seats:
                read_tok = seqs * (16 + DECODE_TOK / 2)
                took_ns, after_ns = await _disturbed_ns(real, seqs, prompt_tok)
                found.append(Row(mixed(prompt_tok, seqs, read_tok), took_ns))
                found.append(Row(decoding(seqs, read_tok, change=True), after_ns))
    return found


def _steady_ns(seen: Sequence[Seen]) -> list[int]:
    """Gaps from where the last has begun to where the first ends: everybody is in every step."""
    begin, end = max(s.pieces_ns[0] for s in seen), min(s.pieces_ns[-1] for s in seen)
    return [
        after - before
        for s in seen
        for before, after in pairwise(s.pieces_ns)
        if begin <= before and after <= end
    ]


async def _disturbed_ns(real: Real, seqs: int, prompt_tok: int) -> tuple[float, float]:
    """The step in which a prompt comes to some who make tokens, and the next, without it."""
    seen = await real.play([Arrival(0, 16, DECODE_TOK)] * seqs, late=Arrival(0, prompt_tok, 1))
    found = []
    for one in seen:
        # In the first half others begin; after the last there is no next.
        late = one.pieces_ns[DECODE_TOK // 2 - 2 :]
        gaps_ns = [after - before for before, after in pairwise(late)]
        longest = max(range(len(gaps_ns) - 1), key=gaps_ns.__getitem__)
        found.append((gaps_ns[longest], gaps_ns[longest + 1]))
    return median(took_ns for took_ns, _ in found), median(after_ns for _, after_ns in found)


def arrivals(seed: int, costs: Costs, seats: int) -> list[Arrival]:
    """People who come at random, with prompts and answers of all lengths."""
    rng, found, at_s = Random(seed), [], 0.0
    prompt_tok, output_tok = (_mean(bounds) for bounds in (CHECK_PROMPT_TOK, CHECK_OUTPUT_TOK))
    each_ns = prompt_tok * costs.prompt_tok_ns + output_tok * (costs.step_ns / seats + costs.seq_ns)
    rate = CHECK_LOAD * SECOND / each_ns
    while (at_s := at_s + rng.expovariate(rate)) < CHECK_S:
        sizes = (round(low * (high / low) ** rng.random())
                 for low, high in (CHECK_PROMPT_TOK, CHECK_OUTPUT_TOK))  # fmt: skip
        found.append(Arrival(round(at_s * SECOND), *sizes))
    return found


def _mean(bounds: tuple[int, int]) -> float:
    """Of a size whose logarithm is uniform between those of the bounds."""
    low, high = bounds
    return (high - low) / math.log(high / low)


def play_simulated(asks: Sequence[Arrival], engine: Machine) -> list[Seen]:
    """The same in virtual time, first come first served: as there, only seats are bounded."""
    capacity = replace(engine.capacity, max_step_tok=None)
    engine = replace(engine, capacity=capacity, chunk_tok=engine.step_tok)
    setup = standard(engine)
    box = Box(setup.classes, {"m": engine}, setup.limits)
    for ask in asks:
        box.at(
            ask.at_ns,
            lambda ask=ask: box.submit("interactive", ask.prompt_tok, ask.output_tok),
        )
    jobs = box.jobs
    box.run(
        lambda: len(jobs) == len(asks) and all(job.ended_ns is not None for job in jobs.values())
    )
    found = []
    for job in box.jobs.values():
        assert job.first_ns is not None
        pieces = [job.first_ns]
        for gap_ns in job.gaps_ns:
            pieces.append(pieces[-1] + gap_ns)
        found.append(Seen(job.arrived_ns, pieces))
    return found


def waits_ms(seen: Sequence[Seen]) -> dict[str, list[float]]:
    """TTFT and ITL of everybody."""
    return {
        "TTFT": [(one.pieces_ns[0] - one.arrived_ns) / 1e6 for one in seen],
        "ITL": [
            (after - before) / 1e6 for one in seen for before, after in pairwise(one.pieces_ns)
        ],
    }


def compared(real: Sequence[Seen], again: Sequence[Seen], simulated: Sequence[Seen]) -> str:
    """A table of quantiles: real, the same once more for the noise, and simulated."""
    body = []
    first, second, ours = waits_ms(real), waits_ms(again), waits_ms(simulated)
    for name in ours:
        for q in CHECK_QUANTILES:
            before, after = quantile(first[name], q), quantile(second[name], q)
            measured, said = quantile(first[name] + second[name], q), quantile(ours[name], q)
            body.append((f"{name} p{100 * q:.0f} ms", f"{measured:.1f}", f"{after / before:.2f}",
                         f"{said:.1f}", f"{said / measured:.2f}"))  # fmt: skip
    return rows(("", "real", "again ÷ first", "simulated", "simulated ÷ real"), body)


def fitted(found: Sequence[Row], costs: Costs) -> str:
    """A table of what was run, how long it took, and how long the costs say."""
    body = []
    for shape, took_ns in found:
        said_ns = costs.of(shape)
        what = (f"{shape.steps:g} steps of {shape.seqs / shape.steps:g} sequences, "
                f"{shape.prompt_tok:g} prompt tokens, {shape.read_tok:g} before"
                f"{', after another' * bool(shape.change)}")  # fmt: skip
        body.append((what, f"{took_ns / 1e6:.1f}", f"{said_ns / 1e6:.1f}",
                     f"{said_ns / took_ns:.2f}"))  # fmt: skip
    return rows(("", "measured ms", "fitted ms", "÷"), body)


def write(capacity: EngineCapacity, step_tok: int, costs: Costs) -> None:
    """Keep what was measured, for the profile `host`."""
    HOST.write_text(
        "# What the embedded engine costs; written by `python -m tests.sim calibrate`.\n\n"
        "[capacity]\n"
        f"max_seqs = {capacity.max_seqs}\n"
        f"max_context_tok = {capacity.max_context_tok}\n"
        f'reservation = "{capacity.reservation.value}"\n'
        f"kv_tok = {capacity.kv_tok}\n"
        f"max_step_tok = {step_tok}\n"
        f"block_tok = {capacity.block_tok}\n\n"
        "[cost]  # nanoseconds\n"
        + "".join(f"{name} = {cost:.0f}\n" for name, cost in costs._asdict().items())
        + "by_rank = false\n",
        encoding="utf-8",
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """The same arrivals played twice, and what was measured right before and after."""

    asks: list[Arrival]
    first: list[Seen]
    again: list[Seen]
    around: list[Row]


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was seen of the real engine; `others` is the part of the machine that other
    programs used meanwhile."""

    capacity: EngineCapacity
    found: list[Row]
    checks: list[Checked]
    others: float | None


async def _measure(real: Real) -> Measured:
    """On the real engine; takes about seven minutes."""
    try:
        capacity = await real.open()
        began = machine.sample(OURS)
        step_tok = capacity.max_step_tok
        assert step_tok is not None
        await real.play([Arrival(0, 256, 16)])  # the first one warms it up
        before = await observe(real, step_tok, capacity.max_seqs)
        found, checks = [*before], []
        for seed in CHECK_SEEDS:
            asks = arrivals(seed, fit(middle(before)), capacity.max_seqs)
            first, again = await real.play(asks), await real.play(asks)
            after = await observe(real, step_tok, capacity.max_seqs)
            checks.append(Checked(asks, first, again, [*before, *after]))
            found, before = [*found, *after], after
        use = machine.use(began, machine.sample(OURS), machine.facts().cores, OURS)
    finally:
        await real.aclose()
    return Measured(capacity, found, checks, use.foreign_share)


def calibrate(*, stepped: bool) -> int:
    """Measure, write `host.toml`, and print how well the simulator tells what was seen; that goes
    into RESULTS.md, too. `stepped`: by the processor's clock, for a machine that is not quiet."""
    # Not before it is needed: the tests of the arithmetic do without a daemon.
    from tests.perf.results import keep, measured

    seen = asyncio.run(_measure(Stepped() if stepped else Served()))
    clock = "the processor's" if stepped else "the wall's"
    capacity, checks = seen.capacity, seen.checks
    found = middle(seen.found)
    costs = fit(found)
    assert capacity.max_step_tok is not None
    write(capacity, capacity.max_step_tok, costs)
    paces = [pace(check.around, costs) for check in checks]
    simulated = [
        one
        for check, took in zip(checks, paces, strict=True)
        for one in play_simulated(check.asks, replace(host(), **costs.times(took)._asdict()))
    ]
    first = [one for check in checks for one in check.first]
    again = [one for check in checks for one in check.again]
    said = ", ".join(f"{took:.2f}" for took in paces)
    pages = (
        measured(
            f"{len(first)} requests, twice, by {clock} clock; other programs used "
            f"{seen.others or 0:.0%} of the machine"
        ),
        compared(first, again, simulated),
        "Steps of known sizes, and what the fitted costs say of them:",
        fitted(found, costs),
        f"How long steps took around each check, in times of that: {said}.",
    )
    text = "\n\n".join(pages)
    print(text)  # noqa: T201
    keep("The simulator against the embedded engine", text)
    return 0
