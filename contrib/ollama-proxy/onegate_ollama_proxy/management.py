"""Everything about models that is not an answer of one, with an Ollama to ask.

What clients ask all the time goes through `Probes`, which nothing holds up. What changes or fetches
models is open by rule only, and has a bound of its own, so that a few downloads hold up nobody's
questions.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

import msgspec
from aiohttp import web

from onegate.protocol.errors import Reason
from onegate.protocol.status import Status
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.bound import Bound, Full
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.incoming import Incoming, small_body
from onegate_ollama_proxy.members import Members
from onegate_ollama_proxy.probes import Probes
from onegate_ollama_proxy.refused import Refused, no, no_of_full, no_of_upstream
from onegate_ollama_proxy.relay import relay
from onegate_ollama_proxy.upstream import Upstream, UpstreamError

PROBES = (
    ("HEAD", "/"),
    ("GET", "/"),
    ("HEAD", "/api/version"),
    ("GET", "/api/version"),
    ("HEAD", "/api/tags"),
    ("GET", "/api/tags"),
    ("GET", "/api/ps"),
    ("GET", "/api/status"),
    ("GET", "/api/experimental/model-recommendations"),
    ("GET", "/v1/models"),
)
SHOW = "/api/show"
OPENAI_MODEL = "/v1/models/"
BLOBS = "/api/blobs/"
CHANGES = (
    ("POST", "/api/pull"),
    ("POST", "/api/push"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("DELETE", "/api/delete"),
    ("HEAD", BLOBS),
    ("POST", BLOBS),
)
# Asked of Ollama's maker: those of an account, which change it, and those of the web.
ACCOUNT = (("POST", "/api/me"), ("POST", "/api/signout"), ("DELETE", "/api/user/keys/"))
SERVICES = (
    ("POST", "/api/experimental/web_search"),
    ("POST", "/api/experimental/web_fetch"),
)

_DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}\Z")
_KEY = re.compile(r"[A-Za-z0-9._~+=-]{1,256}\Z")
_NAME_KEYS = frozenset({"model", "name"})
# A name and some options. So much may be held for each connection without being counted.
MAX_SHOW_BYTES = 64 << 10

# A command line that makes a model sends its files side by side, as many as there are processors.
_CHANGES_AT_ONCE, _CHANGES_WAITING, _CHANGES_EACH = 8, 64, 64


class Asker(Protocol):
    """Whoever asks."""

    @property
    def uid(self) -> int | None:
        """The user, by the kernel's word; None where that is not known."""

    @property
    def name(self) -> str:
        """Under which what he takes is counted."""

    async def status(self) -> Status:
        """The gate's. Raises the client library's errors."""


