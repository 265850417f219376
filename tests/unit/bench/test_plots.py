"""Which plots a document has."""

from typing import Any

from msgspec import structs

from onegate.bench.plots import plots
from onegate.bench.report import document

FRONTIER = "The frontier: gaps of chat against what is kept of batch"


def titles(run: Any) -> list[str]:
    return [plot.title for plot in plots(document(run))]


def test_one_class_at_one_load_has_no_frontier(run: Any, made: Any) -> None:
    assert titles(run) == [
        "Time to first token",
        "Gaps between tokens",
        "Seats by class, first repeat",
    ]


def test_a_share_rises_in_steps_from_nothing(run: Any, made: Any) -> None:
    line = plots(document(run))[0].lines[0]
    assert line.points == [(300.0, 0.0), (300.0, 1.0)]
    assert line.stepped


def test_several_loads_show_goodput_against_load(run: Any, made: Any) -> None:
    run.scenario = made.scenario(loads=[1.0, 2.0])
    run.results += [structs.replace(r, part=structs.replace(r.part, load=2.0)) for r in run.results]
    found = {plot.title: plot for plot in plots(document(run))}["Goodput against load"]
    assert [(line.name, line.dashed) for line in found.lines] == [
        ("chat, A", False),
        ("chat, B", True),
    ]
    assert found.lines[0].points == [(1.0, 0.1), (2.0, 0.1)]


def test_several_classes_show_the_frontier(run: Any, made: Any) -> None:
    run.scenario = made.scenario(made.cls(), made.cls("batch"), isolate=["chat"])
    for result in run.results:
        if result.part.only is None:
            result.records.append(made.record(0, (10, 20), cls=1))
    found = {plot.title: plot for plot in plots(document(run))}[FRONTIER]
    assert found.lines[0].points == [(0.0, 10.0), (0.2, 10.0)]
    assert found.marks
