"""`python -m tests.sim calibrate`: what the real embedded engine costs, and whether the simulator
then says the same as it.

Two parts. *Fit*: sequences of known sizes are run, and their times are laid against a line,

    time = steps · step_ns + steps · sequences · seq_ns
         + prompt tokens · prompt_tok_ns + pairs of them · attend_ns

by least squares of relative errors. *Check*: people come at random, as many at a time as there are
seats; the same arrivals are played in the simulator, and both say how long they waited.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from tests.sim.figures import median, quantile
from tests.sim.profiles import HOST, host
from tests.sim.run import standard
from tests.sim.tables import rows
from tests.sim.world import SECOND, Box

from onegate.clock import monotonic_ns
from onegate.config import EngineConfig
from onegate.engines.base import (
    Engine,
    EngineCapacity,
    EngineChunk,
    EngineEvent,
    EngineRequest,
    PoolChanged,
    PoolState,
    SeatFreed,
)
from onegate.engines.registry import build_engine
from onegate.protocol.content import Params

CONFIG = EngineConfig(kind="openvino", prefix_cache=False)
# Any tokens do: the model computes as much for one as for another.
FIRST_TOK, LAST_TOK = 1000, 40_000
READY_S = 120.0

DECODE_SEQS = (1, 2, 4, 8, 16)
DECODE_TOK = 32
PROMPTS_TOK = (32, 128, 256, 512, 1024)
REPEATS = 2

# People come as often as takes this part of what the engine can do.
CHECK_SEEDS, CHECK_S, CHECK_LOAD = (1, 2), 30.0, 0.6
CHECK_PROMPT_TOK, CHECK_OUTPUT_TOK = (32, 1024), (8, 96)


@dataclass(slots=True)
class Seen:
    """One request on either engine: nanoseconds from its arrival, and of each token."""

    arrived_ns: int
    pieces_ns: list[int]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of the check."""

    at_ns: int
    prompt_tok: int
    output_tok: int


class Real:
    """The embedded engine, first come first served, as many as there are seats."""

    def __init__(self) -> None:
        self._engine: Engine = build_engine(CONFIG, log=lambda line: None, crashed=self._crashed)
        self._rng = Random(1)
        self._last_id = 0
        self._freed: dict[int, asyncio.Event] = {}
        self._seats = asyncio.Semaphore(1)
        self._changed = asyncio.Event()
        self.model = ""

    async def open(self) -> EngineCapacity:
        """Start it and wait until its model is loaded."""
        await self._engine.start(self._hear)
        async with asyncio.timeout(READY_S):
            while not (ready := [p for p in self._engine.pools() if p.state is PoolState.READY]):
                await self._changed.wait()
                self._changed.clear()
        self.model = ready[0].model
        self._seats = asyncio.Semaphore(ready[0].capacity.max_seqs)
        return ready[0].capacity

    async def run(self, prompt_tok: int, output_tok: int) -> Seen:
        """Run one request of that size and note when its tokens came."""
        self._last_id += 1
        id, seen = self._last_id, Seen(monotonic_ns(), [])
        async with self._seats:
            freed = self._freed[id] = asyncio.Event()
            items = self._engine.generate(
                EngineRequest(
                    id=id,
                    model=self.model,
                    prompt_tok_ids=[
                        self._rng.randint(FIRST_TOK, LAST_TOK) for _ in range(prompt_tok)
                    ],
                    max_tokens=output_tok,
                    params=Params(temperature=0.0, ignore_eos=True),
                )
            )
            async for item in items:
                if isinstance(item, EngineChunk):
                    seen.pieces_ns += [monotonic_ns()] * item.n_tok
            await freed.wait()
        return seen

    async def aclose(self) -> None:
        """Stop it."""
        await self._engine.aclose(10.0)

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, SeatFreed):
            self._freed.pop(event.id).set()
        elif isinstance(event, PoolChanged):
            self._changed.set()

    @staticmethod
    def _crashed(name: str, error: BaseException) -> None:
        raise error


# A row of the fit: steps, steps · sequences, prompt tokens, pairs of them, and what it took.
Row = tuple[float, float, float, float, float]
Costs = tuple[float, float, float, float]


