"""Ratios between sides, between together and alone, and the noise beside them."""

import math
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from onegate.bench.figures import ClassFigures, figures
from onegate.bench.plan import AGAIN, Part, Role
from onegate.bench.record import Record
from onegate.bench.scenario import Scenario
from onegate.bench.stats import Spread, spread

Measure = Callable[[ClassFigures], float | None]
# By load, class and measure.
Noise = dict[tuple[float, str, str], Spread]

# What is compared, in the order of the report. Higher is better in those of RATES.
MEASURES: dict[str, Measure] = {
    "TTFT p50": lambda f: f.ttft_ms.p50,
    "TTFT p95": lambda f: f.ttft_ms.p95,
    "TTFT p99": lambda f: f.ttft_ms.p99,
    "ITL p50": lambda f: f.itl_ms.p50,
    "ITL p95": lambda f: f.itl_ms.p95,
    "ITL p99": lambda f: f.itl_ms.p99,
    "E2E p50": lambda f: f.e2e_ms.p50,
    "tokens/s": lambda f: f.tok_per_s,
    "goodput/s": lambda f: f.goodput_per_s,
}
_INTERFERENCE = [name for name in MEASURES if name[:4] in ("TTFT", "ITL ")]
# Fewer values than this have no range that one more could be outside of.
_ENOUGH = 3


class Ratio(Struct, frozen=True, kw_only=True):
    """One measure of one class, over `repeats`; `n` of the spreads are those in which it was known.

    `ratio` is infinite where only the denominator is 0, and not known where both are; `difference`
    is in the measure's own unit. `noise` is the same ratio of A against itself, where that was
    measured at this load: what differs by no more than that does not differ.
    """

    cls: str
    measure: str
    load: float
    ratio: Spread | None
    difference: Spread | None
    repeats: int
    noise: Spread | None = None

    @property
    def beyond_noise(self) -> bool | None:
        """Whether the median lies outside of what A against itself gave; None: too little is known.

        Which of two equal sides is above the line is chance, so noise counts both ways round.
        """
        if self.noise is None or self.ratio is None:
            return None
        if min(self.noise.n, self.ratio.n) < max(_ENOUGH, self.repeats):
            return None
        seen = (self.noise.low, self.noise.high)
        both = [1.0, *seen, *(1 / value for value in seen if value)]
        return not min(both) <= self.ratio.median <= max(both)


class Measured(Struct, frozen=True):
    """Records of one part."""

    part: Part
    records: list[Record]


def by_class(
    scenario: Scenario, measured: Sequence[Measured], names: Iterable[str] | None = None
) -> dict[str, ClassFigures]:
    """The figures of each class that was to run, over these parts pooled; empty without parts."""
    found = {}
    for number, cls in enumerate(scenario.classes):
        if not measured or (names is not None and cls.name not in names):
            continue
        records = [r for m in measured for r in m.records if r.cls == number]
        found[cls.name] = figures(cls.name, records, cls.limits, scenario.duration_s, len(measured))
    return found


def select(
    measured: Iterable[Measured],
    *,
    role: Role = "measure",
    side: str,
    load: float,
    only: str | None = None,
    repeat: int | None = None,
) -> list[Measured]:
    """The parts that are all of this."""
    return [
        m
        for m in measured
        if (m.part.role, m.part.side, m.part.load, m.part.only) == (role, side, load, only)
        and repeat in (None, m.part.repeat)
    ]


def ratios(
    scenario: Scenario, measured: Sequence[Measured], *, numerator: str, denominator: str
) -> list[Ratio]:
    """`numerator` ÷ `denominator` by load, class and measure, with the noise of A at its load."""
    noise = _noise(scenario, measured)
    found = []
    for load in scenario.loads:
        pairs = []
        for repeat in _repeats(measured, "measure"):
            above = select(measured, side=numerator, load=load, repeat=repeat)
            below = select(measured, side=denominator, load=load, repeat=repeat)
            pairs.append((by_class(scenario, above), by_class(scenario, below)))
        found += _ratios(scenario, pairs, load, MEASURES, noise)
    return found


def self_ratios(scenario: Scenario, measured: Sequence[Measured]) -> list[Ratio]:
    """A against itself; empty where that was not measured."""
    load = scenario.loads[0]
    pairs = []
    for repeat in _repeats(measured, "noise"):
        again = select(measured, role="noise", side=AGAIN, load=load, repeat=repeat)
        first = select(measured, role="noise", side="A", load=load, repeat=repeat)
        pairs.append((by_class(scenario, again), by_class(scenario, first)))
    return _ratios(scenario, pairs, load, MEASURES, {}) if pairs else []


def _noise(scenario: Scenario, measured: Sequence[Measured]) -> Noise:
    return {
        (r.load, r.cls, r.measure): r.ratio
        for r in self_ratios(scenario, measured)
        if r.ratio is not None
    }


def interference(scenario: Scenario, measured: Sequence[Measured], *, side: str) -> list[Ratio]:
    """Beside the others ÷ alone, for the classes that also ran alone; the noise is A's alone."""
    noise = _noise(scenario, measured) if side == "A" else {}
    found = []
    for load in scenario.loads:
        for name in scenario.isolate:
            pairs = []
            for repeat in _repeats(measured, "measure"):
                together = select(measured, side=side, load=load, repeat=repeat)
                alone = select(measured, side=side, load=load, only=name, repeat=repeat)
                pairs.append(
                    (by_class(scenario, together, [name]), by_class(scenario, alone, [name]))
                )
            found += _ratios(scenario, pairs, load, _INTERFERENCE, noise)
    return found


def _repeats(measured: Iterable[Measured], role: str) -> list[int]:
    return sorted({m.part.repeat for m in measured if m.part.role == role})


def _ratios(
    scenario: Scenario,
    pairs: Sequence[tuple[dict[str, ClassFigures], dict[str, ClassFigures]]],
    load: float,
    measures: Iterable[str],
    noise: Noise,
) -> list[Ratio]:
    found = []
    for cls in scenario.classes:
        for measure in measures:
            values = [
                (MEASURES[measure](above[cls.name]), MEASURES[measure](below[cls.name]))
                for above, below in pairs
                if cls.name in above and cls.name in below
            ]
            if all(a is None and b is None for a, b in values):
                continue  # nobody has such a measure: no gaps in answers of one piece
            both = [(a, b) for a, b in values if a is not None and b is not None]
            found.append(
                Ratio(
                    cls=cls.name,
                    measure=measure,
                    load=load,
                    ratio=spread([a / b if b else math.inf for a, b in both if a or b]),
                    difference=spread([a - b for a, b in both]),
                    repeats=len(values),
                    noise=noise.get((load, cls.name, measure)),
                )
            )
    return found
