"""The tables of a report."""

from typing import Any

import pytest
from rich.console import Console

from onegate.bench.figures import figures
from onegate.bench.report import LoadReport
from onegate.bench.scenario import Limits
from onegate.bench.words import ROW_HEAD
from onegate.cli.bench_table import load_tables


def tables(width: int, name: str = "chat", *, titled: bool = False) -> list[Any]:
    row = figures(name, [], Limits(), 1.0)
    found = LoadReport(side="A", load=2.0, together=[row], alone=[row])
    return load_tables(found, titled=titled, width=width)


def heads(table: Any) -> list[str]:
    return [str(column.header) for column in table.columns]


def test_a_table_is_titled_by_its_load_where_there_are_several() -> None:
    assert tables(1000)[0].title == "A"
    (table,) = tables(1000, titled=True)
    assert table.title == "A, load 2"
    assert table.row_count == 2
    assert heads(table) == list(ROW_HEAD)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_is_as_many_as_the_width_needs(width: int) -> None:
    found = tables(width)
    assert len(found) > 1
    assert [table.title for table in found] == ["A", *[None] * (len(found) - 1)]
    assert {heads(table)[0] for table in found} == {"class"}
    assert [head for table in found for head in heads(table)[1:]] == list(ROW_HEAD[1:])
    console = Console(width=width)
    for table in found:
        with console.capture() as capture:
            console.print(table)
        lines = capture.get().splitlines()
        # A head that was broken into two lines, or cut, would be one that was not fitted.
        for head in heads(table):
            assert any(head in line for line in lines)
        assert "…" not in capture.get()


def test_one_column_there_always_is() -> None:
    assert [len(table.columns) for table in tables(1)] == [2] * (len(ROW_HEAD) - 1)


def test_a_name_from_elsewhere_commands_no_terminal() -> None:
    (table,) = tables(1000, "a\x1b[2J\nb")
    assert next(iter(table.columns[0].cells)) == "a␛[2J b"
