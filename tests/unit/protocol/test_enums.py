"""Enumerations that an older client reads from a newer daemon."""

import copy
import pickle

import msgspec
import pytest

from onegate.protocol.enums import OpenEnum


class Colour(OpenEnum):
    """An example."""

    RED = "red"


def test_a_known_value_is_its_member() -> None:
    assert msgspec.convert("red", Colour) is Colour.RED
    assert Colour.RED.known


def test_an_unknown_value_survives_as_its_own_text() -> None:
    mauve = msgspec.convert("mauve", Colour)
    assert mauve == "mauve" == str(mauve) == mauve.value
    assert hash(mauve) == hash("mauve")
    assert not mauve.known
    assert mauve.name == "UNKNOWN"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(mauve)) == "mauve"


def test_it_is_not_kept() -> None:
    assert Colour("mauve") == Colour("mauve")
    assert list(Colour) == [Colour.RED]


def test_it_can_be_copied() -> None:
    assert copy.deepcopy(Colour("mauve")) == pickle.loads(pickle.dumps(Colour("mauve"))) == "mauve"


def test_what_is_no_text_is_no_value() -> None:
    with pytest.raises(ValueError, match="3"):
        Colour(3)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(3, Colour)
