"""The one interface between the gate and whatever generates text.

An engine has pools; a pool is one model that can be served. Requests go in by `generate`, pieces
of text come out of its iterator, and what happens to seats and pools is told to the sink that the
gate hands over in `start`. Every adapter passes the same contract suite.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    Identity,
    Message,
    Params,
    Think,
    Tok,
    TokenLogprob,
    TokId,
    Tool,
    ToolCall,
    ToolChoice,
    Usage,
)

# Bounds of what crosses the engine host's wire, judged where it is decoded: neither side computes
# with what is no number, or is less than nothing.
SeatId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, Meta(ge=1, le=2**32 - 1)]
_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Figure = Annotated[float, Meta(ge=0, le=1e15)]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the structs here; they cross the engine host's wire as they are."""


class Reservation(StrEnum):
    """How the engine itself reserves KV cache; charging less would move the queue into it."""

    FULL = "full"
    GROW = "grow"
    PER_SLOT = "per_slot"


class PoolState(StrEnum):
    """Whether a pool can generate. `cold` pools are loaded on demand."""

    COLD = "cold"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    RELEASED = "released"


class EngineCapacity(_Shape, frozen=True):
    """The pool's real limits, in its own units. None means the engine does not say.

    `max_seqs` sequences run at once; `kv_tok` tokens fit into the KV cache in blocks of
    `block_tok`; `max_step_tok` is the batch token limit of one step; `max_context_tok` bounds
    prompt plus output of one request. `max_bytes_per_tok` is the longest token of the vocabulary
    in UTF-8 bytes, from which a prompt can be proven too large before it is tokenised.
    """

    max_seqs: _Count
    max_context_tok: _Count
    reservation: Reservation
    kv_tok: _Count | None = None
    max_step_tok: _Count | None = None
    block_tok: _Count = 1
    max_bytes_per_tok: _Count | None = None


class Feature(StrEnum):
    """What a pool can do beyond streaming text.

    `resume_exact` goes on from tokens as if there had been no cut; `resume_guided` does so inside
    a given form, too, whose grammar goes on where the tokens end. `whole_prompts`: a prompt that
    does not fit is refused; without it, it may be cut to fit, and nobody is told.
    """

    ABORT = "abort"
    SCHEMA = "schema"
    LOGPROBS = "logprobs"
    PRIORITY = "priority"
    EMBEDDINGS = "embeddings"
    COUNTS_TOKENS = "counts_tokens"
    PREFIX_CACHE = "prefix_cache"
    RESUME_EXACT = "resume_exact"
    RESUME_GUIDED = "resume_guided"
    TOOLS = "tools"
    IMAGES = "images"
    THINKING = "thinking"
    SUFFIX = "suffix"
    TOKEN_IDS = "token_ids"
    WHOLE_PROMPTS = "whole_prompts"


# What a request can ask for; the others are how the gate goes about it.
_OFFERS = frozenset(
    {
        Feature.SCHEMA,
        Feature.LOGPROBS,
        Feature.EMBEDDINGS,
        Feature.TOOLS,
        Feature.IMAGES,
        Feature.THINKING,
        Feature.SUFFIX,
        Feature.TOKEN_IDS,
    }
)


class PoolInfo(_Shape, frozen=True):
    """One model that can be served. `params` lists the `Params` fields that it honours.

    `switch_cost_ms` is what loading it costs while another pool is loaded, None where unknown.
    """

    model: str
    state: PoolState
    capacity: EngineCapacity
    features: frozenset[Feature] = frozenset()
    params: frozenset[str] = frozenset()
    identity: Identity | None = None
    switch_cost_ms: _Figure | None = None
    load_ms: _Figure | None = None
    loads: _Number = 0
    error: str | None = None

    @property
    def offers(self) -> list[str]:
        """The features that a request can ask for, in alphabetical order."""
        return sorted(feature.value for feature in self.features & _OFFERS)


