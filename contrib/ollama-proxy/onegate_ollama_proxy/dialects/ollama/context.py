"""`context` of /api/generate: the conversation so far, which the client sends back as it is.

With Ollama it is the tokens of one model. Here it is the conversation's text, packed into the
numbers that clients expect, so that nothing has to be remembered between two requests, and any
engine can go on from it.
"""

from typing import Final

import msgspec

from onegate.protocol.content import Message
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.fields import unsupported

# It begins with a number that no vocabulary reaches, and then says how many bytes follow.
_MARK: Final = 0x6F6E_6567
_BYTES_PER_NUMBER: Final = 3

_Turns = list[tuple[str, str]]
_WORDS = {"system": "system", "user": "user", "assistant": "assistant"}


def pack(turns: list[tuple[str, str]]) -> list[int]:
    """The conversation as numbers, each below 2^24."""
    data = msgspec.json.encode(turns)
    padded = data + b"\0" * (-len(data) % _BYTES_PER_NUMBER)
    return [
        _MARK,
        len(data),
        *(
            int.from_bytes(padded[i : i + _BYTES_PER_NUMBER], "big")
            for i in range(0, len(padded), _BYTES_PER_NUMBER)
        ),
    ]


def unpack(numbers: list[int]) -> list[tuple[str, str]]:
    """The conversation. Raises BadAsk for numbers that are none of this proxy's."""
    if len(numbers) < 2 or numbers[0] != _MARK:
        raise unsupported(
            "context", "this context is not from here: leave it out, or use /api/chat"
        )
    try:
        data = b"".join(number.to_bytes(_BYTES_PER_NUMBER, "big") for number in numbers[2:])
        if not 0 <= len(data) - numbers[1] < _BYTES_PER_NUMBER:
            raise ValueError("another length")
        turns = msgspec.json.decode(data[: numbers[1]], type=_Turns)
    except (ValueError, OverflowError):
        raise BadAsk("context is damaged: leave it out", path="context") from None
    if any(role not in _WORDS for role, _ in turns):
        raise BadAsk("context is damaged: leave it out", path="context")
    return turns


def messages(turns: list[tuple[str, str]]) -> list[Message]:
    """The turns as messages."""
    return [Message(role=role, content=text) for role, text in turns]  # type: ignore[arg-type]
