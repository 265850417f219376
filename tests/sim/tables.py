"""What `python -m tests.sim` prints."""

import math
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.bars import BARS, Bar, Values
from tests.sim.decisions import WAITING, costs
from tests.sim.figures import median
from tests.sim.run import Protection, protection
from tests.sim.variants import Setup

MS = 1_000_000


def rows(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    lines = [list(head), *(list(row) for row in body)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join([padded[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *padded[1:]])


def cost() -> Iterable[str]:
    """What each decision costs."""
    body = [(name, f"{one.us:.0f}", f"{one.least_us:.0f}") for name, one in costs().items()]
    yield rows((f"with {WAITING} waiting", "µs", "least"), body)


def over_seeds(play: partial, seeds: int, jobs: int) -> list:
    """`play(seed)` for every seed, on `jobs` processes."""
    if jobs == 1:
        return [play(seed) for seed in range(seeds)]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(play, range(seeds)))


def _play(index: int, seconds: float, off: Collection[str], seed: int) -> Values:
    return BARS[index].play(seed, seconds, off)


def bars(
    *, only: str, seeds: int, seconds: float, off: Collection[str], jobs: int
) -> Iterable[str]:
    """A table per bar: median and worst of the seeds, and whether the worst holds."""
    for index, bar in enumerate(BARS):
        if only in bar.name:
            found = over_seeds(partial(_play, index, seconds, off), seeds, jobs)
            yield f"### {bar.name}\n\n{_bar(bar, found)}\n"


def _bar(bar: Bar, found: Sequence[Values]) -> str:
    body = []
    for check in bar.checks:
        values = [one[check.figure] for one in found]
        held = [check.holds(one) for one in found]
        body.append((
            check.figure,
            f"{check.relation} {check.bound:g}" if check.bound is not None else "",
            f"{median(values):.3f}",
            f"{check.worst(values):.3f}",
            "" if check.bound is None else "holds" if all(held) else f"{sum(held)} of {len(held)}",
        ))  # fmt: skip
    return rows(("figure", "bar", "median", "worst", ""), body)


def _line(name: str, found: Sequence[Protection]) -> tuple[str, ...]:
    def mid(values: Iterable[float], digits: int = 3) -> str:
        values = list(values)
        return f"{median(values):.{digits}f}" + (
            f" ({min(values):.{digits}f}–{max(values):.{digits}f})" if len(values) > 1 else ""
        )

    return (
        name,
        mid((one.inflation[0] for one in found), 2),
        mid((one.inflation[1] for one in found), 2),
        mid((one.inflation[2] for one in found), 2),
        mid(one.kept for one in found),
        mid((100 * one.run.recomputed for one in found), 1),
        mid((100 * one.run.wasted for one in found), 1),
        mid((one.run.preemptions for one in found), 0),
        mid((one.run.itl_ms[0] for one in found), 1),
        mid((one.run.itl_ms[1] for one in found), 1),
    )


_HEAD = ("", "TTFT p50 ÷ alone", "p95", "p99", "batch kept", "recompute %", "wasted decode %",
         "stopped", "ITL p50 ms", "ITL p95 ms")  # fmt: skip


def _changed(
    profile: str, variant: str, seconds: float, off: Collection[str], given: dict, seed: int
) -> Protection:
    def change(setup: Setup) -> Setup:
        return setup.people(**given) if "itl_target_ns" in given else setup.gate(**given)

    return protection(profile, variant, seed, seconds=seconds, off=off, change=change)


def frontier(
    profile: str, variant: str, *, seeds: int, seconds: float, off: Collection[str], jobs: int
) -> Iterable[str]:
    """What each knob costs: how soon somebody is stopped, and how long a step may be."""
    knobs = [
        *((f"δ {ms} ms", {"preempt_delta_ns": ms * MS}) for ms in (0, 100, 250, 500, 1000, 4000)),
        *((f"ITL {ms} ms", {"itl_target_ns": ms * MS}) for ms in (15, 20, 30, 50)),
    ]
    body = []
    for name, given in knobs:
        play = partial(_changed, profile, variant, seconds, off, given)
        body.append(_line(name, over_seeds(play, seeds, jobs)))
    yield f"### {profile}, {variant}: frontier\n\n{rows(_HEAD, body)}\n"


# Where each mechanism is to be seen that the people of the first table know nothing of.
_SEEN_IN = {
    "preempt": ("slots, exact", "seats, exact"),
    "floor": ("slots, floor of 5 %", "1 restart-only seats, constant chat, long jobs"),
    "displacement": ("slots, batch fills the queue",),
    "fairness": ("slots, one with 10 × the requests", "seats, one with 10 × the requests"),
    "tickets": ("slots, hints, bursts over 0.6", "seats, hints, 1.3 all the time"),
    "prediction": ("slots, overload",),
    "itl": ("seats, exact, steps of 15 ms",),
}
_FIRST = ("preempt", "floor", "protection", "survival", "fairness")


def ablations(
    profile: str, variant: str, *, seeds: int, seconds: float, off: Collection[str], jobs: int
) -> Iterable[str]:
    """Everything, and then each mechanism off; then the bars that each is there for."""
    body = []
    for name in ("", *_FIRST):
        less = [*off, name] if name else off
        play = partial(_changed, profile, variant, seconds, less, {})
        body.append(_line(f"without {name}" if name else "all", over_seeds(play, seeds, jobs)))
    yield f"### {profile}, {variant}: one mechanism off\n\n{rows(_HEAD, body)}\n"
    body = []
    for name, seen_in in _SEEN_IN.items():
        for index, bar in enumerate(BARS):
            if bar.name in seen_in:
                with_it, less = (
                    over_seeds(partial(_play, index, seconds, without), seeds, jobs)
                    for without in (off, [*off, name])
                )
                body += _two_ways(name, bar, with_it, less)
    yield rows(("without", "in", "figure", "bar", "with", "without"), body) + "\n"


# Shown with both, though no bar is on them.
_BESIDE = ("expired", "peak /s", "admitted")


def _two_ways(
    name: str, bar: Bar, with_it: Sequence[Values], less: Sequence[Values]
) -> Iterable[tuple[str, ...]]:
    for check in bar.checks:
        if check.bound is not None or check.figure in _BESIDE:
            values = [median([one[check.figure] for one in found]) for found in (with_it, less)]
            if all(map(math.isnan, values)):
                continue
            bound = "" if check.bound is None else f"{check.relation} {check.bound:g}"
            yield name, bar.name, check.figure, bound, *(f"{value:.3f}" for value in values)