class EngineRequest(_Shape, frozen=True):
    """What an engine is given; nothing else about a request ever reaches it.

    `id` is unique within the daemon's life. Exactly one of `prompt`, `messages`, `prompt_tok_ids`
    is set; `resume_tok_ids` are output tokens of an earlier run that this one continues, of whose
    text the reader has already seen `resume_shown_chars` characters: the first chunk goes on after
    them, and stop strings are matched across the cut. `max_tokens` is always set (≥ 1) and counts
    new tokens; with `fit_max_tokens` the caller named no bound and the engine lowers it to what
    the context leaves instead of refusing. Usage counts the prompt without resumed tokens, and new
    tokens only. `rank` is the class's (0 first) for
    engines with priorities; `cache_salt` separates principals in prefix caches that can.
    """

    id: SeatId
    model: str
    max_tokens: _Count
    prompt: str | None = None
    messages: list[Message] | None = None
    prompt_tok_ids: list[TokId] | None = None
    resume_tok_ids: list[TokId] | None = None
    resume_shown_chars: _Number = 0
    fit_max_tokens: bool = False
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    think: Think | None = None
    suffix: str | None = None
    raw: bool = False
    params: Params = msgspec.field(default_factory=Params)
    rank: int = 0
    cache_salt: str = ""


class EmbedRequest(_Shape, frozen=True):
    """Texts to embed, one vector each."""

    id: int
    model: str
    input: list[str]


class EmbedResult(_Shape, frozen=True):
    """The vectors in the order of the input, and what they cost."""

    vectors: list[list[float]]
    usage: Usage


class TokenCount(_Shape, frozen=True):
    """How many tokens a prompt is; not `exact` where the engine can only estimate."""

    n_tok: int
    exact: bool


# --- what generate() yields -------------------------------------------------------------------


class Accepted(_Shape, frozen=True, tag="accepted"):
    """The engine took the request and has counted its prompt (None where it does not count)."""

    prompt_tok: int | None = None
    cached_tok: int | None = None


class Progress(_Shape, frozen=True, tag="progress"):
    """Prompt tokens computed so far, `prefilled_tok` of them. Only before the first chunk."""

    prefilled_tok: int


class EngineChunk(_Shape, frozen=True, tag="chunk"):
    """A piece of output; `n_tok` tokens were generated for it (text may lag behind tokens)."""

    n_tok: Tok
    text: str = ""
    kind: ChunkKind = ChunkKind.TEXT
    token_ids: list[TokId] | None = None
    logprobs: list[TokenLogprob] | None = None
    tool_call: ToolCall | None = None


class Finished(_Shape, frozen=True, tag="finished"):
    """The request ended of itself: the last thing its iterator yields."""

    finish_reason: FinishReason
    usage: Usage
    cached_tok: int | None = None


class Stopped(_Shape, frozen=True, tag="stopped"):
    """The request ended because `stop` was called, and had not finished first.

    Text that was held back, for a stop string or an unfinished character, is not told; a run that
    is resumed from the tokens tells it.
    """


GenerateItem = Accepted | Progress | EngineChunk | Finished | Stopped


# --- what the sink is told --------------------------------------------------------------------


class SeatFreed(_Shape, frozen=True, tag="seat_freed"):
    """The engine confirms that nothing of request `id` runs any more."""

    id: int


class PoolChanged(_Shape, frozen=True, tag="pool_changed"):
    """A pool's state, capacity or identity is now this."""

    pool: PoolInfo


class EngineLost(_Shape, frozen=True, tag="engine_lost"):
    """The engine died or was given up; every seat it held is gone with it.

    `ids` are the requests that were inside, `restarts` counts the losses so far.
    """

    ids: list[int]
    reason: str
    restarts: int


NoticeName = Literal[
    "engine_queueing", "foreign_load", "cold_load", "boundary", "offload", "engine_down"
]


class EngineNotice(_Shape, frozen=True, tag="engine_notice"):
    """Something about a pool that whoever runs it has to know; `detail` None: it is over. `model`
    None: about an engine that has no pool yet."""

    code: NoticeName
    model: str | None
    detail: str | None


EngineEvent = SeatFreed | PoolChanged | EngineLost | EngineNotice
Sink = Callable[[EngineEvent], None]


