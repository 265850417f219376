"""How many tokens a prompt is before the engine has counted it, and how much memory it holds.

Bytes over a learned ratio are the estimate that a request is queued with. What is provable from
bytes alone is kept apart from what is guessed: only a proof may refuse.
"""

from sys import getsizeof
from typing import Any

import msgspec

from onegate.engines.base import EngineCapacity
from onegate.protocol.content import Message, TextPart, Tool

# English text is 4 to 5 bytes a token, code 3 to 4; charging a little too much at first is safe.
START_BYTES_PER_TOK = 3.0
# A vocabulary has no token of less than a byte, and no template that adds more than this a message.
TEMPLATE_TOK_PER_MESSAGE = 32
EWMA = 0.1
# An int in a list: its pointer, and the object that CPython makes of all but the smallest.
INT_BYTES = 40
# What a request costs beside its message: its task, frames and futures. 4.6 KB were measured on
# CPython 3.11; empty requests in great number are bounded by it.
REQUEST_BYTES = 8192


def text_bytes(prompt: str | None, messages: list[Message] | None) -> int:
    """UTF-8 bytes of the text that the model reads whatever its template does."""
    total = len(prompt.encode()) if prompt is not None else 0
    for message in messages or ():
        if isinstance(message.content, str):
            total += len(message.content.encode())
        elif message.content is not None:
            total += sum(len(p.text.encode()) for p in message.content if isinstance(p, TextPart))
    return total


def template_bytes(messages: list[Message] | None, tools: list[Tool] | None) -> int:
    """UTF-8 bytes of what a template may render and may leave out: tools, calls, thinking."""
    total = 0
    for message in messages or ():
        total += len((message.thinking or "").encode())
        for call in message.tool_calls or ():
            total += len(call.function.name.encode()) + len(call.function.arguments.encode())
    for tool in tools or ():
        total += len(msgspec.json.encode(tool))
    return total


def held_bytes(message: msgspec.Struct) -> int:
    """Memory that a request occupies, down to its last string: images, schemas, everything."""
    total = REQUEST_BYTES
    left: list[Any] = [message]
    while left:
        node = left.pop()
        total += getsizeof(node)
        if isinstance(node, msgspec.Struct):
            left.extend(getattr(node, field) for field in node.__struct_fields__)
        elif isinstance(node, dict):
            left.extend(node)
            left.extend(node.values())
        elif isinstance(node, list):
            if node and isinstance(node[0], int):
                total += INT_BYTES * len(node)
            else:
                left.extend(node)
    return total


class PromptSizes:
    """Learned bytes per token, one ratio per model."""

    def __init__(self) -> None:
        self._ratio: dict[str, float] = {}

    def estimate(self, model: str, n_bytes: int, n_messages: int) -> int:
        """Tokens of a prompt of `n_bytes` in `n_messages` turns."""
        ratio = self._ratio.get(model, START_BYTES_PER_TOK)
        return max(1, round(n_bytes / ratio) + TEMPLATE_TOK_PER_MESSAGE // 2 * n_messages)

    def learn(self, model: str, n_bytes: int, n_messages: int, prompt_tok: int) -> None:
        """The engine has counted `prompt_tok` for such a prompt."""
        text_tok = prompt_tok - TEMPLATE_TOK_PER_MESSAGE // 2 * n_messages
        if n_bytes < 64 or text_tok < 8:
            return  # mostly template: says nothing about text
        seen = min(16.0, max(1.0, n_bytes / text_tok))
        old = self._ratio.get(model, seen)
        self._ratio[model] = old + EWMA * (seen - old)


def least_tok(capacity: EngineCapacity, n_bytes: int) -> int:
    """The fewest tokens `n_bytes` of text can be; 1 where the vocabulary is not known."""
    if capacity.max_bytes_per_tok is None:
        return 1
    return max(1, -(-n_bytes // capacity.max_bytes_per_tok))


def most_tok(n_bytes: int, n_messages: int) -> int:
    """The most tokens `n_bytes` of text in `n_messages` turns can be."""
    return n_bytes + TEMPLATE_TOK_PER_MESSAGE * (n_messages + 1)
