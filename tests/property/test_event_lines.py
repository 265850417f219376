"""Every event and effect comes back from its line as it was, whatever is in it."""

import types
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegate.admission import effects, events
from onegate.server.event_lines import Began, Line, Lost, Step, WentOn, decode, encode


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type: everything that JSON can say of it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of, arguments))
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(of(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(of, arguments))
    if origin is dict:
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=3)
    if hint is types.NoneType:
        return st.none()
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is int:
        return st.integers(-(2**63), 2**64 - 1)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{field.name: of(hints[field.name]) for field in fields(hint)})
    assert hint in (str, bool), hint
    return st.text(max_size=8) if hint is str else st.booleans()


EVENTS = st.one_of(*map(of, get_args(events.Event)))
EFFECTS = st.one_of(*map(of, get_args(effects.Effect)))


@pytest.mark.parametrize("kind", get_args(events.Event), ids=lambda kind: kind.__name__)
def test_an_event_of_each_kind(kind: Any) -> None:
    @given(of(kind))
    def comes_back(event: Any) -> None:
        assert decode(encode(Step(7, event, ()))) == Step(7, event, ())

    comes_back()


@pytest.mark.parametrize("kind", get_args(effects.Effect), ids=lambda kind: kind.__name__)
def test_an_effect_of_each_kind(kind: Any) -> None:
    @given(of(kind))
    def comes_back(effect: Any) -> None:
        step = Step(7, events.Tick(), (effect,))
        assert decode(encode(step)) == step

    comes_back()


@given(
    st.one_of(
        of(Began),
        st.builds(Lost, st.integers(1, 2**40)),
        st.just(WentOn()),
        st.builds(Step, st.integers(0, 2**63), EVENTS, st.lists(EFFECTS, max_size=4).map(tuple)),
    )
)
def test_a_line_is_one_line_and_comes_back(line: Line) -> None:
    text = encode(line)
    assert text.count(b"\n") == 1
    assert text.endswith(b"\n")
    assert decode(text) == line


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_what_is_no_line_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match="line"):
        decode(text)
