"""The body of a request as it comes in: unpacked, and in time."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.refused import Refused, no

# The server underneath unpacks these, whatever the header still says.
_UNPACKED = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})


class Incoming:
    """One body, to be read once. `timeout_s`: how long the client may say nothing in the middle of
    it. Raises Refused for one that is packed in a way that nobody here unpacks.

    `error`: why it has not come to its end, for whoever had it read by somebody else.
    """

    def __init__(self, request: web.BaseRequest, timeout_s: float) -> None:
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in _UNPACKED:
            sentence = f"a body packed as {encoding[:40]!r} can't be read here: send it as it is"
            raise Refused(no(Reason.UNSUPPORTED, sentence))
        self._request = request
        self._timeout_s = timeout_s
        self.error: Refused | None = None

    @property
    def is_there(self) -> bool:
        """Has the request a body?"""
        return self._request.can_read_body

    @property
    def length(self) -> int | None:
        """Its bytes as they are read here; None where that shows at its end only."""
        return None if "Content-Encoding" in self._request.headers else self._request.content_length

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it. Raises what `piece` does."""
        try:
            while piece := await self.piece():
                yield piece
        except Refused as error:
            self.error = error
            raise

    async def piece(self) -> bytes:
        """The next bytes; none at its end. Raises Refused for one that stops in the middle, or
        can't be unpacked."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._request.content.readany()
        except TimeoutError:
            sentence = f"the rest of the body has not come within {self._timeout_s:g} s"
            raise Refused(
                No(reason=Reason.INVALID, status=408, sentence=sentence, retryable=True)
            ) from None
        except (web.RequestPayloadError, ValueError) as error:
            raise Refused(no(Reason.INVALID, f"the body cannot be read: {error}")) from error


async def small_body(request: web.BaseRequest, max_bytes: int, timeout_s: float) -> bytes:
    """The body of a request that is short or wrong. Raises Refused."""
    data = bytearray()
    incoming = Incoming(request, timeout_s)
    while piece := await incoming.piece():
        data += piece
        if len(data) > max_bytes:
            raise Refused(
                no(Reason.TOO_LARGE, f"the body is longer than {max_bytes} bytes: make it shorter")
            )
    return bytes(data)
