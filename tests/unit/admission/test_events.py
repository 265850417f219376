"""The union names every event, and none of them changes after it was said."""

import dataclasses
import inspect
from typing import get_args

import pytest

from onegate.admission import events

DECLARED = {
    declared
    for _, declared in inspect.getmembers(events, dataclasses.is_dataclass)
    if declared.__module__ == events.__name__
}


def test_the_union_is_complete() -> None:
    assert set(get_args(events.Event)) == DECLARED


@pytest.mark.parametrize("declared", get_args(events.Event), ids=lambda kind: kind.__name__)
def test_nothing_of_it_changes(declared: type) -> None:
    made = declared.__new__(declared)
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        made.rid = 1
    assert declared.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not hasattr(made, "__dict__")
