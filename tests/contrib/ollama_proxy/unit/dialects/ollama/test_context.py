"""`context`: a conversation in numbers, and what is none."""

from typing import Any

import pytest

from onegate.protocol.content import Message
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects.ollama.context import messages, pack, unpack

TURNS = [("system", "sei nett"), ("user", "Größe? 😀"), ("assistant", "")]


@pytest.mark.parametrize("turns", [TURNS, TURNS[:1], [], [("user", "x" * n) for n in range(5)]])
def test_what_was_packed_is_unpacked(turns: list[tuple[str, str]]) -> None:
    numbers = pack(turns)
    assert unpack(numbers) == turns
    # Clients keep them in whatever they keep tokens in.
    assert all(0 <= number < 2**31 for number in numbers)


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3], [0x6F6E6567]])
def test_tokens_of_a_model_are_not_understood(numbers: list[int]) -> None:
    with pytest.raises(BadAsk) as error:
        unpack(numbers)
    assert (error.value.reason, error.value.path) == (Reason.UNSUPPORTED, "context")


def _damaged() -> list[list[int]]:
    good = pack(TURNS)
    return [
        good[:-1],
        [*good, 5],
        [good[0], -1, *good[2:]],
        [*good[:-1], 2**24],
        [*good[:-1], -1],
        [good[0], good[1], *reversed(good[2:])],
        pack([("tool", "x")]),
        pack([("user", "x", "y")]),  # type: ignore[list-item]
    ]


@pytest.mark.parametrize("numbers", _damaged())
def test_a_damaged_one(numbers: list[int]) -> None:
    with pytest.raises(BadAsk, match="damaged"):
        unpack(numbers)


def test_the_turns_are_messages() -> None:
    found: Any = messages(TURNS[:2])
    assert found == [
        Message(role="system", content="sei nett"),
        Message(role="user", content="Größe? 😀"),
    ]
