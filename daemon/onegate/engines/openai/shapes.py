"""What servers answer, as far as it is read. Everything else in it is ignored."""

from typing import Annotated

from msgspec import Meta, Struct

# Above any real number of tokens, below what cannot be reckoned with.
N = Annotated[int, Meta(ge=0, le=1_000_000_000)]
# What is quoted to people or compared as a name.
Text = Annotated[str, Meta(max_length=4096)]
Index = Annotated[int, Meta(ge=0, le=255)]
Logprob = Annotated[float, Meta(ge=-1e9, le=1e9)]


class Function(Struct):
    """A piece of a function call."""

    name: Text | None = None
    arguments: str | None = None


class CallPiece(Struct):
    """A piece of a tool call; pieces of one call have one index."""

    index: Index = 0
    id: Text | None = None
    function: Function | None = None


class Delta(Struct):
    """What a piece of a chat answer adds."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPiece] | None = None


class Alternative(Struct):
    """A token that could have been."""

    token: Text
    logprob: Logprob


class TokenPiece(Struct):
    """A token that is, with its alternatives."""

    token: Text
    logprob: Logprob
    top_logprobs: list[Alternative] | None = None


class Logprobs(Struct):
    """Of a chat answer (`content`), or of the older route (the others, side by side)."""

    content: list[TokenPiece] | None = None
    tokens: list[Text] | None = None
    token_logprobs: list[Logprob | None] | None = None
    top_logprobs: list[dict[str, Logprob] | None] | None = None


class Choice(Struct):
    """One answer of those asked for, which is one."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: Text | None = None
    logprobs: Logprobs | None = None


class PromptDetails(Struct):
    """What the prompt's tokens were."""

    cached_tokens: N | None = None


class UsagePiece(Struct):
    """What was used, so far or in all."""

    prompt_tokens: N | None = None
    completion_tokens: N | None = None
    prompt_tokens_details: PromptDetails | None = None


class PromptProgress(Struct):
    """How far llama-server is with the prompt."""

    total: N
    cache: N = 0
    processed: N = 0


class ErrorBody(Struct):
    """What went wrong, in the server's words."""

    message: str | None = None
    type: str | None = None
    code: int | str | None = None
    param: str | None = None
    n_prompt_tokens: N | None = None
    n_ctx: N | None = None


class Piece(Struct):
    """One event of a stream. Some servers say `error` as a text, some as a table."""

    choices: list[Choice] = []
    usage: UsagePiece | None = None
    error: ErrorBody | str | None = None
    prompt_progress: PromptProgress | None = None


class ErrorAnswer(Struct):
    """An answer that is an error, in the three shapes that servers use."""

    error: ErrorBody | str | None = None
    message: str | None = None
    detail: str | list[object] | dict[str, object] | None = None
    code: int | str | None = None


class ModelMeta(Struct):
    """What llama-server says of a model."""

    n_ctx: N | None = None
    n_ctx_train: N | None = None
    n_params: int | None = None
    size: int | None = None
    ftype: Text | None = None


class Listed(Struct):
    """One model of `/v1/models`."""

    id: Text
    owned_by: Text | None = None
    root: Text | None = None
    parent: Text | None = None
    max_model_len: N | None = None
    meta: ModelMeta | None = None


class ModelList(Struct):
    """`/v1/models`."""

    data: list[Listed]


class Modalities(Struct, frozen=True):
    """What llama-server's model reads."""

    vision: bool = False


class TemplateCaps(Struct, frozen=True):
    """What llama-server found in the model's template."""

    supports_tools: bool = False
    supports_tool_calls: bool = False


class Props(Struct):
    """llama-server's `/props`."""

    total_slots: Annotated[int, Meta(ge=1, le=100_000)]
    model_path: Text | None = None
    build_info: Text | None = None
    chat_template: str = ""
    modalities: Modalities = Modalities()
    chat_template_caps: TemplateCaps = TemplateCaps()


class Slot(Struct):
    """One of llama-server's `/slots`. Tasks are numbered as they come."""

    is_processing: bool = False
    id_task: int | None = None


class Version(Struct):
    """`/version`."""

    version: Text


class LlamaTokens(Struct):
    """llama-server's `/tokenize`."""

    tokens: list[object]


class Rendered(Struct):
    """llama-server's `/apply-template`."""

    prompt: str


class VllmTokens(Struct):
    """vLLM's `/tokenize`."""

    count: N


class Vector(Struct):
    """One of `/v1/embeddings`."""

    embedding: list[float]
    index: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class Embedded(Struct):
    """`/v1/embeddings`."""

    data: list[Vector]
    usage: UsagePiece | None = None
