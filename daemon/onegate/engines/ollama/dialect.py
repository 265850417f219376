"""Ollama behind the HTTP base: what it has, what it is sent, and what its answers mean."""

import asyncio
import math
from collections.abc import Callable

from msgspec import structs

from onegate.clock import monotonic_ns
from onegate.config import OllamaConfig
from onegate.engines.base import (
    EmbedRequest,
    EmbedResult,
    EngineBroke,
    EngineError,
    EngineMalformed,
    EngineNotice,
    EngineRefused,
    EngineRequest,
    EngineUnavailable,
    PoolInfo,
    PoolState,
    TokenCount,
)
from onegate.engines.http.dialect import Call, Leaving, Watched
from onegate.engines.http.documents import SPARE_PARTS, check_sparse, document, encode
from onegate.engines.http.link import MAX_VECTORS_BYTES, HttpLink, HttpStatus
from onegate.engines.ollama.answer import AnswerReader
from onegate.engines.ollama.canary import has_free_seat
from onegate.engines.ollama.loads import was_cold
from onegate.engines.ollama.model import EMBEDDING, Known
from onegate.engines.ollama.refusal import refusal
from onegate.engines.ollama.request import EMBED, GENERATE, call_of, pinned
from onegate.engines.ollama.shapes import EmbedAnswer
from onegate.engines.ollama.store import Store, text_of
from onegate.protocol.content import Message, Tool, Usage

_NS_PER_MS = 1e6
# Ollama itself gives up a load that makes no progress for five minutes.
_LOAD_S = 600.0
_CANARY_S = 10.0
_UNNEEDED_NS = 30_000_000_000
# Ollama answers that it unloads, and does so when nothing uses the model any more.
_UNLOAD_LOOKS = 100
_UNLOAD_LOOK_S = 0.1
_MAX_VECTOR = 65_536


