"""A key's type, taken apart into what it allows."""

from typing import Annotated, Literal

import msgspec
import pytest

from onegate.config import EngineConfig, GateConfig
from onegate.config.classes import ClassConfig
from onegate.config.engine import ScriptedConfig, ScriptedPool
from onegate.config.log import LogConfig
from onegate.config.rules import Grant, Hint
from onegate.config.shape import Shape, shapes
from onegate.config.units import Count, Name, Seconds, Share, Windows, why

KINDS = [
    *(EngineConfig, ScriptedConfig, ScriptedPool, GateConfig, LogConfig),
    *(ClassConfig, Grant, Hint),
]


@pytest.mark.parametrize(
    ("annotation", "allowed"),
    [
        (Count, "an integer from 1 to 1,000,000"),
        (Annotated[Count | None, why("x", "requests")], "an integer from 1 to 1,000,000 requests"),
        (Share, "a number above 0, at most 1"),
        (Seconds, "a number from 0.001 to 31,536,000"),
        (bool, "true or false"),
        (str, "text"),
        (Literal["a", "b"], 'one of "a", "b"'),
        (ScriptedConfig, "a table"),
        (tuple[ScriptedPool, ...], "an array of tables"),
        (
            Windows,
            'an array of times such as "22:00-06:00" or "sat,sun 00:00-24:00", at most 16',
        ),
        (Name, "a name of a-z, 0-9, - and _ that starts with a letter, at most 32 characters"),
    ],
)
def test_what_is_allowed_reads_as_a_phrase(annotation: object, allowed: str) -> None:
    assert Shape(annotation).allowed().removesuffix(', or "none"') == allowed


def test_none_is_said_to_be_allowed() -> None:
    assert Shape(Count | None).optional
    assert Shape(Count | None).allowed().endswith(', or "none"')
    assert not Shape(Count).optional


def test_a_key_has_one_type() -> None:
    with pytest.raises(TypeError, match="one type"):
        Shape(int | str)


def test_the_outer_reason_wins_and_the_inner_bound_stays() -> None:
    shape = Shape(Annotated[Annotated[int, msgspec.Meta(ge=1, le=9)], why("because", "s")])
    assert shape.reason == "because"
    assert shape.extra("unit") == "s"
    assert shape.allowed() == "an integer from 1 to 9 s"


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_has_a_reason_and_both_bounds(kind: type[msgspec.Struct]) -> None:
    for key, (_, shape) in shapes(kind).items():
        assert shape.reason, key
        if shape.base in (int, float):
            assert "to" in shape.allowed() or "at most" in shape.allowed(), key


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_names_its_unit(kind: type[msgspec.Struct]) -> None:
    for key, (_, shape) in shapes(kind).items():
        suffix = {"_tok": "tokens", "_ms": "ms", "_s": "s", "_bytes": "bytes"}
        for end, unit in suffix.items():
            if key.endswith(end) and "_per_" not in key:
                assert shape.extra("unit") == unit, key


def test_keys_are_named_as_in_the_file() -> None:
    assert "class" in shapes(Hint)
    assert shapes(Hint)["class"][0].name == "class_"
