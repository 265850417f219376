"""Routes that the gate has no words for, carried to Ollama under a lease: the gate grants a permit
and a seat, and what was used is told to it afterwards."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from onegate import AsyncClient
from onegate.client.aio import AsyncLease
from onegate.client.errors import OnegateError
from onegate.protocol.errors import Reason
from onegate.protocol.messages import ClassLimits, Welcome
from onegate.tasks import Tasks
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.answering import Answering
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.caller import Caller
from onegate_ollama_proxy.config import Config
from onegate_ollama_proxy.dialects.anthropic import refusal as anthropic
from onegate_ollama_proxy.dialects.openai import refusal as openai
from onegate_ollama_proxy.ears import LeasedEar
from onegate_ollama_proxy.fit import served_model
from onegate_ollama_proxy.inference import ttft_timeout_s
from onegate_ollama_proxy.no import no_of
from onegate_ollama_proxy.refused import Refused, no
from onegate_ollama_proxy.relay import SSE, relay
from onegate_ollama_proxy.told import Told
from onegate_ollama_proxy.upstream import Upstream

_log = logging.getLogger(__name__)

# How many bytes of text a token is, about; what an image costs is every model's own matter.
_BYTES_PER_TOK = 4
_IMAGE_TOK = 1024
# Of the context; the rest is left for an answer, however long the prompt was guessed to be.
_MOST_PROMPT = 0.75
_MAX_DEPTH = 64
# A comment, which every reader of events skips.
_PADDING = b": waiting\n\n"
_NO_OLLAMA = (
    "this route is Ollama's own, and no Ollama is behind this address: use /v1/chat/completions"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the routes. `bound` is its field for the longest answer, `ends` the types of the
    events after which a stream is whole; `event` and `document` are an error in either form."""

    path: str
    bound: str
    ends: frozenset[str]
    event: Callable[[No], bytes]
    document: Callable[[No], bytes]


RESPONSES = Kind(
    "/v1/responses",
    "max_output_tokens",
    frozenset({"response.completed", "response.incomplete", "response.failed", "error"}),
    openai.event,
    openai.error,
)
MESSAGES = Kind(
    "/v1/messages",
    "max_tokens",
    frozenset({"message_stop", "error"}),
    anthropic.event,
    anthropic.error,
)


@dataclass(frozen=True, slots=True)
class Work:
    """A request that was read: what the lease is for, and the body that goes on."""

    model: str
    prompt_tok: int
    max_tok: int
    body: bytes


class LeasedFrame:
    """What goes around an answer of one of the routes, which Ollama writes."""

    content_type = SSE
    document_type = "application/json; charset=utf-8"

    def __init__(self, kind: Kind, *, stream: bool) -> None:
        self.padding = _PADDING if stream else b" "
        self.broken = kind.event if stream else kind.document


class Leased:
    """Carries requests of one kind to `upstream`; without one there is nobody to carry them to."""

    def __init__(
        self,
        kind: Kind,
        upstream: Upstream | None,
        *,
        boundary: Boundary,
        config: Config,
        tasks: Tasks,
    ) -> None:
        self._kind = kind
        self._upstream = upstream
        self._boundary = boundary
        self._aliases = config.models
        self._waiting = config.waiting
        self._tasks = tasks

    @property
    def path(self) -> str:
        """Of the route."""
        return self._kind.path

    async def answer(
        self, request: web.BaseRequest, body: bytes, caller: Caller, told: Told
    ) -> web.StreamResponse:
        """Carry one. Raises Refused, BadAsk and the client library's errors before anything is
        said."""
        if self._upstream is None:
            raise Refused(no(Reason.UNSUPPORTED, _NO_OLLAMA))
        fields = read(body, self._kind)
        # Such a name is refused as what it is, whether or not the gate knows it.
        self._boundary.check_name(fields["model"])
        client = await caller.client()
        told.class_, notices = caller.class_for(client)
        told.notices += notices
        work = self._work(fields, client.welcome, told.class_)
        told.model = work.model
        await self._boundary.check(work.model, tool_types(fields))
        if work.max_tok < (fields.get(self._kind.bound) or 0):
            told.notices.append(f"the answer is bounded by {work.max_tok} tokens")
        stream = fields.get("stream") is True
        async with Answering(
            request,
            LeasedFrame(self._kind, stream=stream),
            stream=stream,
            pad_after_s=self._waiting(told.class_).pad_after_s,
            tasks=self._tasks,
        ) as answering:
            try:
                return await self._granted(request, client, work, told.class_, answering)
            except (OnegateError, Refused) as error:
                why = no_of(error, told.class_)
                told.reason = str(why.reason)
                return await answering.fail(why)

    async def _granted(
        self,
        request: web.BaseRequest,
        client: AsyncClient,
        work: Work,
        class_: str,
        answering: Answering,
    ) -> web.StreamResponse:
        """Carried once the gate lets it. Raises while nothing has been said but padding."""
        assert self._upstream is not None
        limits = client.welcome.limits.classes[class_]
        async with client.lease(
            work.prompt_tok,
            work.max_tok,
            model=work.model,
            class_=class_,
            ttft_timeout=ttft_timeout_s(self._waiting(class_), limits),
        ) as held:
            return await self._carry(request, self._upstream, held, work, answering)

    def _work(self, fields: dict[str, Any], welcome: Welcome, class_: str) -> Work:
        found = served_model(fields["model"], welcome.models, self._aliases)
        max_tok = _bound(fields, self._kind, welcome.limits.classes[class_])
        prompt_tok = estimate_tok(fields)
        context_tok = found.max_context_tok
        if context_tok is not None:
            # An estimate is no proof that it does not fit; Ollama counts, and says so.
            prompt_tok = max(1, min(prompt_tok, int(context_tok * _MOST_PROMPT)))
            max_tok = max(1, min(max_tok, context_tok - prompt_tok))
        body = msgspec.json.encode({**fields, "model": found.model, self._kind.bound: max_tok})
        return Work(found.model, prompt_tok, max_tok, body)

    async def _carry(
        self,
        request: web.BaseRequest,
        upstream: Upstream,
        held: AsyncLease,
        work: Work,
        answering: Answering,
    ) -> web.StreamResponse:
        ear = LeasedEar(self._kind.ends)
        taken = _Taken(held, ear)
        try:
            async with asyncio.timeout(None) as until:
                taken.watch(until)
                said = await relay(
                    request,
                    upstream,
                    in_band=lambda otherwise: self._kind.event(taken.why or otherwise),
                    body=work.body,
                    ear=ear,
                    answering=answering,
                )
        except (TimeoutError, Refused):
            if taken.why is None:
                raise
            raise Refused(taken.why) from None
        finally:
            await taken.aclose()
        if taken.why is None:
            try:
                await held.settle(ear.usage())
            except OnegateError as error:
                # The answer is whole all the same, and nothing may be said behind it.
                _log.warning("the use of a lease could not be told: %s", error)
        return said


