"""One HTTP server, spoken to: bounded, without redirects, and never anywhere else."""

import asyncio
import errno
import io
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError

from onegate.clock import wall_ms
from onegate.engines.base import (
    EngineBroke,
    EngineError,
    EngineMalformed,
    EngineUnavailable,
)
from onegate.engines.http.boundary import (
    Address,
    AddressRefused,
    check_local,
    is_local,
    tls_context,
)
from onegate.engines.http.documents import short

# Of an error's text, which is read for one sentence.
_MAX_ERROR_BYTES = 64 << 10
# Of what a server says of itself, which is read every few seconds while everybody waits: the
# densest JSON of this length takes a third of a second.
_MAX_DOCUMENT_BYTES = 4 << 20
# Of vectors, which somebody has asked for.
MAX_VECTORS_BYTES = 16 << 20
_PIECE_BYTES = 256 << 10
_QUESTION_S = 10.0
# "I am still at it", every few seconds while a prompt is read.
_MAX_ANNOUNCEMENTS = 1000
_MAX_RETRY_AFTER_S = 86_400
_DATE = "%a, %d %b %Y %H:%M:%S GMT"
# What failed here, or found the queue of a Unix socket full, says nothing of whether the server
# lives.
_NO_WORD = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
    errno.EAGAIN,
)


class NobodyThere(EngineUnavailable):
    """The machine says that nobody listens at the address: what was inside is gone."""


class HttpStatus(EngineError):
    """An answer other than 200, with the first bytes of what it says."""

    def __init__(self, status: int, body: bytes, retry_after_ms: float | None) -> None:
        super().__init__(f"the server answered {status}: {short(body) or 'nothing more'}")
        self.status = status
        self.body = body
        self.retry_after_ms = retry_after_ms


class HttpLink:
    """The way to one server. Every request has a connection of its own, which ends with it.

    `key` goes out as a bearer token and appears in no text. With `allow_remote` unset, a connection
    to another machine is not even begun. Raises EngineUnavailable where no connection came about,
    so that nothing of the request reached anybody; EngineBroke where one was lost; EngineMalformed
    for what is no answer; HttpStatus for one that is not 200.
    """

    def __init__(
        self,
        address: Address,
        *,
        connect_s: float,
        allow_remote: bool = False,
        key: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        self.address = address
        self._connect_s = connect_s
        self._allow_remote = allow_remote
        self._key = key
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpLink({self.address})"

    @property
    def remote(self) -> bool:
        """Whether connections to other machines are allowed."""
        return self._allow_remote and self.address.socket is None

    async def get(self, path: str, *, timeout_s: float = _QUESTION_S) -> bytes:
        """One small document."""
        return await self._whole("GET", path, None, timeout_s)

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        timeout_s: float = _QUESTION_S,
        max_bytes: int = _MAX_DOCUMENT_BYTES,
    ) -> bytes:
        """One document for one, of `max_bytes` at most."""
        return await self._whole("POST", path, body, timeout_s, max_bytes)

    async def _whole(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout_s: float,
        max_bytes: int = _MAX_DOCUMENT_BYTES,
    ) -> bytes:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self.open(method, path, body) as response,
            ):
                return await _read(response, max_bytes)
        except TimeoutError:
            raise EngineBroke(f"{path} was not answered within {timeout_s:g} s") from None

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator["Answer"]:
        """An answer as it comes. Leaving closes the connection at once."""
        try:
            response = await self._open_session().request(
                method,
                self.address.origin + self.address.prefix + path,
                # Of a long body the loop gets its turn between pieces.
                data=io.BytesIO(body) if body and len(body) > _PIECE_BYTES else body,
                headers={**self._headers(body), **(headers or {})},
                allow_redirects=False,
            )
        except (aiohttp.ClientError, HttpProcessingError, ValueError, TimeoutError) as error:
            raise self._not_asked(error) from error
        try:
            await self._check(response)
            yield Answer(response)
        finally:
            response.close()

    async def aclose(self) -> None:
        """Close what is open, for good; safe to call twice."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _headers(self, body: bytes | None) -> dict[str, str]:
        # Nothing is unpacked here, so nothing can be blown up here.
        headers = {"Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise EngineUnavailable("the engine is stopped")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                response_class=_Response,
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _connector(self) -> aiohttp.BaseConnector:
        # As many connections as there are requests, because a pool of them would be a queue; and
        # none is used twice, because whether an idle one still lives is only known by losing a
        # request on it.
        given: dict[str, Any] = {"limit": 0, "force_close": True}
        if self.address.socket is not None:
            return aiohttp.UnixConnector(self.address.socket, **given)
        if self.address.scheme == "https":
            try:
                given["ssl"] = tls_context(self._ca_file)
            except OSError as error:
                raise EngineUnavailable(
                    f"{self._ca_file} holds no certificate authority ({error.strerror or error})"
                ) from error
        if self._allow_remote:
            return aiohttp.TCPConnector(**given)
        return aiohttp.TCPConnector(
            resolver=_LocalResolver(), socket_factory=_local_socket, use_dns_cache=False, **given
        )

    def _not_asked(self, error: Exception) -> EngineError:
        match error:
            case aiohttp.ClientConnectorCertificateError():
                return EngineUnavailable(
                    f"the certificate of {self.address} is not trusted "
                    f"({short(str(error.certificate_error))}): set ca_file to its authority"
                )
            case aiohttp.ClientConnectorError() if isinstance(error.os_error, _Away):
                return AddressRefused(str(error.os_error.args[0]))
            case aiohttp.InvalidURL():
                # Numbers that are an address to some and a name to others, for one.
                return AddressRefused(
                    f"{self.address} is no address ({short(str(error))}): correct base_url"
                )
            case aiohttp.ClientConnectorSSLError():
                why = error.os_error.strerror or str(error.os_error)
                return EngineUnavailable(
                    f"{self.address} does not speak TLS as it should ({short(why)}): correct "
                    "base_url"
                )
            case aiohttp.ClientConnectorDNSError():
                return EngineUnavailable(
                    f"{self.address.host} is no name that this machine knows: correct base_url"
                )
            case aiohttp.ClientConnectorError():
                why = short(error.os_error.strerror or str(error.os_error))
                if error.os_error.errno in _NO_WORD:
                    return EngineUnavailable(f"no connection to {self.address} ({why})")
                return NobodyThere(f"nobody answers at {self.address} ({why})")
            case aiohttp.ConnectionTimeoutError():
                return EngineUnavailable(
                    f"no connection to {self.address} within {self._connect_s:g} s"
                )
            case aiohttp.ServerConnectionError() | aiohttp.ClientOSError():
                return EngineBroke(f"{self.address} closed the connection without an answer")
            case _:
                return EngineMalformed(f"{self.address} does not speak HTTP: {short(str(error))}")

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if 300 <= response.status < 400:
            where = short(response.headers.get("Location", "")) or "nowhere"
            raise EngineMalformed(
                f"{self.address} redirects to {where}, which is not followed: correct base_url"
            )
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise EngineMalformed(f"{self.address} answers in {short(encoding)} unasked")
        if response.status != 200:
            try:
                async with asyncio.timeout(_QUESTION_S):
                    body = await _read(Answer(response), _MAX_ERROR_BYTES, cut=True)
            except (TimeoutError, EngineBroke):
                body = b""  # the status says enough
            retry = retry_after_ms(response.headers.get("Retry-After", ""), wall_ms())
            raise HttpStatus(response.status, body, retry)


class _Response(aiohttp.ClientResponse):
    """Ends a server that only announces an answer. aiohttp waits for the answer behind any number
    of announcements, and has no time for anybody else where they come in a flood."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        assert protocol is not None
        read, left = protocol.read, _MAX_ANNOUNCEMENTS + 1

        async def bounded() -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise BadHttpMessage(f"more than {_MAX_ANNOUNCEMENTS} answers before the answer")
            return await read()

        # No connection is used twice, so this is the only answer that it reads.
        protocol.read = bounded  # type: ignore[method-assign]
        return await super().start(connection)


