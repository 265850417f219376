"""Places on the frontier, by hand."""

from typing import Any

import pytest

from onegate.bench.compare import Measured
from onegate.bench.frontier import Place, frontier
from onegate.bench.plan import AGAIN, Part
from onegate.bench.stats import Spread


def part(made: Any, ttft_ms: float, jobs: int = 0, step_ms: float = 50, **more: Any) -> Measured:
    """One answer, 20 ms of its wait for a seat; beside it so many of the batch, of three tokens."""
    records = [made.record(0, (ttft_ms, ttft_ms + 10), queue_ms=20.0)]
    records += [made.record(0, (10, 10 + step_ms, 10 + 2 * step_ms), cls=1) for _ in range(jobs)]
    records.append(made.record(-1, (9999,), cls=0))  # of the warm-up: not counted
    return Measured(Part(**({"role": "measure", "side": "A"} | more)), records)


def flood(made: Any) -> Any:
    return made.scenario(made.cls(), made.cls("batch"), isolate=["chat"])


def both(made: Any, *, kept: int = 10, ttft_ms: float = 190) -> list[Measured]:
    return [
        part(made, 100, only="chat"),
        part(made, ttft_ms, kept),
        part(made, 100, only="chat", side="B"),
        part(made, 700, 10, side="B"),
    ]


def places(made: Any, measured: list[Measured]) -> list[Place]:
    return frontier(flood(made), measured, ["A", "B"])


def one(value: float) -> Spread:
    return Spread(n=1, median=value, low=value, high=value)


def near(found: Spread | None, *values: float) -> bool:
    """Median, lowest, highest; one value is all of them."""
    assert found is not None
    wanted = values * 3 if len(values) == 1 else values
    return (found.median, found.low, found.high) == pytest.approx(wanted)


def test_what_is_added_and_what_is_kept(made: Any) -> None:
    a, b = places(made, both(made, kept=8))
    assert (a.side, b.side) == ("A", "B")
    assert (a.ttft_ms.p95, a.alone_ttft_ms.p95, a.itl_ms.p95) == (190, 100, 10)
    assert (a.added_ms, a.queue_ms) == (one(90), one(20))
    assert (a.engine_ms, a.alone_engine_ms) == (one(170), one(80))
    assert a.step_ms == one(50)
    assert near(a.tok_per_s, 2.4)
    assert near(a.kept, 0.8)
    assert (b.added_ms, b.kept) == (one(600), one(1.0))


def test_two_steps_are_what_it_may_cost(made: Any) -> None:
    held, other = places(made, both(made, ttft_ms=200))
    assert (held.protected, other.protected) == (True, False)
    assert places(made, both(made, ttft_ms=201))[0].protected is False


def test_nearly_everything_is_what_must_be_kept(made: Any) -> None:
    assert places(made, both(made, kept=10))[0].enough_kept is True
    assert places(made, both(made, kept=9))[0].enough_kept is False


def test_noise_is_that_of_the_first_side(made: Any) -> None:
    noise = [
        part(made, 100, 10, role="noise"),
        part(made, 130, 11, role="noise", side=AGAIN),
    ]
    a, b = places(made, [*noise, *both(made)])
    assert a.noise_ms == one(30)
    assert near(a.noise, 1.1)
    assert (b.noise_ms, b.noise) == (None, None)


def test_repeats_are_compared_one_by_one(made: Any) -> None:
    measured = []
    for repeat, ttft_ms in enumerate((150, 200, 400)):
        measured += [
            part(made, 100 + repeat, only="chat", repeat=repeat),
            part(made, ttft_ms, 5, repeat=repeat),
            part(made, 100, 5 + repeat, side="B", repeat=repeat),
        ]
    a, _ = places(made, measured)
    assert a.added_ms == Spread(n=3, median=99.0, low=50.0, high=298.0)
    assert near(a.kept, 5 / 6, 5 / 7, 1.0)


def test_what_is_not_known_is_not_judged(made: Any) -> None:
    quiet = [part(made, 190), part(made, 700, side="B")]
    a, _ = places(made, quiet)
    assert (a.added_ms, a.step_ms, a.kept) == (None, None, None)
    assert (a.protected, a.enough_kept) == (None, None)


def test_one_side_or_one_class_has_no_frontier(made: Any) -> None:
    assert frontier(flood(made), both(made), ["A"]) == []
    assert frontier(made.scenario(isolate=["chat"]), both(made), ["A", "B"]) == []