class _Taken:
    """Ends the work when the lease is taken back: `why` says so from then on."""

    def __init__(self, held: AsyncLease, ear: LeasedEar) -> None:
        self._held = held
        self._ear = ear
        self._tasks = Tasks(self._crashed)
        self._until: asyncio.Timeout | None = None
        self.why: No | None = None

    def watch(self, until: asyncio.Timeout) -> None:
        """`until` runs out at once where the answer has not even begun."""
        self._until = until
        self._tasks.spawn(self._wait(), name="lease")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def _wait(self) -> None:
        self.why = no_of(await self._held.ended())
        if not self._ear.stop() and self._until is not None:
            self._until.reschedule(asyncio.get_running_loop().time())

    def _crashed(self, name: str, error: BaseException) -> None:
        _log.error("%s broke", name, exc_info=error)


def read(body: bytes, kind: Kind) -> dict[str, Any]:
    """The fields of a body, so that Ollama reads in them what is read here: it takes `MODEL` for
    `model`, and of several the last. Raises Refused."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except RecursionError:
        raise _wrong("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _wrong(f"the body is not understood: {error}") from error
    _check_spelling(fields, ("model", "tools", "stream", kind.bound), "")
    if not isinstance(fields.get("model"), str) or not fields["model"]:
        raise _wrong("model is required", "model")
    tools = fields.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise _wrong("tools is wrong: expected an array", "tools")
    for i, tool in enumerate(tools or ()):
        at = f"tools[{i}]"
        if not isinstance(tool, dict):
            raise _wrong(f"{at} is wrong: expected an object", at)
        _check_spelling(tool, ("type",), f"{at}.")
        if not isinstance(tool.get("type", ""), str):
            raise _wrong(f"{at}.type is wrong: expected a text", f"{at}.type")
    return fields


def tool_types(fields: dict[str, Any]) -> list[str]:
    """Of the tools, those that say what they are."""
    return [tool["type"] for tool in fields.get("tools") or () if "type" in tool]


def estimate_tok(value: Any) -> int:
    """How many tokens a request's texts are, about."""
    n_bytes, n_images = _size(value, 0)
    return max(1, math.ceil(n_bytes / _BYTES_PER_TOK) + n_images * _IMAGE_TOK)


def _size(value: Any, depth: int) -> tuple[int, int]:
    """Bytes of text, and images."""
    if depth > _MAX_DEPTH:
        raise _wrong("the body is nested too deeply")
    parts: list[Any]
    match value:
        case str():
            return len(value.encode()), 0
        case {"type": "base64", "data": str()}:
            return 0, 1
        case dict():
            if isinstance(url := value.get("image_url"), str) and url.startswith("data:"):
                return 0, 1
            parts = [*value.values()]
        case list():
            parts = value
        case _:
            return 0, 0
    sizes = [_size(part, depth + 1) for part in parts]
    return sum(size[0] for size in sizes), sum(size[1] for size in sizes)


def _bound(fields: dict[str, Any], kind: Kind, limits: ClassLimits) -> int:
    """The longest answer: what was asked for, and not more than the class has."""
    asked = fields.get(kind.bound)
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked < 1):
        raise _wrong(f"{kind.bound} is wrong: expected a number of at least 1", kind.bound)
    return min(asked or limits.max_tokens_default, limits.max_tokens_max)


def _check_spelling(fields: dict[str, Any], names: tuple[str, ...], at: str) -> None:
    for name in fields:
        if name not in names and name.casefold() in names:
            raise _wrong(f"{at}{name.casefold()} is to be written in small letters", None)


def _wrong(sentence: str, path: str | None = None) -> Refused:
    return Refused(no(Reason.INVALID, sentence, path=path))
