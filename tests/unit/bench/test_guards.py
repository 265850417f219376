"""What makes a part unbelievable."""

from typing import Any

import pytest
from msgspec import structs

from onegate.bench.guards import Bounds, complaints
from onegate.bench.machine import Use
from onegate.bench.wire import Effort

QUIET = Use(
    wall_s=10.0,
    busy_share=0.5,
    steal_share=0.0,
    foreign_share=0.05,
    pressure={"cpu_some": 0.9, "memory_full": 0.0, "io_full": 0.0},
    cores={},
)
EASY = Effort(cpu_s=1.0, wall_s=10.0, lag_ms=1.0)


def test_a_quiet_part_is_believed_also_where_cores_are_shared(made: Any) -> None:
    assert complaints([made.record(0, (1,))], [EASY], QUIET, Bounds()) == []


def test_a_late_generator(made: Any) -> None:
    late = made.record(0, (30,), sent_ns=20_000_000)
    (text,) = complaints([late], [EASY], QUIET, Bounds())
    assert text == "the generator was late: p99 20.0 ms, at most 10 ms"


def test_a_generator_that_stood_still_while_it_only_read() -> None:
    (text,) = complaints([], [EASY, structs.replace(EASY, lag_ms=1000.0)], QUIET, Bounds())
    assert text.startswith("a generator read nothing for 1000 ms, at most 250 ms")


def test_a_generator_over_its_budget() -> None:
    (text,) = complaints([], [EASY, structs.replace(EASY, cpu_s=9.0)], QUIET, Bounds())
    assert "90% of a core" in text
    assert "use more of them (--generators)" in text


def test_more_generators_are_advised_only_where_they_help() -> None:
    busy = structs.replace(EASY, cpu_s=9.0)
    (text,) = complaints([], [busy], QUIET, Bounds(), divisible=False)
    assert "more would not help" in text
    assert "--generators" not in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steal_share": 0.1}, "10% of the cores was stolen"),
        ({"foreign_share": 0.5}, "50% of the cores was used by other programs"),
        ({"pressure": {"memory_full": 0.2}}, "still for memory 20% of the time"),
        ({"pressure": {"io_full": 0.2}}, "still for io 20% of the time"),
    ],
)
def test_a_noisy_machine(change: dict[str, Any], words: str) -> None:
    (text,) = complaints([], [EASY], structs.replace(QUIET, **change), Bounds())
    assert words in text


def test_what_is_not_known_is_not_judged() -> None:
    unknown = structs.replace(QUIET, foreign_share=None, pressure={})
    assert complaints([], [EASY], unknown, Bounds()) == []
