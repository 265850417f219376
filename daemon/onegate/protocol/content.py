"""What a request is made of: messages, tools, parameters; and what an answer counts.

These shapes cross two wires, client to daemon and daemon to engine host, and are defined once,
here. Names follow the OpenAI API where it has one. What a caller writes rejects unknown fields,
so a misspelled parameter is an error and never silently ignored.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onegate.protocol.enums import OpenEnum

U32_MAX = 2**32 - 1

RequestId = Annotated[int, Meta(ge=0, le=U32_MAX, description="chosen by the client")]
Tok = Annotated[int, Meta(ge=0, le=U32_MAX, description="tokens")]
TokId = Annotated[int, Meta(ge=0, le=U32_MAX, description="a vocabulary id")]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Millis = Annotated[int, Meta(ge=0, le=2**53, description="milliseconds")]
PosMillis = Annotated[int, Meta(ge=1, le=2**40, description="milliseconds")]


class _Content(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of what a caller writes: immutable, keyword-only, strict about unknown fields."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what the engine says. Readers ignore fields that they do not know."""


class TextPart(_Content, frozen=True, tag_field="type", tag="text"):
    """A piece of text inside a message."""

    text: str


class ImagePart(_Content, frozen=True, tag_field="type", tag="image"):
    """An image as bytes. Never a URL: nothing here fetches anything on a caller's behalf."""

    data: bytes
    media_type: Annotated[str, Meta(pattern=r"^image/[a-z0-9.+-]{1,64}\Z")]


class FunctionCall(_Content, frozen=True):
    """A function that the model asks for; `arguments` is a JSON document as text."""

    name: Name
    arguments: str


class ToolCall(_Content, frozen=True):
    """A tool call in an assistant message or in a `Chunk`."""

    id: Annotated[str, Meta(max_length=256)]
    function: FunctionCall
    type: Literal["function"] = "function"


class Message(_Content, frozen=True):
    """One turn of a conversation, in OpenAI's roles."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart | ImagePart], Meta(max_length=256)] | None = None
    name: Name | None = None
    thinking: str | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=256)] | None = None
    tool_call_id: Annotated[str, Meta(max_length=256)] | None = None


class FunctionSpec(_Content, frozen=True):
    """A function the model may call; `parameters` is a JSON Schema."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Content, frozen=True):
    """A tool offered to the model."""

    function: FunctionSpec
    type: Literal["function"] = "function"


class NamedFunction(_Content, frozen=True):
    """The name inside a forced tool choice."""

    name: Name


class ForcedTool(_Content, frozen=True):
    """A tool choice that forces one function."""

    function: NamedFunction
    type: Literal["function"] = "function"


ToolChoice = Literal["auto", "none", "required"] | ForcedTool
Think = bool | Literal["low", "medium", "high", "max"]


class JsonSchema(_Content, frozen=True):
    """The schema of a `json_schema` response format."""

    schema: dict[str, Any]
    name: Name | None = None
    strict: bool | None = None


class ResponseFormat(_Content, frozen=True):
    """What the text must parse as; `json_schema` is given exactly when `type` says so."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Params(_Content, frozen=True):
    """Sampling and stopping. Unset means the engine's own default, except `max_tokens`.

    A parameter that the engine cannot honour is refused with `invalid`, naming it.
    """

    max_tokens: Annotated[int, Meta(ge=1, le=U32_MAX)] | UnsetType = UNSET
    min_tokens: Annotated[int, Meta(ge=0, le=U32_MAX)] | UnsetType = UNSET
    ignore_eos: bool | UnsetType = UNSET
    temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType = UNSET
    top_p: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    top_k: Annotated[int, Meta(ge=0, le=U32_MAX)] | UnsetType = UNSET
    min_p: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType = UNSET
    stop: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=1024)]], Meta(max_length=16)]
        | UnsetType
    ) = UNSET
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | UnsetType = UNSET
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | UnsetType = UNSET
    repeat_penalty: Annotated[float, Meta(gt=0, le=10)] | UnsetType = UNSET
    response_format: ResponseFormat | UnsetType = UNSET
    logprobs: bool | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | UnsetType = UNSET


class Usage(_Answer, frozen=True):
    """Tokens of one request as the engine counted them, not as anybody estimated them."""

    prompt_tok: Tok
    output_tok: Tok


class FinishReason(OpenEnum):
    """Why generation ended of itself."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class ChunkKind(OpenEnum):
    """What a piece of an answer is."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"


class TopLogprob(_Answer, frozen=True):
    """One alternative at a position."""

    token: str
    logprob: float


class TokenLogprob(_Answer, frozen=True):
    """The log-probability of one emitted token, with its alternatives if asked for."""

    token: str
    logprob: float
    top: list[TopLogprob] | None = None


class Identity(_Answer, frozen=True):
    """What answered. It comes from the engine, never from the request.

    `digest_kind` says what was hashed; `launch` is the command that reproduces the engine, with
    secrets redacted; `boundary` says whether the text left this machine.
    """

    engine: str
    model: str
    engine_version: str | None = None
    digest: str | None = None
    digest_kind: str | None = None
    launch: str | None = None
    boundary: Literal["local", "remote", "unknown"] = "unknown"
