"""A request carried to Ollama and its answer carried back, piece by piece.

Nothing is kept: whoever reads slowly slows his own transfer in both directions, through the
sockets. A client that leaves ends the handler, which closes the connection to Ollama.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.answering import Answering
from onegate_ollama_proxy.incoming import Incoming
from onegate_ollama_proxy.refused import Refused, no, no_of_upstream
from onegate_ollama_proxy.upstream import Upstream, UpstreamBroke, UpstreamError

# What goes to Ollama. A list of what may, because what must not is without end: `Authorization`,
# cookies, `Origin` and `Referer`, whatever other proxies have added, and all that is about one hop.
REQUEST_HEADERS = (
    "Accept",
    "Content-Type",
    "User-Agent",  # `show` answers one editor differently by it
    "anthropic-beta",
    "anthropic-version",
)
# And what comes back. Origins are answered by this proxy, so none of Ollama's words on them.
ANSWER_HEADERS = ("Content-Type", "Content-Disposition", "Retry-After", "request-id")

_MAX_ERROR_BYTES = 64 << 10

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


class _Error(msgspec.Struct):
    message: str = ""


class _Said(msgspec.Struct):
    error: str | _Error


_read_error = msgspec.json.Decoder(_Said)


class Ear(Protocol):
    """Reads along while an answer goes by."""

    def begin(self, answer: aiohttp.ClientResponse, *, is_stream: bool) -> None:
        """The answer is there; closing it ends it."""

    def hear(self, data: bytes) -> None:
        """The next piece."""

    def end(self) -> bool:
        """The connection ended in good order; whether the answer did."""


async def relay(
    request: web.BaseRequest,
    upstream: Upstream,
    *,
    in_band: Callable[[No], bytes],
    body: bytes | Incoming,
    ear: Ear | None = None,
    answering: Answering | None = None,
) -> web.StreamResponse:
    """Carry `request` to Ollama, with `body`: its own, or what is sent instead of that.

    `in_band` makes the error that goes behind what is already said, as it is written in a stream
    of the answer's kind. An answer that can't be ended by one, since it stands in the middle of a
    line or is no stream, is cut: nothing that failed ends cleanly. Where `answering` has begun to
    pad, the answer goes on behind that. Raises Refused while nothing but padding has been said.
    """
    headers = forwarded(request.headers)
    sent: AsyncIterator[bytes] | bytes | None = None
    if isinstance(body, bytes):
        sent = body
    elif body.is_there:
        sent = body.pieces()
        # Without one it goes out in chunks, as it does where it comes in unpacked.
        if body.length is not None:
            headers["Content-Length"] = str(body.length)
    try:
        async with upstream.open(request.method, target(request), sent, headers) as answer:
            return await _back(request, answer, in_band, ear, answering)
    except UpstreamError as error:
        if isinstance(body, Incoming) and body.error is not None:
            raise body.error from error  # Ollama did its part
        raise Refused(no_of_upstream(error)) from error


def target(request: web.BaseRequest) -> str:
    """Path and query as they came, without the `http://HOST` that some clients put before it."""
    raw = request.raw_path
    if raw.startswith("/"):
        return raw
    return URL(raw, encoded=True).raw_path_qs


def forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request that go on to Ollama."""
    return {name: headers[name] for name in REQUEST_HEADERS if name in headers}


async def _back(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    in_band: Callable[[No], bytes],
    ear: Ear | None,
    answering: Answering | None,
) -> web.StreamResponse:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    begun = None if answering is None else await answering.take()
    if ear is not None:
        ear.begin(answer, is_stream=kind in (NDJSON, SSE))
    if begun is not None and (answer.status != 200 or kind != begun.content_type):
        # It can't be given as it is behind a status of 200 and other bytes.
        raise Refused(await _told(answer))
    said = begun or await _begin(request, answer, kind)
    end = _End(kind)
    wrong: No | None = None
    try:
        async for data in Upstream.pieces(answer):
            end.saw(data)
            if ear is not None:
                ear.hear(data)
            await said.write(data)
        if ear is not None and not ear.end():
            wrong = no(Reason.ENGINE_FAILED, "Ollama ended the answer before its end")
    except UpstreamBroke as error:
        wrong = no_of_upstream(error)
    if wrong is not None:
        if not end.is_between:
            _cut(request)
            return said
        await said.write(in_band(wrong))
    await said.write_eof()
    return said


async def _begin(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, kind: str
) -> web.StreamResponse:
    said = web.StreamResponse(status=answer.status)
    said.headers.update(
        {name: answer.headers[name] for name in ANSWER_HEADERS if name in answer.headers}
    )
    # A stream may get one more line than Ollama wrote, and so has no length.
    if kind not in (NDJSON, SSE) and answer.content_length is not None:
        said.content_length = answer.content_length
    await said.prepare(request)
    return said


async def _told(answer: aiohttp.ClientResponse) -> No:
    """An error of Ollama's in its own words, for where its status can't be passed on."""
    data = bytearray()
    async for piece in Upstream.pieces(answer):
        data += piece
        if len(data) > _MAX_ERROR_BYTES:
            break
    sentence = told_error(bytes(data)) or f"Ollama answered with status {answer.status}"
    reason = Reason.INVALID if 400 <= answer.status < 500 else Reason.ENGINE_FAILED
    status = answer.status if answer.status >= 400 else 502
    return No(reason=reason, status=status, sentence=sentence)


def told_error(document: bytes) -> str | None:
    """The sentence in an error document of any of the three APIs; None where there is none."""
    try:
        error = _read_error.decode(document).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (error if isinstance(error, str) else error.message) or None


class _End:
    """Whether a stream stands between two of its lines or events, where one more can be added."""

    def __init__(self, kind: str) -> None:
        self._stop = {NDJSON: b"\n", SSE: b"\n\n"}.get(kind)
        self._tail = b"\n\n"

    def saw(self, data: bytes) -> None:
        self._tail = (self._tail + data[-2:])[-2:]

    @property
    def is_between(self) -> bool:
        return self._stop is not None and self._tail.endswith(self._stop)


def _cut(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