async def observe(real: Real, step_tok: int, seats: int) -> list[Row]:
    """Steady decoding at several widths, and prompts of several lengths with nobody beside."""
    found: list[Row] = []
    for seqs in (n for n in DECODE_SEQS if n <= seats):
        seen = await asyncio.gather(*(real.run(16, DECODE_TOK) for _ in range(seqs)))
        # From where the last has begun to where the first ends, everybody is in every step.
        begin, end = max(s.pieces_ns[0] for s in seen), min(s.pieces_ns[-1] for s in seen)
        gaps = [
            after - before
            for s in seen
            for before, after in pairwise(s.pieces_ns)
            if begin <= before and after <= end
        ]
        found.append((1, seqs, 0, 0, median(gaps)))
    for prompt_tok in PROMPTS_TOK:
        times = []
        for _ in range(REPEATS):
            seen = await real.run(prompt_tok, 1)
            times.append(seen.pieces_ns[0] - seen.arrived_ns)
        steps = -(-prompt_tok // step_tok)
        found.append((steps, steps, prompt_tok, prompt_tok**2 / 2, median(times)))
    return found


def middle(found: Sequence[Row]) -> list[Row]:
    """Of rows that measure the same, the one in the middle: a machine is busy at times."""
    shapes = dict.fromkeys(row[:4] for row in found)
    return [(*shape, median(row[4] for row in found if row[:4] == shape)) for shape in shapes]


def fit(found: Sequence[Row]) -> Costs:
    """The costs, by least squares of relative errors; none is negative."""
    free = [0, 1, 2, 3]
    while True:
        normal = [[sum(row[i] * row[j] / row[4] ** 2 for row in found) for j in free] for i in free]
        right = [sum(row[i] / row[4] for row in found) for i in free]
        solved = solve(normal, right)
        if min(solved) >= 0:
            costs = [0.0] * 4
            for place, cost in zip(free, solved, strict=True):
                costs[place] = cost
            return costs[0], costs[1], costs[2], costs[3]
        del free[solved.index(min(solved))]


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots; the matrix is small and not singular."""
    size = len(right)
    lines = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda line: abs(lines[line][column]))
        lines[column], lines[pivot] = lines[pivot], lines[column]
        for line in range(size):
            if line != column:
                factor = lines[line][column] / lines[column][column]
                pairs = zip(lines[line], lines[column], strict=True)
                lines[line] = [a - factor * b for a, b in pairs]
    return [lines[line][size] / lines[line][line] for line in range(size)]


def arrivals(seed: int, costs: Costs, seats: int) -> list[Arrival]:
    """People who come at random, with prompts and answers of all lengths."""
    rng, found, at_s = Random(seed), [], 0.0
    step_ns, seq_ns, prompt_tok_ns, _ = costs
    prompt_tok, output_tok = (_mean(bounds) for bounds in (CHECK_PROMPT_TOK, CHECK_OUTPUT_TOK))
    each_ns = prompt_tok * prompt_tok_ns + output_tok * (step_ns / seats + seq_ns)
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


async def play_real(real: Real, asks: Sequence[Arrival]) -> list[Seen]:
    """The arrivals on the real engine."""
    begun_ns = monotonic_ns()

    async def one(ask: Arrival) -> Seen:
        await asyncio.sleep(max(0, begun_ns + ask.at_ns - monotonic_ns()) / 1e9)
        return await real.run(ask.prompt_tok, ask.output_tok)

    return list(await asyncio.gather(*(one(ask) for ask in asks)))


def play_simulated(asks: Sequence[Arrival]) -> list[Seen]:
    """The same in virtual time, first come first served: as there, only seats are bounded."""
    machine = host()
    capacity = replace(machine.capacity, max_step_tok=None)
    machine = replace(machine, capacity=capacity, chunk_tok=machine.step_tok)
    setup = standard(machine)
    box = Box(setup.classes, {"m": machine}, setup.limits)
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


def compared(real: Sequence[Seen], simulated: Sequence[Seen]) -> str:
    """A table of quantiles, real and simulated."""
    body = []
    ours, theirs = waits_ms(simulated), waits_ms(real)
    for name in ours:
        for q in (0.25, 0.5, 0.75, 0.95):
            measured, said = quantile(theirs[name], q), quantile(ours[name], q)
            body.append((f"{name} p{100 * q:.0f} ms", f"{measured:.1f}", f"{said:.1f}",
                         f"{said / measured:.2f}"))  # fmt: skip
    return rows(("", "real", "simulated", "÷"), body)


def write(capacity: EngineCapacity, step_tok: int, costs: Costs) -> None:
    """Keep what was measured, for the profile `host`."""
    step_ns, seq_ns, prompt_tok_ns, attend_ns = costs
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
        f"step_ns = {step_ns:.0f}\n"
        f"seq_ns = {seq_ns:.0f}\n"
        f"prompt_tok_ns = {prompt_tok_ns:.0f}\n"
        f"attend_ns = {attend_ns:.0f}\n"
        "by_rank = false\n",
        encoding="utf-8",
    )


async def _calibrate() -> tuple[str, str]:
    real = Real()
    try:
        capacity = await real.open()
        step_tok = capacity.max_step_tok
        assert step_tok is not None
        await real.run(256, 16)  # the first one warms it up
        found = await observe(real, step_tok, capacity.max_seqs)
        parts = [arrivals(seed, fit(found), capacity.max_seqs) for seed in CHECK_SEEDS]
        seen: list[Seen] = []
        for asks in parts:
            seen += await play_real(real, asks)
            # Machines change their speed: what was measured on both sides of the check counts.
            found += await observe(real, step_tok, capacity.max_seqs)
    finally:
        await real.aclose()
    found = middle(found)
    costs = fit(found)
    write(capacity, step_tok, costs)
    simulated = [one for asks in parts for one in play_simulated(asks)]
    body = []
    for *shape, took_ns in found:
        steps, seqs, prompt_tok, _ = shape
        fitted_ns = sum(size * cost for size, cost in zip(shape, costs, strict=True))
        what = f"{steps:g} steps, {seqs / steps:g} sequences, {prompt_tok:g} prompt tokens"
        body.append((what, f"{took_ns / 1e6:.1f}", f"{fitted_ns / 1e6:.1f}"))
    return rows(("", "measured ms", "fitted ms"), body), compared(seen, simulated)


def calibrate() -> int:
    """Measure, write `host.toml`, and print how well the simulator tells what was seen."""
    for table in asyncio.run(_calibrate()):
        print(table, end="\n\n")  # noqa: T201
    return 0
