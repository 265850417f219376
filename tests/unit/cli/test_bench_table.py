"""The tables of a report."""

from onegate.bench.figures import figures
from onegate.bench.report import LoadReport
from onegate.bench.scenario import Limits
from onegate.cli.bench_table import load_table


def test_a_table_is_titled_by_its_load_where_there_are_several() -> None:
    row = figures("chat", [], Limits(), 1.0)
    found = LoadReport(side="A", load=2.0, together=[row], alone=[row])
    assert load_table(found, titled=False).title == "A"
    table = load_table(found, titled=True)
    assert table.title == "A, load 2"
    assert table.row_count == 2
    assert [column.header for column in table.columns][:3] == ["class", "requests", "TTFT ms"]
