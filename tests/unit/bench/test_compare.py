"""Ratios over repeats, by hand."""

from typing import Any

import pytest

from onegate.bench.compare import Measured, Ratio, by_class, interference, ratios, self_ratios
from onegate.bench.plan import AGAIN, Part
from onegate.bench.stats import Spread


def part(made: Any, ttft_ms: float, **more: Any) -> Measured:
    return Measured(
        Part(**({"role": "measure", "side": "A"} | more)), [made.record(0, (ttft_ms, ttft_ms + 10))]
    )


def of(found: list[Ratio], measure: str) -> Ratio:
    (ratio,) = [r for r in found if r.measure == measure]
    return ratio


def test_a_ratio_has_one_value_a_repeat(made: Any) -> None:
    measured = [
        part(made, 100, side="A", repeat=0),
        part(made, 50, side="B", repeat=0),
        part(made, 300, side="A", repeat=1),
        part(made, 100, side="B", repeat=1),
    ]
    found = ratios(made.scenario(), measured, numerator="A", denominator="B")
    ttft = of(found, "TTFT p50")
    assert ttft.ratio == Spread(n=2, median=2.5, low=2.0, high=3.0)
    assert ttft.difference == Spread(n=2, median=125.0, low=50.0, high=200.0)
    assert ttft.noise is None
    assert ttft.beyond_noise is None
    assert of(found, "ITL p50").ratio.median == pytest.approx(1.0)


def test_noise_stands_beside(made: Any) -> None:
    noisy = [
        part(made, 100, role="noise", side="A"),
        part(made, 110, role="noise", side=AGAIN),
        part(made, 100, role="noise", side="A", repeat=1),
        part(made, 95, role="noise", side=AGAIN, repeat=1),
    ]
    assert of(self_ratios(made.scenario(), noisy), "TTFT p50").ratio == Spread(
        n=2, median=1.025, low=0.95, high=1.1
    )
    # From 0.95 to 1.1, and the other way round from 1 / 1.1.
    for ttft_ms, beyond in ((105, False), (92, False), (90, True), (200, True)):
        measured = [*noisy, part(made, ttft_ms), part(made, 100, side="B")]
        found = ratios(made.scenario(), measured, numerator="A", denominator="B")
        assert of(found, "TTFT p50").beyond_noise is beyond


def test_interference_is_beside_the_others_over_alone(made: Any) -> None:
    scenario = made.scenario(isolate=["chat"])
    measured = [part(made, 300), part(made, 100, only="chat")]
    found = interference(scenario, measured, side="A")
    assert of(found, "TTFT p95").ratio.median == pytest.approx(3.0)
    assert of(found, "TTFT p95").difference.median == pytest.approx(200.0)
    assert {r.measure[:4] for r in found} == {"TTFT", "ITL "}
    assert interference(scenario, measured, side="B") == []


def test_classes_are_told_apart_and_repeats_pooled(made: Any) -> None:
    scenario = made.scenario(made.cls("a"), made.cls("b"))
    records = [made.record(0, (1,)), made.record(0, (2,), cls=1)]
    measured = [Measured(Part(role="measure", side="A", repeat=i), records) for i in range(2)]
    found = by_class(scenario, measured)
    assert [(f.name, f.scheduled, f.window_s) for f in found.values()] == [
        ("a", 2, 20.0),
        ("b", 2, 20.0),
    ]
    assert list(by_class(scenario, measured, ["b"])) == ["b"]


def test_without_a_second_side_there_is_no_ratio(made: Any) -> None:
    assert ratios(made.scenario(), [part(made, 1)], numerator="A", denominator="B") == []
    assert self_ratios(made.scenario(), [part(made, 1)]) == []
