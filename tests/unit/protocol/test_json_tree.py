"""What came as msgpack and must be JSON."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import msgpack

from onegate.protocol.json_tree import MAX_JSON_DEPTH, MAX_JSON_NODES, JsonBudget


def problems(root: dict[Any, Any]) -> list[tuple[str, str]]:
    return list(JsonBudget().check("p", root))


def nested(levels: int) -> dict[str, Any]:
    root: Any = 1
    for _ in range(levels - 1):
        root = [root]
    return {"a": root}


def test_json_is_fine() -> None:
    assert problems({"a": [None, True, 1, 2.5, "x", {"b": []}]}) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"bytes", "must be JSON"),
        (msgpack.Ext(5, b""), "must be JSON"),
        (datetime(2026, 1, 1, tzinfo=UTC), "must be JSON"),
        ({1: 2}, "no string"),
        ({b"k": 2}, "no string"),
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
    ],
)
def test_what_json_cannot_say_is_found_at_any_depth(value: Any, said: str) -> None:
    for root in ({"a": value}, {"a": [{"b": [value]}]}):
        ((path, sentence),) = problems(root)
        assert path == "p"
        assert said in sentence


def test_depth_is_bounded() -> None:
    assert problems(nested(MAX_JSON_DEPTH - 1)) == []
    assert "nested too deeply" in problems(nested(MAX_JSON_DEPTH))[0][1]


def test_depth_far_beyond_the_stack_is_bounded_too() -> None:
    assert "nested too deeply" in problems(nested(100_000))[0][1]


def test_length_is_bounded_over_all_documents() -> None:
    budget = JsonBudget()
    half = {"a": [0] * (MAX_JSON_NODES // 2 - 2)}
    assert list(budget.check("first", half)) == []
    assert list(budget.check("second", half)) == []
    ((path, sentence),) = budget.check("third", {})
    assert path == "third"
    assert "too long" in sentence
