"""The whole result as one document: what `--json` prints, and what table and page are made of.

BENCH.md describes it. Fields are added, never renamed; what is not known is null.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from onegate.bench import machine, pieces
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
from onegate.bench.frontier import Place, frontier
from onegate.bench.plan import AGAIN
from onegate.bench.prompts import Rule
from onegate.bench.scenario import Scenario
from onegate.bench.series import Point, cdf, seats
from onegate.bench.targets.base import Facts
from onegate.bench.targets.spec import HTTP_KINDS, server_of

SCHEMA = 1


class SideReport(Struct, frozen=True, kw_only=True):
    """One target. `tok_per_piece` is what its answers had, None where every piece said itself."""

    side: str
    target: str
    facts: Facts
    counting: Rule
    tok_per_piece: float | None = None


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
    remarks: list[str] = field(default_factory=list)
    frontier: list[Place] = field(default_factory=list)
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
    means = {side: _tok_per_piece(run, side) for side in _guessed(run)}
    measured = _measured(run, means)
    sides = list(run.sides)
    parts = [*run.calibrations, *run.results]
    loads = _loads(scenario, measured, sides)
    return Document(
        title=scenario.title,
        scenario=scenario,
        repeats=run.settings.repeats,
        machine=run.machine,
        sides=[
            SideReport(
                side=side,
                target=str(spec),
                facts=run.facts[side],
                counting=run.rules[side],
                tok_per_piece=means.get(side),
            )
            for side, spec in run.sides.items()
        ],
        rates_per_s=run.rates,
        loads=loads,
        ratios=ratios(scenario, measured, numerator="A", denominator="B")
        if len(sides) == 2
        else [],
        noise=self_ratios(scenario, measured),
        interference={side: interference(scenario, measured, side=side) for side in sides},
        parts=[_part(result) for result in parts],
        complaints=[f"{r.part}: {text}" for r in parts for text in r.complaints],
        remarks=[*_side_remarks(run, means), *_class_remarks(run, loads)],
        frontier=frontier(scenario, measured, sides),
        curves=_curves(scenario, measured, sides),
    )


def _side_remarks(run: Run, means: dict[str, float | None]) -> Iterable[str]:
    for side in run.sides:
        if not run.rules[side].exact:
            yield f"{side}: prompts are not of exact lengths: the target counts unevenly"
        if side in means and means[side] is None:
            yield f"{side}: the target told no tokens of answers: each piece of text counts as one"
    servers = [server_of(spec) for spec in run.sides.values()]
    if None not in servers and len(set(servers)) < len(servers):
        yield "A and B are one server: their prompts differ, so that neither finds the other's"


def _class_remarks(run: Run, loads: Sequence[LoadReport]) -> Iterable[str]:
    contexts = [f.context_tok for f in run.facts.values() if f.context_tok is not None]
    held = f"what a context of {min(contexts)} tokens holds" if contexts else "what can be sent"
    for report in loads:
        for row in report.together:
            name = f"{report.side} {row.name}, load {report.load:g}"
            if not row.scheduled:
                yield f"{name}: no request was due in the window"
            if row.shortened:
                yield f"{name}: {row.shortened} of {row.scheduled} requests were cut to {held}"


def _side(result: PartResult) -> str:
    return "A" if result.part.side == AGAIN else result.part.side


def _guessed(run: Run) -> list[str]:
    """The sides that do not tell the tokens of a piece."""
    return [side for side, spec in run.sides.items() if spec.kind in HTTP_KINDS]


def _tok_per_piece(run: Run, side: str, cls: int | None = None) -> float | None:
    results = [result for result in run.results if _side(result) == side]
    return pieces.tok_per_piece(
        r for result in results for r in result.records if cls in (None, r.cls)
    )


def _measured(run: Run, means: dict[str, float | None]) -> list[Measured]:
    """The records of each part, with all that is known of the tokens of a piece."""
    by_class = {
        (side, cls): _tok_per_piece(run, side, cls) or mean
        for side, mean in means.items()
        for cls in range(len(run.scenario.classes))
    }
    found = []
    for result in run.results:
        side, records = _side(result), result.records
        if side in means:
            records = [pieces.recounted(r, by_class[side, r.cls]) for r in records]
        found.append(Measured(result.part, records))
    return found


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
