"""What the HTTP targets share: one streaming request, and what its failures mean.

A server that is asked over HTTP tells no phases and no tokens of a piece; each piece counts as one,
and the usage at the end as the target's own word. Its queue is not visible.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from aiohttp.http_exceptions import HttpProcessingError

from onegate.bench.targets.base import Broke, Facts, Refused, TargetError, Usage

_CONNECT_S = 10.0
_POLL_S = 0.2
# Above any event of a stream that is one; below what would hurt.
_MAX_LINE_BYTES = 1 << 20
_MAX_DOCUMENT_BYTES = 16 << 20
# Above any length that a context has, below what cannot be reckoned with.
_MAX_TOK = 100_000_000
# Whoever says to come back later than in a day means that there is no use.
_MAX_RETRY_AFTER_S = 86_400
_MAX_NAME = 200
_MOST_NAMED = 20
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
        # Its time-outs, of a connection that is not made, are of this kind too.
        except (aiohttp.ClientError, ValueError) as error:
            raise TargetError(f"{self.url}{path} does not answer: {_short(error)}") from error
        except TimeoutError:
            raise TargetError(
                f"{self.url}{path} was not ready within {self._ready_s:.0f} s"
            ) from None

    async def _get(self, path: str) -> dict[str, Any] | None:
        async with self._open().get(self._base + path) as response:
            if response.status == 503:
                return None
            response.raise_for_status()
            return await _whole(response)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One JSON document. Raises TargetError; its `__cause__` is Refused for a status that
        refuses the request as it is."""
        try:
            async with asyncio.timeout(self._ready_s), self._asked(path, body) as response:
                return await _whole(response)
        except (Refused, Broke, aiohttp.ClientError, ValueError) as error:
            raise TargetError(f"{self.url}{path} does not answer: {_short(error)}") from error
        except TimeoutError:
            raise TargetError(
                f"{self.url}{path} did not answer within {self._ready_s:.0f} s"
            ) from None

    @asynccontextmanager
    async def _asked(
        self, path: str, body: dict[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._open().post(self._base + path, json=body) as response:
            if response.status != 200:
                raise failure(response.status, response.headers.get("Retry-After"))
            yield response

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """The lines of an answer, without empty ones. Raises Refused, Broke.

        Closing the generator closes the connection.
        """
        try:
            async with self._asked(path, body) as response:
                async for line in response.content:
                    if line := line.strip():
                        yield line
        except aiohttp.ClientError as error:
            # Its time-outs, of a connection that is not made, are of this kind too.
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
        return Refused(reason, retry_after_ms=_retry_after_ms(retry_after or ""))
    return Refused(reason) if 400 <= status < 500 else Broke(reason)


def _retry_after_ms(text: str) -> float | None:
    """None for a date, and for what is no header at all."""
    if (found := re.fullmatch(r"\s*([0-9]{1,20})\s*", text)) is None:
        return None
    return float(min(int(found[1]), _MAX_RETRY_AFTER_S)) * 1000


async def _whole(response: aiohttp.ClientResponse) -> dict[str, Any]:
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > _MAX_DOCUMENT_BYTES:
            raise ValueError(f"more than {_MAX_DOCUMENT_BYTES} bytes")
    return document(bytes(data))


def document(data: bytes) -> dict[str, Any]:
    """A JSON object, all its text encodable. Raises ValueError."""
    try:
        found = msgspec.json.decode(data)
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
        listed = ", ".join(name[:_MAX_NAME] for name in names[:_MOST_NAMED])
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        raise TargetError(f"{url} has no model {wanted or 'at all'}; it has {listed}{more}")
    return Facts(model=wanted or names[0])


def named(rows: object, key: str) -> list[dict[str, Any]]:
    """Those of a server's list that have a name under `key`."""
    found = rows if isinstance(rows, list) else []
    return [row for row in found if isinstance(row, dict) and isinstance(row.get(key), str)]


def word(found: dict[str, Any], key: str) -> str:
    """A short text, "" where the server does not say."""
    value = found.get(key)
    return value[:_MAX_NAME] if isinstance(value, str) else ""


def number(found: dict[str, Any], key: str) -> int | None:
    """A count of tokens, None where the server does not say. Raises ValueError for what is none."""
    value = found.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_TOK:
        raise ValueError(f"{key} is no number of tokens")
    return value


def usage(found: dict[str, Any], prompt_key: str, output_key: str) -> Usage:
    """What an answer took, as the server counted it. Raises Broke."""
    try:
        return Usage(number(found, prompt_key), number(found, output_key))
    except ValueError as error:
        raise Broke("malformed") from error


def counted(found: dict[str, Any], key: str, url: str) -> int:
    """The tokens of a prompt. Raises TargetError."""
    try:
        n_tok = number(found, key)
    except ValueError as error:
        raise TargetError(f"{url} cannot be reckoned with: {error}") from error
    if n_tok is None:
        raise TargetError(f"{url} does not say how many tokens a prompt has")
    return n_tok


def _short(error: Exception) -> str:
    return str(error)[:_MAX_NAME] or type(error).__name__