class EngineSnapshot(_Shape, frozen=True):
    """What the engine itself says, `age_ms` old. A missing figure is None, never 0.

    `step_ms_p50`/`_p95` are over the recent steps; `tok_per_s` counts output tokens.
    """

    model: str
    seats_used: _Number | None = None
    kv_tok_used: _Number | None = None
    waiting: _Number | None = None
    steps: _Number | None = None
    step_ms_p50: _Figure | None = None
    step_ms_p95: _Figure | None = None
    tok_per_s: _Figure | None = None
    cache_hit_tok: _Number | None = None
    rss_bytes: _Number | None = None
    age_ms: _Figure | None = None


class Health(_Shape, frozen=True):
    """Can this engine take requests now, and if not, why."""

    state: Literal["starting", "ready", "failed", "stopped"]
    detail: str = ""


# --- errors -----------------------------------------------------------------------------------


class EngineError(Exception):
    """Base of what an engine raises for a request. The seat's fate comes by `SeatFreed`."""


class EngineRefused(EngineError):
    """The engine will never take this request as it is; `path` names the offending field."""

    def __init__(self, message: str, *, path: str | None = None, unsupported: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.unsupported = unsupported


class EngineTooLarge(EngineError):
    """Prompt plus output exceed the context: `need_tok` against `limit_tok`."""

    def __init__(self, *, need_tok: int, limit_tok: int) -> None:
        super().__init__(f"{need_tok} tokens needed, {limit_tok} fit into the context")
        self.need_tok = need_tok
        self.limit_tok = limit_tok


class EngineUnavailable(EngineError):
    """The engine cannot take anything now; nothing of this request runs there.

    `retry_after_ms` is what the engine itself asked for, None where it did not.
    """

    def __init__(self, message: str, *, retry_after_ms: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class EngineBroke(EngineError):
    """The engine died, was given up, or failed this request after it had been sent."""


class EngineMalformed(EngineBroke):
    """The engine answered something that is not its protocol."""


# --- the interface ----------------------------------------------------------------------------


class Generation(Protocol):
    """The items of one running request. `aclose` aborts and returns at once; see `Engine`."""

    def __aiter__(self) -> AsyncIterator[GenerateItem]:
        """Itself."""

    def __anext__(self) -> Awaitable[GenerateItem]:
        """The next item; raises `EngineError`s."""

    def aclose(self) -> Awaitable[None]:
        """Abort; safe at any moment, twice, and after the end."""


class Engine(Protocol):
    """What the gate drives.

    Ownership of a seat: from the moment `generate` is first iterated until `SeatFreed(id)` or an
    `EngineLost` that lists the id, the seat belongs to the request, whoever still reads it.
    Exactly one of the two is told for every request that was iterated, also for one that was
    refused. Closing the iterator aborts, returns at once, and is safe at any moment, twice, and
    after death.
    """

    async def start(self, sink: Sink) -> None:
        """Begin to serve. `sink` is called on the event loop, never from within `generate`."""

    def pools(self) -> list[PoolInfo]:
        """Every pool there is, loaded or not."""

    def generate(self, request: EngineRequest) -> Generation:
        """Run one request; raises `EngineError`s. The iterator has `aclose()`."""

    def stop(self, id: int) -> None:
        """Ask the engine to stop a request while its reader stays: the iterator yields what was
        still produced and ends with `Stopped`, or with `Finished` if the request was faster.
        Unknown ids are ignored."""

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        """Embed texts; `EngineRefused(unsupported=True)` where the engine cannot."""

    async def count(
        self,
        model: str,
        *,
        prompt: str | None = None,
        raw: bool = False,
        messages: list[Message] | None = None,
        tools: list[Tool] | None = None,
    ) -> TokenCount:
        """Count tokens outside the queue; all but a raw prompt is rendered with the model's
        template."""

    def snapshot(self, model: str) -> EngineSnapshot | None:
        """The newest figures of a pool, or None when the engine has said nothing yet."""

    def health(self) -> Health:
        """What is known without asking anew; never blocks."""

    async def load(self, model: str) -> None:
        """Bring a pool into memory; returns when it is ready, raises `EngineUnavailable`."""

    def keep_cold(self, cold: bool) -> None:
        """From now on an engine that comes up, or up again, loads no pool by itself; or it does."""

    async def unload(self, model: str) -> None:
        """Free a pool's memory; running requests are aborted first."""

    async def aclose(self, deadline_s: float) -> None:
        """Stop and leave nothing behind within `deadline_s`; safe to call twice."""
