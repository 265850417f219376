"""The report of `onegate bench` as tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onegate.bench.report import Document, LoadReport
from onegate.bench.words import (
    FRONTIER,
    FRONTIER_HEAD,
    FRONTIER_KEYS,
    RATIO_HEAD,
    RATIO_KEYS,
    ROW_HEAD,
    ROW_KEYS,
    effort,
    frontier_cells,
    frontier_lines,
    ratio_cells,
    ratio_tables,
    reason_lines,
    retry_lines,
    row_cells,
)
from onegate.cli.terminal import console, visible

if TYPE_CHECKING:
    from rich.table import Table

# Between two columns: a space of each, and the line that is not drawn.
_GAP = 3


def print_report(doc: Document) -> None:
    """Everything that a person wants to see of it."""
    out = console()
    out.print(_line(doc.title))
    for side in doc.sides:
        engine = side.facts.engine or "?"
        out.print(_line(f"{side.side}  {side.target}: {side.facts.model} on {engine}"))
    for report in doc.loads:
        for table in load_tables(report, titled=len(doc.loads) > 1, width=out.width):
            out.print()
            out.print(table)
    for title, found in ratio_tables(doc):
        cells = [ratio_cells(row, title) for row in found]
        for table in _tables(title, RATIO_HEAD, cells, keys=RATIO_KEYS, width=out.width):
            out.print()
            out.print(table)
    if doc.frontier:
        cells = [frontier_cells(place, doc) for place in doc.frontier]
        for table in _tables(FRONTIER, FRONTIER_HEAD, cells, keys=FRONTIER_KEYS, width=out.width):
            out.print()
            out.print(table)
    out.print()
    for text in frontier_lines(doc):
        out.print(_line(text))
    for text in (*doc.remarks, effort(doc), *reason_lines(doc), *retry_lines(doc)):
        out.print(_line(text))
    out.print()
    for word, meaning in doc.definitions.items():
        out.print(f"{word}: {meaning}", style="dim")


def load_tables(report: LoadReport, *, titled: bool, width: int) -> "list[Table]":
    """One row a class; p50 / p95 / p99 in milliseconds."""
    title = f"{report.side}, load {report.load:g}" if titled else report.side
    rows = [row_cells(row, "") for row in report.together]
    rows += [row_cells(row, ", alone") for row in report.alone]
    return _tables(title, ROW_HEAD, rows, keys=ROW_KEYS, width=width)


def _tables(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, keys: int, width: int
) -> "list[Table]":
    """One table, or as many below each other as the width makes necessary, each with the keys."""
    from rich.cells import cell_len

    shown = [[_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(head, *shown, strict=True)]
    return [
        _table(title if not number else None, head, shown, columns)
        for number, columns in enumerate(_groups(widths, keys, width))
    ]


def _groups(widths: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """Which columns stand in which table. One column beside the keys there always is."""
    groups = [list(range(keys))]
    for column in range(keys, len(widths)):
        taken = sum(widths[i] + _GAP for i in groups[-1])
        if taken + widths[column] > width and len(groups[-1]) > keys:
            groups.append(list(range(keys)))
        groups[-1].append(column)
    return groups


def _table(
    title: str | None, head: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]
) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False
    )
    for number in columns:
        table.add_column(head[number], justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(row[number] for number in columns))
    return table


def _line(text: str) -> str:
    """One line without control characters: targets name their models as they like."""
    return visible(" ".join(text.split()))
