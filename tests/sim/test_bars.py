"""Every bar, with one seed and a short horizon; `python -m tests.sim` has all of it."""

import gc
from collections.abc import Iterator

import pytest
from tests.sim.bars import BARS, Bar
from tests.sim.profiles import slots
from tests.sim.run import standard
from tests.sim.variants import MECHANISMS, without


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """Events are made and forgotten by the million, and none of them refers to itself."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.name)
def test_it_holds(bar: Bar) -> None:
    values = bar.play(bar.short_seed, bar.short_s, ())
    missed = [
        f"{check.figure} is {values[check.figure]:.3f}, must be {check.relation} {check.bound}"
        for check in (bar.checks if bar.short is None else bar.short)
        if not check.holds(values)
    ]
    assert not missed, "; ".join(missed)


def test_every_figure_of_a_bar_is_shown() -> None:
    names = [bar.name for bar in BARS]
    assert len(set(names)) == len(names)
    assert all(check.relation in ("≤", "≥") for b in BARS for check in b.checks if check.bound)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_each_mechanism_can_be_switched_off(name: str) -> None:
    setup = standard(slots()).each_class(itl_target_ns=20_000_000)
    assert without(setup, (name,)) != setup
