"""What an adapter for one kind of HTTP server has to know; everything else is the base's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from onegate.engines.base import (
    EmbedRequest,
    EmbedResult,
    EngineError,
    EngineNotice,
    EngineRequest,
    EngineSnapshot,
    EngineTooLarge,
    GenerateItem,
    PoolInfo,
    TokenCount,
)
from onegate.engines.http.link import HttpLink
from onegate.protocol.content import Message, Tool


class Overlong(EngineTooLarge):
    """The server's word that prompt plus output exceed the context: the prompt is `prompt_tok`."""

    def __init__(self, *, need_tok: int, limit_tok: int, prompt_tok: int) -> None:
        super().__init__(need_tok=need_tok, limit_tok=limit_tok)
        self.prompt_tok = prompt_tok


@dataclass(frozen=True)
class Call:
    """One request as it is posted: `path` behind the base URL, `body` encoded."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Phase(Enum):
    """How far a request had come."""

    SENT = "sent"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True)
class Leaving:
    """A request whose connection was closed before its end.

    `others` of our requests may still be inside the same model, `older` of them since before it
    left, and `foreign` of other people's.
    """

    id: int
    model: str
    phase: Phase
    since_ns: int
    others: int
    older: int = 0
    foreign: int = 0


@dataclass(frozen=True)
class Watched:
    """What a look at the server showed. `pools` is None where it said nothing of them; a notice is
    told once, and once with `detail` None that it is over."""

    pools: list[PoolInfo] | None = None
    snapshots: list[EngineSnapshot] = field(default_factory=list)
    notices: list[EngineNotice] = field(default_factory=list)


class Decoder(Protocol):
    """Reads the answer to one request, line by line, blank ones too. It knows no sockets.

    The first item that it gives is `Accepted`; after `Finished` it is asked no more.
    """

    def line(self, line: bytes) -> Iterable[GenerateItem]:
        """What one line says. Raises EngineErrors."""

    def end(self) -> Iterable[GenerateItem]:
        """The connection ended in order. Raises EngineBroke where no end had been said."""


class Dialect(Protocol):
    """One kind of server. Its questions raise EngineErrors, as the link does.

    `confirm` is asked `confirm_first_s` after a connection was closed and every `confirm_every_s`
    from then on, sooner at first, once for all that leave, until it says yes. With
    `frees_in_decode` the server is known to end a request at its next token once its connection is
    closed: one whose reader leaves in decode is not asked about.
    """

    name: str
    confirm_first_s: float
    confirm_every_s: float
    frees_in_decode: bool

    async def probe(self, link: HttpLink) -> list[PoolInfo]:
        """Every pool there is, with its identity, capacity, features and state."""

    async def watch(self, link: HttpLink) -> Watched:
        """A light look, every few seconds."""

    def call(self, request: EngineRequest, pool: PoolInfo) -> Call:
        """The request in the server's words. Raises EngineRefused for what it cannot honour."""

    def decoder(self, request: EngineRequest, pool: PoolInfo) -> Decoder:
        """A reader for its answer."""

    def refusal(self, status: int, body: bytes, retry_after_ms: float | None) -> EngineError:
        """What an answer other than 200 means. A request whose output was not bounded by the
        caller is sent once more, shorter, where this is `Overlong`."""

    async def confirm(self, link: HttpLink, leaving: Leaving) -> bool:
        """Whether nothing of it runs any more."""

    async def embed(self, link: HttpLink, request: EmbedRequest) -> EmbedResult:
        """See `base.Engine.embed`."""

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
        """See `base.Engine.count`."""

    async def load(self, link: HttpLink, model: str) -> None:
        """Bring a model into memory; the pools are probed anew behind it."""

    async def unload(self, link: HttpLink, model: str) -> None:
        """Free a model's memory; the pools are probed anew behind it."""
