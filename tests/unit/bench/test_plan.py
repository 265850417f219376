"""The order of the parts."""

from typing import Any

from onegate.bench.plan import AGAIN, calibration, calibration_arrivals, plan
from onegate.bench.scenario import Arrivals
from onegate.bench.schedule import Arrival


def test_sides_take_turns_and_classes_also_run_alone(made: Any) -> None:
    scenario = made.scenario(made.cls(), isolate=["chat"])
    parts = plan(scenario, sides=["A", "B"], repeats=2, noise=False)
    assert [(p.side, p.repeat, p.only) for p in parts] == [
        ("A", 0, "chat"),
        ("A", 0, None),
        ("B", 0, "chat"),
        ("B", 0, None),
        ("B", 1, "chat"),
        ("B", 1, None),
        ("A", 1, "chat"),
        ("A", 1, None),
    ]


def test_noise_comes_first(made: Any) -> None:
    parts = plan(made.scenario(), sides=["A"], repeats=2, noise=True)
    assert [(p.role, p.side) for p in parts] == [
        ("noise", "A"),
        ("noise", AGAIN),
        ("noise", AGAIN),
        ("noise", "A"),
        ("measure", "A"),
        ("measure", "A"),
    ]


def test_every_load_is_a_part(made: Any) -> None:
    parts = plan(made.scenario(loads=[1.0, 2.0]), sides=["A"], repeats=1, noise=False)
    assert [p.load for p in parts] == [1.0, 2.0]
    assert str(parts[1]) == "measure A, load 2, repeat 1"


def test_only_shares_are_calibrated(made: Any) -> None:
    share = made.cls("batch", arrivals=Arrivals(share=0.5), clients=3)
    scenario = made.scenario(made.cls(), share)
    assert [p.only for p in calibration(scenario)] == ["batch"]
    drawn = [Arrival(7, 1, 0, 0, 10, 20), Arrival(8, 1, 0, 1, 30, 40)]
    found = calibration_arrivals(scenario, "batch", drawn, seats=8)
    assert len(found) == 32
    assert {(a.at_ns, a.cls, a.leave) for a in found} == {(0, 1, None)}
    assert [(a.client, a.serial, a.prompt_tok) for a in found][:4] == [
        (0, 0, 10),
        (1, 1, 30),
        (2, 2, 10),
        (0, 3, 30),
    ]
    assert len(calibration_arrivals(scenario, "batch", drawn, seats=1)) == 16
    assert len(calibration_arrivals(scenario, "batch", drawn, seats=10_000)) == 256
