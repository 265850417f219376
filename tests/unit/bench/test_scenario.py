"""Defaults of a scenario that others rely on."""

from typing import get_args

from onegate.bench.scenario import PHASES, LoadClass, Phase, Scenario
from onegate.config.shape import shapes


def test_the_phases_are_all_there_are() -> None:
    assert set(get_args(Phase)) == set(PHASES)


def test_every_key_says_what_it_is_for() -> None:
    tables = [Scenario]
    seen = []
    while tables:
        kind = tables.pop()
        for key, (_, shape) in shapes(kind).items():
            assert shape.reason, f"{kind.__name__}.{key}"
            seen.append(key)
            tables += [inner for inner in (shape.table, shape.tables) if inner is not None]
    assert {"ttft_ms", "share", "phases", "most", "p95_tok"} <= set(seen)


def test_a_class_needs_nothing_but_a_name() -> None:
    cls = LoadClass(name="chat")
    assert cls.leave is None
    assert cls.retry.kind == "never"
    assert cls.limits.ttft_ms is None
