"""The whole result as one document: what `--json` prints, and what table and page are made of.

BENCH.md describes it. Fields are added, never renamed; what is not known is null.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from onegate.bench import machine
from onegate.bench.compare import (
    Measured,
    Ratio,
    by_class,
    interference,
    ratios,
    select,
    self_ratios,
)
from onegate.bench.conduct import PartResult, Run
from onegate.bench.figures import DEFINITIONS, ClassFigures
from onegate.bench.prompts import Rule
from onegate.bench.scenario import Scenario
from onegate.bench.series import Point, cdf, seats
from onegate.bench.targets.base import Facts

SCHEMA = 1


class SideReport(Struct, frozen=True, kw_only=True):
    """One target."""

    side: str
    target: str
    facts: Facts
    counting: Rule


class LoadReport(Struct, frozen=True, kw_only=True):
    """All classes of one side at one load, its repeats pooled; and each class that ran alone."""

    side: str
    load: float
    together: list[ClassFigures]
    alone: list[ClassFigures]


class PartReport(Struct, frozen=True, kw_only=True):
    """What one part cost, and why it should not be believed, if so."""

    part: str
    requests: int
    generator_cores: list[float]
    generator_lag_ms: float
    use: machine.Use
    complaints: list[str]


class Curves(Struct, frozen=True, kw_only=True):
    """Points for plots, of one class on one side at one load."""

    side: str
    load: float
    cls: str
    ttft_cdf: list[Point]
    itl_cdf: list[Point]
    seats: list[Point]


class Document(Struct, frozen=True, kw_only=True):
    """See BENCH.md."""

    title: str
    scenario: Scenario
    repeats: int
    machine: machine.Facts
    sides: list[SideReport]
    rates_per_s: dict[str, float]
    loads: list[LoadReport]
    ratios: list[Ratio]
    noise: list[Ratio]
    interference: dict[str, list[Ratio]]
    parts: list[PartReport]
    complaints: list[str]
    curves: list[Curves]
    definitions: dict[str, str] = field(default_factory=lambda: dict(DEFINITIONS))
    schema: int = SCHEMA

    @property
    def quiet(self) -> bool:
        """Whether the machine let the figures mean something."""
        return not self.complaints


def document(run: Run) -> Document:
    """Everything that there is to say about a run."""
    scenario = run.scenario
    measured = [Measured(result.part, result.records) for result in run.results]
    sides = list(run.sides)
    return Document(
        title=scenario.title,
        scenario=scenario,
        repeats=run.settings.repeats,
        machine=run.machine,
        sides=[
            SideReport(side=side, target=str(spec), facts=run.facts[side], counting=run.rules[side])
            for side, spec in run.sides.items()
        ],
        rates_per_s=run.rates,
        loads=_loads(scenario, measured, sides),
        ratios=ratios(scenario, measured, numerator="A", denominator="B") if "B" in sides else [],
        noise=self_ratios(scenario, measured),
        interference={side: interference(scenario, measured, side=side) for side in sides},
        parts=[_part(result) for result in run.results],
        complaints=[f"{r.part}: {text}" for r in run.results for text in r.complaints],
        curves=_curves(scenario, measured, sides),
    )


def _loads(
    scenario: Scenario, measured: Sequence[Measured], sides: Sequence[str]
) -> list[LoadReport]:
    found = []
    for load in scenario.loads:
        for side in sides:
            alone: list[ClassFigures] = []
            for name in scenario.isolate:
                parts = select(measured, side=side, load=load, only=name)
                alone += by_class(scenario, parts, [name]).values()
            together = by_class(scenario, select(measured, side=side, load=load))
            found.append(
                LoadReport(side=side, load=load, together=list(together.values()), alone=alone)
            )
    return found


def _part(result: PartResult) -> PartReport:
    return PartReport(
        part=str(result.part),
        requests=len(result.records),
        generator_cores=[effort.cpu_s / max(effort.wall_s, 1e-9) for effort in result.efforts],
        generator_lag_ms=max((effort.lag_ms for effort in result.efforts), default=0.0),
        use=result.use,
        complaints=result.complaints,
    )


def _curves(scenario: Scenario, measured: Sequence[Measured], sides: Sequence[str]) -> list[Curves]:
    found = []
    for load in scenario.loads:
        for side in sides:
            parts = select(measured, side=side, load=load)
            for number, cls in enumerate(scenario.classes):
                records = [r for m in parts for r in m.records if r.cls == number]
                counted = [r for r in records if r.scheduled_ns >= 0]
                first = [r for r in (parts[0].records if parts else []) if r.cls == number]
                found.append(
                    Curves(
                        side=side,
                        load=load,
                        cls=cls.name,
                        ttft_cdf=cdf([ms for r in counted if (ms := r.ttft_ms) is not None]),
                        itl_cdf=cdf([gap for r in counted for gap in r.itl_ms]),
                        seats=seats(first, scenario.duration_s),
                    )
                )
    return found


def plain(doc: Document) -> Any:
    """What is encoded as JSON: the document without the points of the plots, which are many."""
    import msgspec

    found = msgspec.to_builtins(doc)
    found.pop("curves")
    return found
