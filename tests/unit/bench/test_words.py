"""Cells and lines of the report."""

from math import inf
from typing import Any

import pytest
from msgspec import structs

from onegate.bench.figures import DEFINITIONS
from onegate.bench.record import Outcome
from onegate.bench.report import document
from onegate.bench.scenario import Retry
from onegate.bench.stats import Quantiles, Spread
from onegate.bench.words import (
    A_TO_B,
    FRONTIER_HEAD,
    RATIO_HEAD,
    ROW_HEAD,
    effort,
    frontier_cells,
    frontier_lines,
    number,
    ratio_cells,
    reason_lines,
    retry_lines,
    row_cells,
    share,
    spread,
    three,
)


def test_three_percentiles_or_nothing() -> None:
    assert three(Quantiles(n=3, p50=1.23, p95=45.6, p99=789.4, max=1000.0)) == "1.2 / 45.6 / 789"
    assert three(Quantiles(n=0)) == "–"


def test_numbers_have_the_digits_that_mean_something() -> None:
    assert [number(v) for v in (0.04, 99.94, 100.2)] == ["0.0", "99.9", "100"]
    assert [share(v) for v in (None, 0.125)] == ["–", "12%"]


def test_a_spread_of_one_is_its_value() -> None:
    assert spread(Spread(n=1, median=2.0, low=2.0, high=2.0), "{:.1f}") == "2.0"
    assert spread(Spread(n=3, median=2.0, low=1.0, high=3.0), "{:+.1f}") == "+2.0 (+1.0 to +3.0)"


def test_a_row_has_a_cell_for_every_head(run: Any, made: Any) -> None:
    ends = [Outcome.EXPIRED, Outcome.FAILED, Outcome.FAILED, *[Outcome.LEFT] * 3]
    run.results[1].records.extend(made.record(0, (), outcome=end) for end in ends)
    row = document(run).loads[0].together[0]
    cells = dict(zip(ROW_HEAD, row_cells(row, ", alone"), strict=True))
    assert cells["class"] == "chat, alone"
    assert (cells["TTFT ms"], cells["gaps"]) == ("300 / 300 / 300", "1")
    ways = ("requests", "finished", "refused", "expired", "failed", "left")
    assert [cells[way] for way in ways] == ["7", "1", "0", "1", "2", "3"]
    assert (cells["goodput/s"], cells["goodput tok/s"]) == ("0.10", "0.2")


def ratio_of(run: Any, **more: Any) -> dict[str, str]:
    ratio = next(r for r in document(run).ratios if r.measure == "TTFT p50")
    cells = ratio_cells(structs.replace(ratio, **more), A_TO_B)
    return dict(zip(RATIO_HEAD, cells, strict=True))


def three_times(value: float) -> Spread:
    return Spread(n=3, median=value, low=value, high=value)


@pytest.mark.parametrize(
    ("noise", "word"),
    [(None, ""), ((0.9, 2.9), "beyond noise"), ((0.9, 3.1), "within noise")],
)
def test_a_ratio_has_a_cell_for_every_head(run: Any, noise: Any, word: str) -> None:
    if noise is not None:
        noise = Spread(n=3, median=1.0, low=noise[0], high=noise[1])
    found = ratio_of(run, ratio=three_times(3.0), repeats=3, noise=noise)
    assert (found["ratio"], found[""]) == ("3.000 (3.000 to 3.000)", word)
    assert found["difference"] == "+200.0, 1 of 3"


def test_no_ratio_is_no_number(run: Any) -> None:
    assert ratio_of(run, ratio=None)["ratio"] == "–"
    assert ratio_of(run, ratio=three_times(inf), repeats=3)["ratio"] == "inf (inf to inf)"


def test_the_batch_that_is_kept_has_its_name_where_it_is_defined(run: Any) -> None:
    ratio = next(r for r in document(run).ratios if r.measure == "tokens/s")
    assert ratio_cells(ratio, A_TO_B)[2] == "tokens/s (batch kept)"
    assert ratio_cells(ratio, "A ÷ A")[2] == "tokens/s"
    assert "tokens/s" in DEFINITIONS["batch kept"]


def test_a_place_on_the_frontier_has_a_cell_for_every_head(flood: Any) -> None:
    doc = document(flood)
    cells = [frontier_cells(place, doc) for place in doc.frontier]
    first, last = (dict(zip(FRONTIER_HEAD, row, strict=True)) for row in cells)
    assert first == {
        "side": "A  interactive.preempt=lower_rank",
        "class": "chat",
        "load": "1",
        "ITL p50 ms": "10.0",
        "ITL p95 ms": "10.0",
        "TTFT p95 ms": "190",
        "alone": "100",
        "others' tokens/s": "2.7",
        "kept": "0.900",
    }
    assert (last["side"], last["kept"]) == ("B  interactive.preempt=never", "1.000")


def test_what_was_spared_and_kept_is_judged_for_all_but_the_last_side(flood: Any) -> None:
    assert frontier_lines(document(flood)) == [
        "A chat, load 1: TTFT p95 +90 ms beside the others (A less A +6), at most 2 steps, "
        "100 ms: held; kept 0.900 (A ÷ A 1.100), at least 0.95: missed",
        "A chat, load 1: p95 of the parts: until it has a seat 20 ms, from then on 170 ms, "
        "alone 80 ms",
    ]


def test_what_did_not_run_alone_is_not_judged(flood: Any) -> None:
    flood.results = [result for result in flood.results if result.part.only is None]
    assert frontier_lines(document(flood)) == []
    assert frontier_cells(document(flood).frontier[0], document(flood))[6] == "–"


@pytest.mark.parametrize("head", ["gaps", "met", "requests", "expired", "left", "kept"])
def test_what_heads_a_column_is_defined(head: str) -> None:
    assert head in (*ROW_HEAD, *FRONTIER_HEAD)
    assert DEFINITIONS[head]


def test_what_measuring_took(run: Any) -> None:
    text = effort(document(run))
    assert text == (
        "generator: at most 25% of a core, p99 late 0.0 ms, worst lag 2.0 ms; "
        "A with its engine: at most 0.50 cores, without 0.25; other programs: not judged"
    )


def test_why_requests_did_not_finish(run: Any, made: Any) -> None:
    assert reason_lines(document(run)) == []
    run.results[1].records.append(made.record(0, (), outcome=Outcome.REFUSED, reason="class_full"))
    assert reason_lines(document(run)) == ["A chat, load 1: 1 class_full"]


def test_retries_are_told_of_those_who_come_back(run: Any, made: Any) -> None:
    assert retry_lines(document(run)) == []
    run.scenario = made.scenario(made.cls(retry=Retry(kind="honour")))
    run.results[1].records[0] = made.record(
        0, (300,), attempts=3, hinted_ns=10**8, last_sent_ns=3 * 10**8
    )
    assert retry_lines(document(run)) == [
        "A chat, load 1: 3.00 attempts per success, hint error ms 200 / 200 / 200",
        "B chat, load 1: 1.00 attempts per success, hint error ms –",
    ]
