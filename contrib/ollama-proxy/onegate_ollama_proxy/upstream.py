"""The Ollama behind the proxy: one address, spoken to without pooling and never by redirect."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

CONNECT_S = 5.0
# Of an answer that is kept as a whole; a list of a thousand models is a few hundred kilobytes.
MAX_DOCUMENT_BYTES = 16 << 20


class UpstreamError(Exception):
    """Ollama did not do its part. The text is a sentence for whoever asked."""


class UpstreamDown(UpstreamError):
    """Nobody answers at its address: nothing of the request has reached anybody."""


class UpstreamStuck(UpstreamError):
    """It has taken the question and not answered in time."""


class UpstreamBroke(UpstreamError):
    """The connection was lost, or what came is no HTTP."""


@dataclass(frozen=True, slots=True)
class Document:
    """A small answer, whole."""

    status: int
    media_type: str
    body: bytes


class Upstream:
    """`url` is the server's base address, such as `http://127.0.0.1:11435`.

    The client's `Host` never goes there: Ollama judges names of hosts itself, and this proxy has
    judged already. Raises UpstreamErrors and nothing else.
    """

    def __init__(self, url: str, *, connect_s: float = CONNECT_S) -> None:
        self._base = URL(url)
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    def __str__(self) -> str:
        return str(self._base)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: AsyncIterator[bytes] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer as it comes, whatever its status. Leaving closes the connection at once, which
        is how Ollama learns that nobody waits. `path` holds the query too, both still encoded."""
        sent = CIMultiDict(headers or {})
        # Nothing is unpacked on its way through, so nothing can be blown up on it.
        sent["Accept-Encoding"] = "identity"
        sent["Host"] = f"127.0.0.1:{self._base.port}"
        try:
            answer = await self._open_session().request(
                method,
                URL(str(self._base).rstrip("/") + path, encoded=True),
                data=body,
                headers=sent,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, HttpProcessingError, ValueError, TimeoutError) as error:
            raise self._not_answered(error) from error
        try:
            yield answer
        finally:
            answer.close()

    @staticmethod
    async def pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The bytes of an answer. Raises UpstreamBroke where they end before the end."""
        try:
            async for data in answer.content.iter_any():
                yield data
        except (aiohttp.ClientError, HttpProcessingError, ValueError, TimeoutError) as error:
            raise UpstreamBroke("Ollama closed the connection in mid-answer") from error

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        within_s: float,
    ) -> Document:
        """One small answer, whole. Raises UpstreamStuck where it takes longer than `within_s`."""
        data = bytearray()
        try:
            async with asyncio.timeout(within_s), self.open(method, path, body, headers) as answer:
                async for piece in self.pieces(answer):
                    data += piece
                    if len(data) > MAX_DOCUMENT_BYTES:
                        raise UpstreamBroke(
                            f"Ollama's answer is longer than {MAX_DOCUMENT_BYTES} bytes"
                        )
                media_type = answer.headers.get("Content-Type", "application/octet-stream")
                return Document(answer.status, media_type, bytes(data))
        except TimeoutError:
            raise UpstreamStuck(f"Ollama has not answered within {within_s:g} s") from None

    async def aclose(self) -> None:
        """Close what is open; safe to call twice."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No pool: it would be a queue, and whether an idle connection still lives is only
            # known by losing a request on it.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            settings: dict[str, Any] = {"auto_decompress": False, "trust_env": False}
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                **settings,
            )
        return self._session

    def _not_answered(self, error: Exception) -> UpstreamError:
        match error:
            case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
                return UpstreamDown(f"nobody answers at {self._base}: is Ollama running there?")
            case aiohttp.ServerConnectionError() | aiohttp.ClientOSError():
                return UpstreamBroke("Ollama closed the connection without an answer")
            case _:
                return UpstreamBroke(f"{self._base} does not speak HTTP")
