"""The union names every effect, and none of them changes after it was said."""

import dataclasses
import inspect
from typing import get_args

import pytest

from onegate.admission import effects

DECLARED = {
    declared
    for _, declared in inspect.getmembers(effects, dataclasses.is_dataclass)
    if declared.__module__ == effects.__name__
}


def test_the_union_is_complete() -> None:
    assert set(get_args(effects.Effect)) == DECLARED


@pytest.mark.parametrize("declared", get_args(effects.Effect), ids=lambda kind: kind.__name__)
def test_nothing_of_it_changes(declared: type) -> None:
    made = declared.__new__(declared)
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        made.rid = 1
    assert declared.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not hasattr(made, "__dict__")
