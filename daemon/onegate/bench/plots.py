"""Which plots a report has."""

from collections.abc import Sequence

from onegate.bench.figures import ClassFigures
from onegate.bench.report import Curves, Document
from onegate.bench.series import Point
from onegate.bench.svg import Line, Plot


def plots(doc: Document) -> list[Plot]:
    """Those for which there is something to show."""
    base = doc.scenario.loads[0]
    curves = [c for c in doc.curves if c.load == base]
    found = [
        Plot(
            title="Time to first token",
            x="ms, logarithmic",
            y="share of the requests",
            log_x=True,
            lines=_lines(doc, curves, "ttft_cdf"),
        ),
        Plot(
            title="Gaps between tokens",
            x="ms, logarithmic",
            y="share of the gaps",
            log_x=True,
            lines=_lines(doc, curves, "itl_cdf"),
        ),
        Plot(
            title="Seats by class, first repeat",
            x="seconds into the window",
            y="requests being served",
            lines=_lines(doc, curves, "seats"),
        ),
        _goodput(doc),
        _frontier(doc),
    ]
    return [plot for plot in found if any(line.points for line in plot.lines)]


def _lines(doc: Document, curves: Sequence[Curves], name: str) -> list[Line]:
    found = []
    for curve in curves:
        points: list[Point] = getattr(curve, name)
        if points and name != "seats":
            points = [(points[0][0], 0.0), *points]  # its first step begins on the ground
        if any(y for _, y in points):
            found.append(
                Line(
                    name=_name(doc, curve.cls, curve.side),
                    points=points,
                    colour=_number(doc, curve.cls),
                    dashed=curve.side == "B",
                    stepped=True,
                )
            )
    return found


def _goodput(doc: Document) -> Plot:
    """Goodput against load; empty with one load."""
    lines = []
    if len(doc.scenario.loads) > 1:
        for side in doc.sides:
            for cls in doc.scenario.classes:
                points = [
                    (report.load, row.goodput_per_s)
                    for report in doc.loads
                    if report.side == side.side
                    for row in report.together
                    if row.name == cls.name
                ]
                lines.append(_line(doc, cls.name, side.side, sorted(points)))
    return Plot(
        title="Goodput against load", x="load", y="good requests a second", lines=lines, marks=True
    )


def _frontier(doc: Document) -> Plot:
    """What the first class's gaps cost in the last class's tokens; empty with one class."""
    names = [cls.name for cls in doc.scenario.classes]
    watched, kept = names[0], names[-1]
    lines = []
    if watched != kept:
        for side in doc.sides:
            points: list[tuple[float, float | None]] = []
            for report in doc.loads:
                if report.side != side.side:
                    continue
                rows = {row.name: row for row in report.together}
                # One point alone is enough, at the first load, which is the lowest.
                if not points and (alone := _row(report.alone, watched)) is not None:
                    points.append((0.0, alone.itl_ms.p95))
                if watched in rows and kept in rows:
                    points.append((rows[kept].tok_per_s, rows[watched].itl_ms.p95))
            known = [(x, y) for x, y in points if y is not None]
            lines.append(_line(doc, watched, side.side, known))
    return Plot(
        title=f"The frontier: gaps of {watched} against what is kept of {kept}",
        x=f"tokens a second of {kept} (0: {watched} alone)",
        y=f"ITL p95 of {watched}, ms",
        lines=[line for line in lines if line.points],
        marks=True,
    )


def _row(rows: Sequence[ClassFigures], name: str) -> ClassFigures | None:
    return next((row for row in rows if row.name == name), None)


def _line(doc: Document, cls: str, side: str, points: Sequence[Point]) -> Line:
    return Line(
        name=_name(doc, cls, side), points=points, colour=_number(doc, cls), dashed=side == "B"
    )


def _number(doc: Document, cls: str) -> int:
    return [c.name for c in doc.scenario.classes].index(cls)


def _name(doc: Document, cls: str, side: str) -> str:
    return cls if len(doc.sides) == 1 else f"{cls}, {side}"
