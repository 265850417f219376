"""The HTTP server: connections and who is at their other end, and requests one after the other.

It is aiohttp's low-level server, because what it answers where there is no route, and to which
pages, is Ollama's way and not a framework's.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from onegate_ollama_proxy.gate import Gate
from onegate_ollama_proxy.listeners import Listener
from onegate_ollama_proxy.who import NOBODY, Clients, Who

# A client that says nothing for so long, before its first request or between two, is closed on.
IDLE_S = 75.0
NAME = "onegate-ollama-proxy"

# Of bytes that are no HTTP the library's own log would show some.
_silent = logging.getLogger("onegate_ollama_proxy.http")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@dataclass(slots=True)
class Connection:
    """One HTTP connection: whose it is was asked once, when it was accepted."""

    listener: Listener
    who: Who
    counted_as: str
    gate: Gate


class Request(web.BaseRequest):
    """A request whose answer, whoever makes it, carries the headers that its page needs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.page_headers: dict[str, str] = {}

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.update(self.page_headers)
        response.headers["Server"] = NAME


@dataclass(slots=True)
class Places:
    """How many connections there may be: in all, and for each client."""

    total: int
    each: int
    _held: Counter[str] = field(default_factory=Counter)

    def take(self, client: str) -> bool:
        """A place for one more; false where there is none."""
        if self._held.total() >= self.total or self._held[client] >= self.each:
            return False
        self._held[client] += 1
        return True

    def give(self, client: str) -> None:
        """It is over."""
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]

    def __len__(self) -> int:
        return self._held.total()


class Server(web.Server):
    """The connections of one listener. `handler` answers a request of one of them; `close_gate`
    gets each connection's way to the gate when the connection is over; `refused` is told of one for
    which there was no place."""

    def __init__(
        self,
        handler: Callable[[Request, Connection], Awaitable[web.StreamResponse]],
        *,
        listener: Listener,
        clients: Clients,
        places: Places,
        open_gate: Callable[[], Gate],
        close_gate: Callable[[Gate], None],
        refused: Callable[[str], None],
    ) -> None:
        # A client that leaves cancels the handler, wherever it is.
        super().__init__(
            self._serve,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            logger=_silent,
            keepalive_timeout=IDLE_S,
        )
        self._handler = handler
        self._listener = listener
        self._clients = clients
        self._places = places
        self._open_gate = open_gate
        self._close_gate = close_gate
        self._refused = refused
        self._known: dict[object, Connection] = {}

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, Request)
        return await self._handler(request, self._known[request.protocol])

    def _request(self, *arguments: Any) -> web.BaseRequest:
        return Request(*arguments, self._loop)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by each connection when it is accepted."""
        super().connection_made(handler, transport)
        sock = transport.get_extra_info("socket")
        who = NOBODY if sock is None else self._clients.who(sock)
        counted_as = _counted_as(who, transport)
        if not self._places.take(counted_as):
            self._refused(counted_as)
            transport.abort()
            return
        self._known[handler] = Connection(self._listener, who, counted_as, self._open_gate())

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        """Called by each connection when it is over."""
        super().connection_lost(handler, exc)
        connection = self._known.pop(handler, None)
        if connection is not None:
            self._places.give(connection.counted_as)
            self._close_gate(connection.gate)


def _counted_as(who: Who, transport: asyncio.Transport) -> str:
    """A user where one is known; else the address, which is one container or one machine."""
    if who.uid is not None:
        return f"uid:{who.uid}"
    peer = transport.get_extra_info("peername")
    return f"address:{peer[0]}" if peer else "address:-"