class Answer:
    """The answer to one request, status 200."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def media_type(self) -> str:
        """`text/event-stream` and the like, in lower case; "" where the server does not say."""
        return self._response.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Its bytes as they come. Raises EngineBroke where the connection is lost before the end,
        EngineMalformed where what comes is no HTTP."""
        try:
            async for data in self._response.content.iter_any():
                yield data
        except aiohttp.ClientPayloadError as error:
            raise EngineBroke("the server closed the connection in mid-answer") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineBroke(f"the connection to the server was lost: {_name(error)}") from error
        except (HttpProcessingError, ValueError) as error:
            raise EngineMalformed(f"the server's answer is no HTTP: {_name(error)}") from error


async def _read(answer: Answer, max_bytes: int, *, cut: bool = False) -> bytes:
    data = bytearray()
    async for piece in answer.chunks():
        data += piece
        if len(data) > max_bytes:
            if cut:
                return bytes(data[:max_bytes])
            raise EngineMalformed(f"the server's answer is longer than {max_bytes} bytes")
    return bytes(data)


def retry_after_ms(text: str, now_ms: int) -> float | None:
    """Of a `Retry-After`, which is seconds or a date; None for what is neither, a day at most.
    `now_ms` is Unix time."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return float(min(int(text), _MAX_RETRY_AFTER_S)) * 1000
    try:
        date = datetime.strptime(text, _DATE).replace(tzinfo=UTC)
    except ValueError:
        return None
    return min(max(0.0, date.timestamp() * 1000 - now_ms), _MAX_RETRY_AFTER_S * 1000.0)


def _name(error: BaseException) -> str:
    return short(str(error)) or type(error).__name__


class _Away(OSError):
    """A connection that is not to be made, in the words of `check_local`."""


class _LocalResolver(AbstractResolver):
    """Names mean what the system says, as long as all of it is on this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, family=family
        )
        ips = list(dict.fromkeys(str(address[0]) for *_, address in found))
        try:
            check_local(host, ips)
        except AddressRefused as error:
            raise _Away(str(error)) from error
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=proto,
                flags=socket.AI_NUMERICHOST,
            )
            for kind, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _local_socket(info: Any) -> socket.socket:
    """The socket for one address, which is the last place to see where it goes."""
    family, kind, proto, _, address = info
    if not is_local(str(address[0])):
        try:
            check_local(str(address[0]), [str(address[0])])
        except AddressRefused as error:
            raise _Away(str(error)) from error
    found = socket.socket(family=family, type=kind, proto=proto)
    found.setblocking(False)
    return found
