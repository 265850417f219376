"""The report of `onegate bench` as tables."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from onegate.bench.report import Document, LoadReport
from onegate.bench.words import (
    RATIO_HEAD,
    ROW_HEAD,
    effort,
    ratio_cells,
    ratio_tables,
    reason_lines,
    retry_lines,
    row_cells,
)
from onegate.cli.terminal import console

if TYPE_CHECKING:
    from rich.table import Table


def print_report(doc: Document) -> None:
    """Everything that a person wants to see of it."""
    out = console()
    out.print(doc.title)
    for side in doc.sides:
        out.print(f"{side.side}  {side.target}: {side.facts.model} on {side.facts.engine or '?'}")
        if not side.counting.exact:
            out.print(f"{side.side}  prompts are not of exact lengths: the target counts unevenly")
    for report in doc.loads:
        out.print()
        out.print(load_table(report, titled=len(doc.loads) > 1))
    for title, found in ratio_tables(doc):
        out.print()
        out.print(_table(title, RATIO_HEAD, map(ratio_cells, found)))
    out.print()
    for text in (effort(doc), *reason_lines(doc), *retry_lines(doc)):
        out.print(text)
    out.print()
    for word, meaning in doc.definitions.items():
        out.print(f"{word}: {meaning}", style="dim")


def load_table(report: LoadReport, *, titled: bool) -> "Table":
    """One row a class; p50 / p95 / p99 in milliseconds."""
    title = f"{report.side}, load {report.load:g}" if titled else report.side
    rows = [row_cells(row, "") for row in report.together]
    rows += [row_cells(row, ", alone") for row in report.alone]
    return _table(title, ROW_HEAD, rows)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(head):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