Answer = Callable[[web.BaseRequest, Asker], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ManagementRoute:
    """`path` with a slash at its end (and not alone) stands for all paths that begin with it.
    `answer` raises Refused and the client library's errors, before anything has been said."""

    method: str
    path: str
    answer: Answer


class ShowBody(msgspec.Struct):
    """Of `POST /api/show`, what is read here."""

    model: str = ""
    name: str = ""  # as older clients call it


class Management:
    """The management routes in front of an Ollama, which is asked `at_once` questions at most."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        boundary: Boundary,
        members: Members,
        at_once: int,
        body_timeout_s: float,
    ) -> None:
        self._upstream = upstream
        self._boundary = boundary
        self._members = members
        self._body_timeout_s = body_timeout_s
        self._probes = Probes(upstream)
        self._changes = Bound(_CHANGES_AT_ONCE, waiting=_CHANGES_WAITING, each=_CHANGES_EACH)
        self._questions = Bound(at_once, waiting=4 * at_once, each=2 * at_once)

    def routes(self) -> tuple[ManagementRoute, ...]:
        """All of them; HEAD is a route of its own."""
        return (
            *(ManagementRoute(method, path, self._probe) for method, path in PROBES),
            ManagementRoute("POST", SHOW, self._show),
            ManagementRoute("GET", OPENAI_MODEL, self._openai_model),
            *(ManagementRoute(method, path, self._change) for method, path in CHANGES),
            *(ManagementRoute(method, path, self._account) for method, path in ACCOUNT),
            *(ManagementRoute(method, path, self._service) for method, path in SERVICES),
        )

    async def aclose(self) -> None:
        """End the questions that are under way."""
        await self._probes.aclose()

    async def _probe(self, request: web.BaseRequest, _: Asker) -> web.StreamResponse:
        try:
            told = await self._probes.get(request.path)
        except UpstreamError as error:
            raise Refused(no_of_upstream(error)) from error
        headers = {"Content-Type": told.document.media_type}
        if told.age_s is not None:
            headers["Age"] = str(told.age_s)
        return web.Response(status=told.document.status, body=told.document.body, headers=headers)

    async def _show(self, request: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        body = await small_body(request, MAX_SHOW_BYTES, self._body_timeout_s)
        # Of a model elsewhere Ollama asks there, and so the question itself would leave.
        name, question = shown(body)
        self._boundary.check_name(name)
        return await self._question(request, caller, question)

    async def _openai_model(self, request: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        self._boundary.check_name(openai_name(request))
        return await self._question(request, caller, None)

    async def _change(self, request: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        await self._members.check(caller.uid)
        if request.path.startswith(BLOBS):
            _check_last(request, BLOBS, _DIGEST)
        try:
            return await self._under(self._changes, request, caller, None)
        finally:
            # Also after a change that went wrong in the middle.
            self._probes.changed()
            self._boundary.forget()

    async def _account(self, request: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        self._boundary.check_service("an account")
        await self._members.check(caller.uid)
        if request.method == "DELETE":
            _check_last(request, "/api/user/keys/", _KEY)
        return await self._question(request, caller, None)

    async def _service(self, request: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        self._boundary.check_service("the web")
        return await self._question(request, caller, None)

    async def _question(
        self, request: web.BaseRequest, caller: Asker, body: bytes | None
    ) -> web.StreamResponse:
        return await self._under(self._questions, request, caller, body)

    async def _under(
        self, bound: Bound, request: web.BaseRequest, caller: Asker, body: bytes | None
    ) -> web.StreamResponse:
        try:
            async with bound.place(caller.name):
                sent = Incoming(request, self._body_timeout_s) if body is None else body
                return await relay(request, self._upstream, in_band=error_line, body=sent)
        except Full as error:
            raise Refused(no_of_full(error)) from error


def error_line(no: No) -> bytes:
    """An error in a stream of progress."""
    return msgspec.json.encode({"error": no.sentence}) + b"\n"


def shown(body: bytes) -> tuple[str, bytes]:
    """Which model is asked about, and the question so that Ollama reads the same name in it: it
    takes `MODEL` for `model`, and of several the last. Raises Refused, in Ollama's words."""
    if not body.strip():
        raise Refused(no(Reason.INVALID, "missing request body"))
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        named = msgspec.json.decode(body, type=ShowBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(no(Reason.INVALID, f"the body is not understood: {error}")) from error
    if not (name := named.model or named.name):
        raise Refused(no(Reason.INVALID, "model is required"))
    rest = {key: value for key, value in fields.items() if key.casefold() not in _NAME_KEYS}
    return name, msgspec.json.encode({"model": name, **rest})


def openai_name(request: web.BaseRequest) -> str:
    """Which model `/v1/models/NAME` is about; one path segment, as with Ollama. Raises Refused."""
    segment = request.path.removeprefix(OPENAI_MODEL)
    name = unquote(segment)
    if not name or "/" in name or name in (".", ".."):
        raise Refused(no(Reason.WRONG_MODEL, "a model's name here is one piece of a path"))
    return name


def _check_last(request: web.BaseRequest, prefix: str, form: re.Pattern[str]) -> None:
    """What goes on in a path is looked at here, and not only by whoever reads it next."""
    if form.match(request.path.removeprefix(prefix)) is None:
        raise Refused(no(Reason.INVALID, f"what follows {prefix} is not understood"))
