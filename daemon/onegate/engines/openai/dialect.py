"""See `http.dialect.Dialect`: a server that speaks the OpenAI API."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from onegate.clock import monotonic_ns
from onegate.config import OpenAiConfig
from onegate.engines.base import (
    EmbedRequest,
    EmbedResult,
    EngineError,
    EngineMalformed,
    EngineNotice,
    EngineRefused,
    EngineRequest,
    EngineUnavailable,
    PoolInfo,
    TokenCount,
)
from onegate.engines.http.dialect import Call, Leaving, Phase, Watched
from onegate.engines.http.documents import SPARE_PARTS, check_sparse, document
from onegate.engines.http.link import MAX_VECTORS_BYTES, HttpLink, HttpStatus
from onegate.engines.openai.decoder import StreamDecoder
from onegate.engines.openai.figures import Figures, figures, takes_priority
from onegate.engines.openai.flavours import NONE, Flavour
from onegate.engines.openai.refusal import refusal_of
from onegate.engines.openai.shapes import Embedded, LlamaTokens, Rendered, VllmTokens
from onegate.engines.openai.survey import Survey, missing_pools, offload_of, pools_of, survey
from onegate.engines.openai.wording import call_of, messages_of, tools_of
from onegate.protocol.content import Message, Params, Tool, Usage

_NS_PER_S = 1_000_000_000
# One look serves every seat that leaves at the same moment.
_FRESH_NS = 50_000_000
# Where nothing shows what runs: what a server needs at most to see that a connection was closed.
_BLIND_NS = 2 * _NS_PER_S
# vLLM lets go of whatever was left within 0.5 s, llama-server of what it was sending within 0.05 s.
# What their figures show longer than this is somebody else's, who came since the last look.
_SURELY_NS = 5 * _NS_PER_S
# A question to a llama-server puts off, by up to a second, that it looks whether the others'
# connections are still there: asked more often, it would never look.
_SELDOM_S = 2.0
_OFTEN_S = 0.2
_PRIORITY_AGAIN_NS = 60 * _NS_PER_S
_EMBED_S = 120.0


class OpenAiDialect:
    """Which server it is comes with the first probe. `boundary` is where the address leads."""

    name = "openai"
    # llama-server lets go of a running stream within 0.05 s, vLLM within 0.3 s.
    confirm_first_s = 0.1
    frees_in_decode = False

    def __init__(self, config: OpenAiConfig, *, boundary: str) -> None:
        self._config = config
        self._boundary = boundary
        self.confirm_every_s = _SELDOM_S
        self._flavour = NONE
        self._priority = False
        # How much of the models is on no GPU, and what of that has been told.
        self._offload: str | None = None
        self._offload_told: str | None = None
        # For which server, in which version, the above was found out.
        self._asked: tuple[str, str | None] | None = None
        self._asked_ns = 0
        self._models: list[str] = []
        self._figures = Figures()
        self._counted_ns = -_FRESH_NS
        # Of each request that leaves: the tasks that ran when it was first asked for and still do.
        self._suspects: dict[int, frozenset[int]] = {}

    @property
    def flavour(self) -> Flavour:
        """Which server it is."""
        return self._flavour

    async def probe(self, link: HttpLink) -> list[PoolInfo]:
        self._asked = None
        self._asked_ns = 0
        self._suspects.clear()
        return await self._pools(link)

    async def watch(self, link: HttpLink) -> Watched:
        pools = await self._pools(link)
        seen = (await self._count(link)).of
        return Watched(
            pools=pools,
            snapshots=[seen[m] for m in self._models if m in seen],
            notices=self._news(),
        )

    def _news(self) -> list[EngineNotice]:
        if self._offload == self._offload_told:
            return []
        self._offload_told = detail = self._offload
        return [EngineNotice(code="offload", model=m, detail=detail) for m in self._models]

    async def _pools(self, link: HttpLink) -> list[PoolInfo]:
        found: Survey = await survey(link, self._config)
        await self._ask_priority(link, found)
        self._flavour = found.flavour
        self._offload = offload_of(found)
        self.confirm_every_s = _OFTEN_S if found.flavour.counts == "vllm" else _SELDOM_S
        pools = pools_of(found, self._config, boundary=self._boundary, priority=self._priority)
        self._models = [pool.model for pool in pools]
        return pools + missing_pools(found, self._config)

    async def _ask_priority(self, link: HttpLink, found: Survey) -> None:
        asked = (found.flavour.name, found.version)
        now_ns = monotonic_ns()
        if asked == self._asked or (
            self._asked_ns and now_ns - self._asked_ns < _PRIORITY_AGAIN_NS
        ):
            return
        said = await takes_priority(link, found.flavour, found.models[0].id)
        self._priority = said is True
        self._asked = None if said is None else asked
        self._asked_ns = now_ns if said is None else 0

    def call(self, request: EngineRequest, pool: PoolInfo) -> Call:
        return call_of(request, pool, self._flavour, priority=self._priority)

    def decoder(self, request: EngineRequest, pool: PoolInfo) -> StreamDecoder:
        return StreamDecoder(
            prompt_bytes=_prompt_bytes(request),
            max_tokens=request.max_tokens,
            limit_tok=pool.capacity.max_context_tok,
            fits=request.fit_max_tokens,
            top_logprobs=_top_logprobs(request.params),
        )

    def refusal(self, status: int, body: bytes, retry_after_ms: float | None) -> EngineError:
        return refusal_of(status, body, retry_after_ms)

    async def confirm(self, link: HttpLink, leaving: Leaving) -> bool:
        found = await self._count(link)
        gone = self._is_gone(leaving, found)
        if gone:
            self._suspects.pop(leaving.id, None)
        return gone

    def _is_gone(self, leaving: Leaving, found: Figures) -> bool:
        left_ns = monotonic_ns() - leaving.since_ns
        seen = found.of.get(leaving.model)
        if seen is None or seen.seats_used is None:
            return left_ns > _BLIND_NS
        if seen.seats_used + (seen.waiting or 0) - leaving.foreign <= leaving.others:
            return True
        if left_ns > _SURELY_NS and (
            self._flavour.counts == "vllm" or leaving.phase is Phase.DECODE
        ):
            return True
        if found.tasks is None or seen.waiting:
            return False
        # Whoever has come since is not the one that left.
        suspects = self._suspects.get(leaving.id, found.tasks) & found.tasks
        self._suspects[leaving.id] = suspects
        return len(suspects) - leaving.foreign <= leaving.older

    async def _count(self, link: HttpLink) -> Figures:
        if monotonic_ns() - self._counted_ns >= _FRESH_NS:
            self._figures = await figures(link, self._flavour, self._models)
            self._counted_ns = monotonic_ns()
        return self._figures

    async def embed(self, link: HttpLink, request: EmbedRequest) -> EmbedResult:
        body = {"model": request.model, "input": request.input, "encoding_format": "float"}
        with _refusals():
            data = await link.post(
                "/v1/embeddings",
                msgspec.json.encode(body),
                timeout_s=_EMBED_S,
                max_bytes=MAX_VECTORS_BYTES,
            )
        # A row is an object with a list.
        check_sparse(data, 2 * len(request.input) + SPARE_PARTS)
        found = document(data, Embedded)
        vectors: list[list[float] | None] = [None] * len(request.input)
        for row in found.data:
            if row.index >= len(vectors) or not all(map(math.isfinite, row.embedding)):
                raise EngineMalformed("the engine's vectors are not those that were asked for")
            vectors[row.index] = row.embedding
        whole = [vector for vector in vectors if vector is not None]
        if len(whole) != len(vectors):
            raise EngineMalformed("the engine gave fewer vectors than texts")
        said = None if found.usage is None else found.usage.prompt_tokens
        prompt_tok = said or sum(1 + len(text.encode()) // 4 for text in request.input)
        return EmbedResult(vectors=whole, usage=Usage(prompt_tok=prompt_tok, output_tok=0))

    async def count(
        self,
        link: HttpLink,
        model: str,
        *,
        prompt: str | None,
        raw: bool,
        messages: list[Message] | None,
        tools: list[Tool] | None,
    ) -> TokenCount:
        said = [{"role": "user", "content": prompt}]
        if messages is not None:
            said = messages_of(messages)
        offered: dict[str, Any] = {} if tools is None else {"tools": tools_of(tools)}
        match self._flavour.tokenizes:
            case "vllm":
                body = {"prompt": prompt} if raw else {"messages": said, **offered}
                data = await self._ask(link, "/tokenize", {"model": model, **body})
                return TokenCount(n_tok=document(data, VllmTokens).count, exact=True)
            case "llama":
                text = prompt or ""
                if not raw:
                    asked = {"messages": said, **offered}
                    data = await self._ask(link, "/apply-template", asked)
                    text = document(data, Rendered).prompt
                body = {"content": text, "add_special": True, "parse_special": True}
                data = await self._ask(link, "/tokenize", body)
                return TokenCount(n_tok=len(document(data, LlamaTokens).tokens), exact=True)
            case _:
                raise EngineRefused("the engine counts no tokens", unsupported=True)

    async def load(self, link: HttpLink, model: str) -> None:
        raise EngineUnavailable("the server loads its models itself: start it with this one")

    async def unload(self, link: HttpLink, model: str) -> None:
        raise EngineUnavailable("the server keeps its models: stop it to free their memory")

    async def _ask(self, link: HttpLink, path: str, body: dict[str, Any]) -> bytes:
        with _refusals():
            return await link.post(path, msgspec.json.encode(body))


def _top_logprobs(params: Params) -> int | None:
    if params.logprobs is not True:
        return None
    return params.top_logprobs if isinstance(params.top_logprobs, int) else 0


@contextmanager
def _refusals() -> Iterator[None]:
    """An answer that is none raises what it means."""
    try:
        yield
    except HttpStatus as status:
        raise refusal_of(status.status, status.body, status.retry_after_ms) from status


def _prompt_bytes(request: EngineRequest) -> int:
    """Roughly, for the estimate where a server does not say what was used."""
    if request.prompt_tok_ids is not None:
        return 4 * len(request.prompt_tok_ids)
    if request.messages is not None:
        parts = (message.content for message in request.messages)
        return sum(len(part) if isinstance(part, str) else 0 for part in parts)
    return len(request.prompt or "")
