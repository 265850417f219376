"""What Ollama answers, as far as it is read. Fields that are not named here are skipped.

Numbers are bounded where they are decoded: nothing here computes with less than nothing. Ollama
leaves out what is zero.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

Tokens = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Nanoseconds = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Bytes = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# Names, digests and hosts are shown to people: none has a control character, which a terminal would
# obey and a line of a list would end at.
Text = Annotated[str, Meta(max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is only read."""


class VersionAnswer(_Shape, frozen=True):
    """GET /api/version."""

    version: Text


class Cloud(_Shape, frozen=True):
    """Whether requests for models at ollama.com are refused by the server itself."""

    disabled: bool = False


class StatusAnswer(_Shape, frozen=True):
    """GET /api/status."""

    cloud: Cloud = Cloud()


class Tag(_Shape, frozen=True):
    """One model of the store. An alias of a model elsewhere names its host."""

    name: Text
    digest: Text = ""
    remote_host: Text = ""
    remote_model: Text = ""


class TagsAnswer(_Shape, frozen=True):
    """GET /api/tags."""

    models: list[Tag] | None = None


class Loaded(_Shape, frozen=True):
    """One loaded model: `size` bytes in all, `size_vram` of them on the GPU."""

    name: Text
    digest: Text = ""
    size: Bytes = 0
    size_vram: Bytes = 0
    context_length: Tokens = 0


class PsAnswer(_Shape, frozen=True):
    """GET /api/ps."""

    models: list[Loaded] | None = None


class ShowAnswer(_Shape, frozen=True):
    """POST /api/show. `parameters` is text, one a line."""

    parameters: str = ""
    capabilities: list[Text] | None = None
    model_info: dict[str, msgspec.Raw] | None = None
    remote_host: Text = ""
    remote_model: Text = ""


class FunctionSaid(_Shape, frozen=True):
    """The function that the model calls; `arguments` is an object."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class ToolCallSaid(_Shape, frozen=True):
    """A whole tool call: Ollama does not stream parts of one."""

    function: FunctionSaid
    id: Annotated[str, Meta(max_length=256)] = ""


class MessageSaid(_Shape, frozen=True):
    """A piece of a chat's answer."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[ToolCallSaid] | None = None


class TopSaid(_Shape, frozen=True):
    """One alternative of a token."""

    token: str
    logprob: float


class LogprobSaid(_Shape, frozen=True):
    """The log-probability of one token."""

    token: str
    logprob: float
    top_logprobs: list[TopSaid] | None = None


class Line(_Shape, frozen=True):
    """One line of an answer of /api/chat or /api/generate, or the error that ends it.

    The last one has `done` and the counts. `load_duration` is all the time until a runner was in
    hand: waiting for another model's load is in it.
    """

    error: str | None = None
    message: MessageSaid | None = None
    response: str = ""
    thinking: str = ""
    logprobs: list[LogprobSaid] | None = None
    done: bool = False
    done_reason: Text = ""
    remote_host: Text = ""
    load_duration: Nanoseconds = 0
    prompt_eval_count: Tokens | None = None
    eval_count: Tokens | None = None


class EmbedAnswer(_Shape, frozen=True):
    """POST /api/embed."""

    embeddings: list[list[float]]
    prompt_eval_count: Tokens = 0
    load_duration: Nanoseconds = 0


class ErrorAnswer(_Shape, frozen=True):
    """The body of an answer that is not 200."""

    error: str = ""
