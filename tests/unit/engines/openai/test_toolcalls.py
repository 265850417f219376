import pytest

from onegate.engines.base import EngineMalformed
from onegate.engines.openai.shapes import CallPiece, Function
from onegate.engines.openai.toolcalls import ToolCalls


def piece(index, id=None, name=None, arguments=None):
    return CallPiece(index=index, id=id, function=Function(name=name, arguments=arguments))


def test_two_calls_from_their_pieces():
    calls = ToolCalls()
    assert calls.add(piece(0, "a", "f", "")) == []
    assert calls.add(piece(0, arguments="{}")) == []
    (first,) = calls.add(piece(1, "b", "g", "{"))
    assert (first.id, first.function.name, first.function.arguments) == ("a", "f", "{}")
    calls.add(piece(1, arguments="}"))
    (second,) = calls.rest()
    assert (second.id, second.function.name, second.function.arguments) == ("b", "g", "{}")
    assert calls.rest() == []


def test_a_call_without_an_id_has_one_and_one_without_a_name_is_none():
    calls = ToolCalls()
    calls.add(piece(3, name="f"))
    assert calls.rest()[0].id == "call_3"
    calls.add(piece(0, "x"))
    with pytest.raises(EngineMalformed, match="without a name"):
        calls.rest()


def test_arguments_and_calls_have_bounds():
    calls = ToolCalls()
    calls.add(piece(0, "a", "f", "x" * (1 << 20)))
    with pytest.raises(EngineMalformed, match="longer"):
        calls.add(piece(0, arguments="x"))
    many = ToolCalls()
    for i in range(256):
        many.add(piece(i % 2, "a", "f", ""))
    with pytest.raises(EngineMalformed, match="more than 256"):
        many.add(piece(0, "a", "f", ""))