class OllamaDialect:
    """See `http.dialect.Dialect`. One pool for each configured model, in that order."""

    name = "ollama"
    confirm_first_s = 0.0
    confirm_every_s = 0.5
    frees_in_decode = True

    def __init__(
        self,
        config: OllamaConfig,
        *,
        boundary: str,
        allow_remote: bool,
        log: Callable[[str], None],
        expects_gpu: bool = True,
    ) -> None:
        self._keep_alive_s = config.idle_unload_s
        self._embed_s = config.first_timeout_s
        self._store = Store(
            config, boundary=boundary, allow_remote=allow_remote, log=log, expects_gpu=expects_gpu
        )
        # Two loads at once would evict each other, and who waits for one would wait for both.
        self._load_turn = asyncio.Lock()
        self._notices: list[EngineNotice] = []

    def first_pools(self) -> list[PoolInfo]:
        """The pools before the server has said anything."""
        return [structs.replace(pool, state=PoolState.LOADING) for pool in self._store.pools()]

    async def probe(self, link: HttpLink) -> list[PoolInfo]:
        await self._store.learn(link)
        return self._store.pools()

    async def watch(self, link: HttpLink) -> Watched:
        await self._store.look(link)
        notices, self._notices = self._notices, []
        return Watched(pools=self._store.pools(), notices=notices + self._store.offloads())

    # --- requests ---------------------------------------------------------------------------

    def call(self, request: EngineRequest, pool: PoolInfo) -> Call:
        return call_of(request, pool, self._store[request.model], self._keep_alive_s)

    def decoder(self, request: EngineRequest, pool: PoolInfo) -> AnswerReader:
        return AnswerReader(
            request.id,
            max_context_tok=pool.capacity.max_context_tok,
            ear=_Ear(self._store, self._store[request.model], self._hear),
            want_logprobs=request.params.logprobs is True,
        )

    def _hear(self, notice: EngineNotice) -> None:
        self._notices.append(notice)

    def refusal(self, status: int, body: bytes, retry_after_ms: float | None) -> EngineError:
        error = refusal(status, body)
        if isinstance(error, EngineUnavailable) and retry_after_ms is not None:
            return EngineUnavailable(str(error), retry_after_ms=retry_after_ms)
        return error

    async def confirm(self, link: HttpLink, leaving: Leaving) -> bool:
        """In decode Ollama stops at the next token. Before that it may go on with the prompt to its
        end, and only a token of somebody else shows that it is done; as with one that has said
        nothing for too long, or was lost."""
        known = self._store[leaving.model]
        if self._store.is_remote(known):
            return True
        await self._store.look(link)
        if known.loaded is None:
            return True  # what is not in memory runs nothing, and a canary would load it
        if self._can_wait(known, leaving):
            return False
        try:
            return await has_free_seat(
                link, known, self._keep_alive_s, others=leaving.others, within_s=_CANARY_S
            )
        except HttpStatus:
            return False  # a runner that has just died, or a full queue: the next one will tell

    def _can_wait(self, known: Known, leaving: Leaving) -> bool:
        """Beside some that run, and with other seats free, nobody needs this one yet; and as many
        canaries as there are free seats would be in the way of whoever comes."""
        if leaving.others in (0, known.config.max_seqs - 1):
            return False
        return monotonic_ns() - leaving.since_ns < _UNNEEDED_NS

    # --- everything else --------------------------------------------------------------------

    async def embed(self, link: HttpLink, request: EmbedRequest) -> EmbedResult:
        known = self._store[request.model]
        if known.facts is None or EMBEDDING not in known.facts.capabilities:
            raise EngineRefused(f"{known.name} makes no embeddings", path="model", unsupported=True)
        body = {**pinned(known, self._keep_alive_s), "input": request.input}
        try:
            data = await link.post(
                EMBED, encode(body), timeout_s=self._embed_s, max_bytes=MAX_VECTORS_BYTES
            )
        except HttpStatus as status:
            raise refusal(status.status, status.body) from None
        check_sparse(data, len(request.input) + SPARE_PARTS)
        answer = document(data, EmbedAnswer)
        _check_vectors(answer.embeddings, len(request.input))
        return EmbedResult(
            vectors=answer.embeddings,
            usage=Usage(prompt_tok=answer.prompt_eval_count, output_tok=0),
        )

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
        raise EngineRefused("Ollama counts no tokens before it runs them", unsupported=True)

    async def load(self, link: HttpLink, model: str) -> None:
        """By an empty prompt. What it takes is from then on what a switch to it costs."""
        known = self._store[model]
        if self._store.is_remote(known):
            return
        known.is_loading = True
        try:
            async with self._load_turn:
                await self._load(link, known)
        finally:
            known.is_loading = False

    async def _load(self, link: HttpLink, known: Known) -> None:
        try:
            await self._store.look(link)
            if known.loaded_as_pinned():
                return
            began_ns = monotonic_ns()
            await self._empty(link, known, self._keep_alive_s, timeout_s=_LOAD_S)
        except EngineError as error:
            known.error = f"{known.name} cannot be loaded: {text_of(error)}"
            raise EngineUnavailable(known.error) from None
        known.took((monotonic_ns() - began_ns) / _NS_PER_MS)
        await self._store.look(link)
        if not known.loaded_as_pinned():
            raise EngineUnavailable(
                f"Ollama says that it has loaded {known.name} and does not list it: it may have "
                "another name of the same weights in memory, or another context"
            )

    async def unload(self, link: HttpLink, model: str) -> None:
        """By an empty prompt that is kept for no time; returns when it is out of memory."""
        known = self._store[model]
        if self._store.is_remote(known):
            return
        try:
            await self._empty(link, known, 0.0, timeout_s=_LOAD_S)
        except HttpStatus as status:
            raise EngineUnavailable(text_of(status)) from None
        for _ in range(_UNLOAD_LOOKS):
            await self._store.look(link)
            if known.loaded is None:
                return
            await asyncio.sleep(_UNLOAD_LOOK_S)
        raise EngineUnavailable(f"Ollama keeps {model} in memory: somebody else still uses it")

    async def _empty(
        self, link: HttpLink, known: Known, keep_alive_s: float | None, *, timeout_s: float
    ) -> None:
        path = GENERATE if known.generates else EMBED
        body = {**pinned(known, keep_alive_s), "stream": False}
        if known.generates:
            body["prompt"] = ""
        else:
            body["input"] = []
        await link.post(path, encode(body), timeout_s=timeout_s)


class _Ear:
    """Hears what one model's answers say of loads and of other machines."""

    def __init__(self, store: Store, known: Known, notice: Callable[[EngineNotice], None]) -> None:
        self._store = store
        self._known = known
        self._notice = notice

    def answered_from(self, host: str) -> None:
        known, expected = self._known, self._store.is_remote(self._known)
        if expected and known.remote_host == host:
            return
        text = f"{known.name} was answered at {host}, and not on this machine"
        allowed = self._store.came_from(known, host)
        self._notice(EngineNotice(code="boundary", model=known.name, detail=text))
        if not allowed:
            raise EngineBroke(f"{text}: the answer is refused, and no more is sent there")

    def waited_for_load(self, load_ms: float) -> None:
        if self._store.is_remote(self._known):
            return
        detail = None
        if was_cold(self._known, load_ms):
            detail = (
                f"{self._known.name} had to be loaded first, which took {load_ms:.0f} ms: Ollama "
                "had unloaded it, or somebody uses it with other settings"
            )
        self._notice(EngineNotice(code="cold_load", model=self._known.name, detail=detail))


def _check_vectors(vectors: list[list[float]], n_texts: int) -> None:
    """Raises EngineMalformed unless there is one vector for each text, all of one length."""
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != n_texts or len(lengths) != 1 or not 0 < max(lengths) <= _MAX_VECTOR:
        raise EngineMalformed(f"Ollama made {len(vectors)} vectors of {n_texts} texts")
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        raise EngineMalformed("Ollama made a vector with what is no number")
