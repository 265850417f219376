"""What the HTTP targets share: one streaming request, and what its failures mean.

A server that is asked over HTTP tells no phases and no tokens of a piece; each piece counts as one,
and the usage at the end as the target's own word. Its queue is not visible.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from onegate.bench.targets.base import Ask, Broke, Expired, Facts, Refused, TargetError

_CONNECT_S = 10.0
_POLL_S = 0.2
# Above any event of a stream that is one; below what would hurt.
_MAX_LINE_BYTES = 1 << 20
_BUSY = {429, 503}
_UNIX = "unix:"


class HttpServer:
    """One server. `url` is http://HOST:PORT, with or without a path, or unix:PATH."""

    def __init__(self, url: str, *, ready_s: float) -> None:
        self.url = url
        self._ready_s = ready_s
        self._base = "http://localhost" if url.startswith(_UNIX) else url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            path = self.url.removeprefix(_UNIX)
            # As many connections as there are requests: a pool would be a queue in the generator.
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(path, limit=0)
                if self.url.startswith(_UNIX)
                else aiohttp.TCPConnector(limit=0)
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                read_bufsize=_MAX_LINE_BYTES,
            )
        return self._session

    async def get(self, path: str) -> dict[str, Any]:
        """One JSON document; a server that says 503 is waited for. Raises TargetError."""
        try:
            async with asyncio.timeout(self._ready_s):
                while True:
                    if (found := await self._get(path)) is not None:
                        return found
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise TargetError(
                f"{self.url}{path} was not ready within {self._ready_s:.0f} s"
            ) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise TargetError(f"{self.url}{path} does not answer: {error}") from error

    async def _get(self, path: str) -> dict[str, Any] | None:
        async with self._open().get(self._base + path) as response:
            if response.status == 503:
                return None
            response.raise_for_status()
            return document(await response.read())

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One JSON document. Raises TargetError; its `__cause__` is Refused for a status that
        refuses the request as it is."""
        try:
            async with self._asked(path, body) as response:
                return document(await response.read())
        except (Refused, Broke, aiohttp.ClientError, ValueError) as error:
            raise TargetError(f"{self.url}{path} does not answer: {error}") from error

    @asynccontextmanager
    async def _asked(
        self, path: str, body: dict[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._open().post(self._base + path, json=body) as response:
            if response.status != 200:
                raise failure(response.status, response.headers.get("Retry-After"))
            yield response

    async def stream(
        self, path: str, body: dict[str, Any], ask: Ask
    ) -> AsyncGenerator[bytes, None]:
        """The lines of an answer, without empty ones. Raises Refused, Expired, Broke.

        Closing the generator closes the connection.
        """
        try:
            async with (
                asyncio.timeout(None if ask.timeout_ms is None else ask.timeout_ms / 1000),
                self._asked(path, body) as response,
            ):
                async for line in response.content:
                    if line := line.strip():
                        yield line
        except TimeoutError:
            raise Expired("deadline_exceeded") from None
        except aiohttp.ClientError as error:
            raise Broke(type(error).__name__.lower()) from error
        except (ValueError, HttpProcessingError) as error:
            # A line longer than allowed: aiohttp's older and newer ways to say it.
            raise Broke("malformed") from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


def failure(status: int, retry_after: str | None) -> Refused | Broke:
    """What a status other than 200 means."""
    reason = f"http_{status}"
    if status in _BUSY:
        seconds = retry_after is not None and retry_after.strip().isdigit()
        return Refused(reason, retry_after_ms=float(retry_after or 0) * 1000 if seconds else None)
    return Refused(reason) if 400 <= status < 500 else Broke(reason)


def document(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises ValueError."""
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def event_of(line: bytes) -> dict[str, Any]:
    """One event of a stream. Raises Broke."""
    try:
        return document(line)
    except ValueError as error:
        raise Broke("malformed") from error


def chosen(wanted: str | None, names: list[str], url: str) -> Facts:
    """The model to ask for. Raises TargetError where the server has no such model."""
    if not names or (wanted is not None and wanted not in names):
        raise TargetError(f"{url} has no model {wanted or 'at all'}; it has {', '.join(names)}")
    return Facts(model=wanted or names[0])


def number(found: dict[str, Any], key: str) -> int | None:
    """A count, None where the server does not say."""
    value = found.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
