"""Numbers are bounded on both sides, and text has no hidden characters."""

import math
from typing import Any

import msgspec
import pytest

from onegate.config import units

FLOATS = [units.Seconds, units.CostMs, units.Share, units.FloorShare]
INTEGERS = [
    units.Count,
    units.CountOrZero,
    units.Tok,
    units.Milliseconds,
    units.Bytes,
    units.Rank,
    units.Id,
    units.SocketMode,
]


def accepts(annotation: Any, value: object) -> bool:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize("annotation", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 1e300, True, "1"])
def test_floats_are_finite_and_bounded(annotation: Any, value: object) -> None:
    assert not accepts(annotation, value)


@pytest.mark.parametrize("annotation", INTEGERS)
@pytest.mark.parametrize("value", [-1, 10**30, 1.5, 1.0, True, "1"])
def test_integers_are_integers_and_bounded(annotation: Any, value: object) -> None:
    assert not accepts(annotation, value)


def test_an_integer_will_do_for_a_number() -> None:
    assert msgspec.convert(3, units.Seconds) == 3.0


@pytest.mark.parametrize("annotation", [units.Line, units.AbsolutePath, units.Glob, units.AppGlob])
@pytest.mark.parametrize("end", ["\n", "\x00", "\x1b[31m", "\x7f"])
def test_text_is_one_line_to_its_very_end(annotation: Any, end: str) -> None:
    assert accepts(annotation, "/x" if annotation is units.AbsolutePath else "x")
    assert not accepts(annotation, "/x" + end)
    assert not accepts(annotation, "x" + end)
    assert not accepts(annotation, "")


@pytest.mark.parametrize("name", ["Batch", "1st", "a b", "", "a" * 33, "batch\n", "-a"])
def test_names_of_classes_are_plain(name: str) -> None:
    assert accepts(units.Name, "night_2-b")
    assert not accepts(units.Name, name)


def test_a_unit_name_is_no_path() -> None:
    assert not accepts(units.Glob, "a/b.service")


def test_a_mode_written_in_decimal_is_noticed() -> None:
    assert accepts(units.SocketMode, 0o660)
    assert not accepts(units.SocketMode, 660)
    assert not accepts(units.SocketMode, 600)
