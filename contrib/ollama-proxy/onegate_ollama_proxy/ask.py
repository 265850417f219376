"""What an HTTP client asks for, whatever dialect it said it in.

A dialect turns the bytes of a body into one of these, or raises `BadAsk`. It does so without
knowing who asks and what the gate can do; what depends on that (the name of the model, the class's
maximum, the size of the context) is applied afterwards, once for all dialects. Messages, tools and
parameters are the wire's own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from onegate.protocol.content import Message, Params, Think, Tool, ToolChoice
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.answer import EmbedWriter, TextWriter


class BadAsk(Exception):
    """A request that never reaches the gate: `sentence` says what to do, `path` which field.

    `reason` is INVALID for what is wrong, UNSUPPORTED for what would change the meaning and cannot
    be done here.
    """

    def __init__(
        self, sentence: str, *, path: str | None = None, reason: Reason = Reason.INVALID
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.path = path
        self.reason = reason


class Fate(StrEnum):
    """What becomes of a parameter. The README's tables are held against these."""

    HONOURED = "honoured"
    HARMLESS = "harmless"  # accepted and left out, with a notice in the log
    REFUSED = "refused"  # leaving it out would change the meaning: an error that says so


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of a dialect's table; `says` is the sentence for people."""

    name: str
    fate: Fate
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAsk:
    """Ask for text: exactly one of `prompt` and `messages`.

    model        as the client spelled it
    context_tok  the context that the client wants the model to have; more than it has is refused
    truncate     what is too long is cut from the oldest messages on, with a notice
    notices      what was accepted and left out, one sentence each, without content of the request
    """

    model: str
    stream: bool
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    think: Think | None = None
    suffix: str | None = None
    raw: bool = False
    params: Params = field(default_factory=Params)
    context_tok: int | None = None
    truncate: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedAsk:
    """Ask for one vector for each of `inputs`; `dimensions` cuts each to that many figures."""

    model: str
    inputs: tuple[str, ...]
    dimensions: int | None = None
    truncate: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAsk:
    """Only bring a model into memory, or with `unload` out of it; nothing is generated."""

    model: str
    unload: bool = False
    notices: tuple[str, ...] = ()


class TextExchange(NamedTuple):
    """A request for text, and who writes its answer."""

    ask: TextAsk
    writer: TextWriter


class EmbedExchange(NamedTuple):
    """A request for vectors, and who writes its answer."""

    ask: EmbedAsk
    writer: EmbedWriter


class LoadExchange(NamedTuple):
    """A request that loads or unloads, and its answer: one JSON document, also for a stream."""

    ask: LoadAsk
    document: Callable[[int], bytes]  # of the nanoseconds that it took


Exchange = TextExchange | EmbedExchange | LoadExchange


@dataclass(frozen=True, slots=True)
class Route:
    """A POST route that goes through the gate. `parse` gets the body; it raises `BadAsk`."""

    path: str
    dialect: str  # "ollama", "openai" or "anthropic": how a refusal looks
    parse: Callable[[bytes], Exchange]
