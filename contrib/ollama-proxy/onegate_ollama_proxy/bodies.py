"""Bodies of requests: read in time, bounded one by one, for each client and in all.

What is read is held until the request ends, and so is what was made of it.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.incoming import Incoming
from onegate_ollama_proxy.refused import Refused

# Room comes free when a request ends, which is when an answer does.
_RETRY_MS = 2000


class Bodies:
    """The bytes of all bodies in memory. `each_bytes` of one body, `total_bytes` of all, of which
    one client has half at most."""

    def __init__(self, *, each_bytes: int, total_bytes: int, timeout_s: float) -> None:
        self._each_bytes = each_bytes
        self._total_bytes = total_bytes
        self._timeout_s = timeout_s
        self._held: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        """All that is held now."""
        return self._held.total()

    @asynccontextmanager
    async def of(self, request: web.BaseRequest, client: str) -> AsyncIterator[bytes]:
        """The body of a request, charged to `client` as long as the block runs. Raises Refused."""
        incoming = Incoming(request, self._timeout_s)
        length = request.content_length
        if length is not None and length > self._each_bytes:
            raise Refused(self._too_long())
        charged = 0
        data = bytearray()
        try:
            while piece := await incoming.piece():
                # Before it is kept: what is refused takes no room.
                if len(data) + len(piece) > self._each_bytes:
                    raise Refused(self._too_long())
                self._charge(client, len(piece))
                charged += len(piece)
                data += piece
            yield bytes(data)
        finally:
            self._held[client] -= charged
            if not self._held[client]:
                del self._held[client]

    def _charge(self, client: str, n_bytes: int) -> None:
        if self._held[client] + n_bytes > self._total_bytes // 2:
            raise Refused(_full("you have"))
        if self.held_bytes + n_bytes > self._total_bytes:
            raise Refused(_full("all clients together have"))
        self._held[client] += n_bytes

    def _too_long(self) -> No:
        sentence = f"the body is longer than {self._each_bytes} bytes: send less at a time"
        return No(reason=Reason.TOO_LARGE, status=413, sentence=sentence)


def _full(who: str) -> No:
    return No(
        reason=Reason.BYTES_FULL,
        status=429,
        sentence=f"{who} too many bytes of requests under way: wait until some have been answered",
        retryable=True,
        retry_after_ms=_RETRY_MS,
    )
