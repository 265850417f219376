"""Ratios over repeats, by hand."""

from math import inf
from typing import Any

import pytest

from onegate.bench.compare import Measured, Ratio, by_class, interference, ratios, self_ratios
from onegate.bench.plan import AGAIN, Part
from onegate.bench.record import Outcome
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
    found = a_over_b(made, measured)
    ttft = of(found, "TTFT p50")
    assert ttft.ratio == Spread(n=2, median=2.5, low=2.0, high=3.0)
    assert ttft.difference == Spread(n=2, median=125.0, low=50.0, high=200.0)
    assert ttft.noise is None
    assert ttft.beyond_noise is None
    assert of(found, "ITL p50").ratio == Spread(n=2, median=1.0, low=1.0, high=1.0)


def failed(made: Any, **more: Any) -> Measured:
    record = made.record(0, (), outcome=Outcome.FAILED)
    return Measured(Part(**({"role": "measure", "side": "B"} | more)), [record])


def a_over_b(made: Any, measured: list[Measured], **more: Any) -> list[Ratio]:
    return ratios(made.scenario(**more), measured, numerator="A", denominator="B")


def test_what_b_did_not_do_at_all_has_no_finite_ratio(made: Any) -> None:
    measured = [
        *(part(made, 100, repeat=i) for i in range(3)),
        *(failed(made, repeat=i) for i in range(2)),
        part(made, 100, side="B", repeat=2),
    ]
    found = a_over_b(made, measured)
    goodput = of(found, "goodput/s")
    assert goodput.ratio == Spread(n=3, median=inf, low=1.0, high=inf)
    assert goodput.difference == Spread(n=3, median=0.1, low=0.0, high=0.1)
    # B's first tokens are known in one repeat only, and that is said.
    ttft = of(found, "TTFT p50")
    assert (ttft.ratio, ttft.repeats) == (Spread(n=1, median=1.0, low=1.0, high=1.0), 3)


def test_what_neither_did_is_a_row_without_a_ratio(made: Any) -> None:
    found = a_over_b(made, [failed(made, side="A"), failed(made)])
    goodput = of(found, "goodput/s")
    assert goodput.ratio is None
    assert goodput.difference == Spread(n=1, median=0.0, low=0.0, high=0.0)
    assert [r.measure for r in found] == ["tokens/s", "goodput/s"]


def test_what_only_one_of_both_has_is_a_row_without_figures(made: Any) -> None:
    ttft = of(a_over_b(made, [part(made, 100), failed(made)]), "TTFT p50")
    assert (ttft.ratio, ttft.difference, ttft.repeats) == (None, None, 1)


def noisy(made: Any, *pairs: tuple[float, float]) -> list[Measured]:
    return [
        part(made, ttft_ms, role="noise", side=side, repeat=repeat)
        for repeat, pair in enumerate(pairs)
        for side, ttft_ms in zip(("A", AGAIN), pair, strict=True)
    ]


NOISE = ((100, 110), (100, 95), (100, 100))


def test_noise_stands_beside(made: Any) -> None:
    measured = noisy(made, *NOISE)
    assert of(self_ratios(made.scenario(), measured), "TTFT p50").ratio == Spread(
        n=3, median=1.0, low=0.95, high=1.1
    )
    # From 0.95 to 1.1, and the other way round from 1 / 1.1.
    for ttft_ms, beyond in ((105, False), (92, False), (90, True), (200, True)):
        both = [
            *(part(made, ttft_ms, repeat=i) for i in range(3)),
            *(part(made, 100, side="B", repeat=i) for i in range(3)),
        ]
        found = of(a_over_b(made, measured + both), "TTFT p50")
        assert found.beyond_noise is beyond


def test_fewer_than_three_values_have_no_verdict(made: Any) -> None:
    for repeats in (1, 2):
        measured = noisy(made, *NOISE[:repeats])
        for i in range(repeats):
            measured += [part(made, 900, repeat=i), part(made, 100, side="B", repeat=i)]
        found = of(a_over_b(made, measured), "TTFT p50")
        assert found.noise is not None
        assert found.beyond_noise is None


def test_a_ratio_that_some_repeats_lack_has_no_verdict(made: Any) -> None:
    measured = noisy(made, *NOISE, (100, 100))
    for i in range(4):
        measured += [
            part(made, 900, repeat=i),
            part(made, 100, side="B", repeat=i) if i else failed(made, repeat=i),
        ]
    found = of(a_over_b(made, measured), "TTFT p50")
    assert found.ratio is not None
    assert (found.ratio.n, found.repeats, found.beyond_noise) == (3, 4, None)


def test_noise_is_that_of_its_load_and_of_a(made: Any) -> None:
    measured = noisy(made, *NOISE)
    for load in (1.0, 2.0):
        measured += [part(made, 900, load=load), part(made, 100, side="B", load=load)]
        measured += [part(made, 100, load=load, only="chat", side=side) for side in "AB"]
    scenario = made.scenario(loads=[1.0, 2.0], isolate=["chat"])
    found = ratios(scenario, measured, numerator="A", denominator="B")
    assert {r.load for r in found if r.noise is not None} == {1.0}
    found = interference(scenario, measured, side="A")
    assert {r.load for r in found if r.noise is not None} == {1.0}
    assert {r.noise for r in interference(scenario, measured, side="B")} == {None}


def test_interference_is_beside_the_others_over_alone(made: Any) -> None:
    scenario = made.scenario(isolate=["chat"])
    measured = [part(made, 300), part(made, 100, only="chat")]
    found = interference(scenario, measured, side="A")
    ttft = of(found, "TTFT p95")
    assert ttft.ratio is not None
    assert ttft.difference is not None
    assert ttft.ratio.median == pytest.approx(3.0)
    assert ttft.difference.median == pytest.approx(200.0)
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


def test_a_class_of_which_nothing_was_due_is_a_row_of_nothing(made: Any) -> None:
    scenario = made.scenario(made.cls("a"), made.cls("b"))
    found = by_class(scenario, [part(made, 1)])
    assert (found["b"].scheduled, found["b"].met_share) == (0, None)
    assert by_class(scenario, []) == {}


def test_without_a_second_side_there_is_no_ratio(made: Any) -> None:
    assert ratios(made.scenario(), [part(made, 1)], numerator="A", denominator="B") == []
    assert self_ratios(made.scenario(), [part(made, 1)]) == []
