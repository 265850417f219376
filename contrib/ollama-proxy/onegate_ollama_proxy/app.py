"""The proxy put together: routes, their errors, and one line of the log for each request."""

import asyncio
import socket
import traceback

from aiohttp import web

from onegate import AsyncClient
from onegate.client.errors import OnegateError
from onegate.clock import monotonic_ns
from onegate.protocol.errors import Reason
from onegate.tasks import Tasks
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.ask import BadAsk, Route
from onegate_ollama_proxy.bodies import Bodies
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.caller import Caller
from onegate_ollama_proxy.config import SHIPPED_HINTS, Config
from onegate_ollama_proxy.dialects import ollama, openai
from onegate_ollama_proxy.gate import APP, Gate
from onegate_ollama_proxy.gate_models import GateModels
from onegate_ollama_proxy.inference import Inference
from onegate_ollama_proxy.leased import MESSAGES, RESPONSES, Leased
from onegate_ollama_proxy.listeners import Classes, Listener
from onegate_ollama_proxy.log import Level, Log
from onegate_ollama_proxy.management import Management, ManagementRoute
from onegate_ollama_proxy.members import Members
from onegate_ollama_proxy.no import no_of, retry_headers
from onegate_ollama_proxy.origin import Origins, page_headers, preflight_headers
from onegate_ollama_proxy.refused import Refused
from onegate_ollama_proxy.routes import Entry, Routes, refusal_of
from onegate_ollama_proxy.server import Connection, Places, Request, Server
from onegate_ollama_proxy.told import Told
from onegate_ollama_proxy.upstream import Upstream
from onegate_ollama_proxy.who import Clients

# For a handler that has been told to end.
_END_S = 0.1
# nginx's word for a client that did not wait; Ollama's own too.
CLIENT_GONE = 499
# More than any crowd of clients that starts at once.
BACKLOG = 1024
NS_PER_MS = 1_000_000
# For what is our own fault; nothing of it is said to the client.
_BUG = "the proxy has made a mistake, and its log says which: try again"


class App:
    """One proxy. `listen` serves a socket with the rules of one listener; `aclose` ends it all."""

    def __init__(self, config: Config, *, clients: Clients, log: Log) -> None:
        self._config = config
        self._clients = clients
        self._log = log
        self._tasks = Tasks(self._crashed)
        self._servers: list[tuple[Server, asyncio.Server]] = []
        self._places = Places(config.max_connections, config.connections_per_client)
        self._origins = Origins(config.origins, config.hosts)
        self._classes = Classes((*config.hints, *SHIPPED_HINTS))
        # What is asked of the gate for nobody in particular.
        self._own = AsyncClient(config.gate, app=APP)
        self._upstream = None if config.upstream is None else Upstream(config.upstream)
        boundary = Boundary(upstream=self._upstream, allow_remote=config.allow_remote)
        self._management: Management | GateModels
        if self._upstream is None:
            self._management = GateModels(
                boundary=boundary,
                aliases=config.models,
                body_timeout_s=config.body_timeout_s,
            )
        else:
            rule = config.management
            members = Members(rule.group, everybody=rule.everyone)
            self._management = Management(
                self._upstream,
                boundary=boundary,
                members=members,
                at_once=config.relay_in_flight,
                body_timeout_s=config.body_timeout_s,
            )
        bodies = Bodies(
            each_bytes=config.max_body_bytes,
            total_bytes=config.bodies_bytes,
            timeout_s=config.body_timeout_s,
        )
        self._bodies = bodies
        self._inference = Inference(config, boundary=boundary, bodies=bodies, tasks=self._tasks)
        leased = (
            Leased(kind, self._upstream, boundary=boundary, config=config, tasks=self._tasks)
            for kind in (RESPONSES, MESSAGES)
        )
        self._routes = Routes(
            (
                *(self._asked(route) for route in (*ollama.ROUTES, *openai.ROUTES)),
                *(self._carried(each) for each in leased),
                *(_managed(route) for route in self._management.routes()),
            )
        )

    async def listen(self, listener: Listener, sock: socket.socket) -> None:
        """Serve a listening socket with the rules of that listener."""
        server = Server(
            self._answer,
            listener=listener,
            clients=self._clients,
            places=self._places,
            open_gate=lambda: Gate(self._config.gate),
            close_gate=self._close_gate,
            refused=self._no_place,
        )
        loop = asyncio.get_running_loop()
        accepting = await loop.create_server(server, sock=sock, backlog=BACKLOG)
        self._servers.append((server, accepting))

    async def aclose(self, drain_s: float) -> None:
        """Take nothing new, let what runs end for `drain_s`, and stop; safe to call twice."""
        servers, self._servers = self._servers, []
        for _, accepting in servers:
            accepting.close()
        for server, _ in servers:
            server.pre_shutdown()
        try:
            async with asyncio.timeout(drain_s):
                await asyncio.gather(*(server.shutdown(drain_s) for server, _ in servers))
        except TimeoutError:
            # The server underneath waits for its time twice before it ends anything.
            await asyncio.gather(*(server.shutdown(_END_S) for server, _ in servers))
        await self._management.aclose()
        if self._upstream is not None:
            await self._upstream.aclose()
        await self._own.close()
        await self._tasks.aclose()

    # --- one request --------------------------------------------------------------------------

    async def _answer(self, request: Request, connection: Connection) -> web.StreamResponse:
        began_ns, told = monotonic_ns(), Told()
        status = CLIENT_GONE
        try:
            response = await self._judge(request, connection, told)
            status = response.status
        finally:
            self._note(request, connection, status, began_ns, told)
        return response

    async def _judge(
        self, request: Request, connection: Connection, told: Told
    ) -> web.StreamResponse:
        """Whether it may be asked here at all; and what a browser wants to know before it asks."""
        headers = request.headers
        origin = headers.get("Origin")
        # A name before the path counts for more than the header, where there is one.
        named = None if request.raw_path.startswith("/") else request.url.authority
        for reason, allowed in (
            ("host", self._origins.allows_host(headers.get("Host"))),
            ("host", self._origins.allows_host(named)),
            ("origin", all(map(self._origins.allows_page, headers.getall("Origin", [])))),
        ):
            if not allowed:
                told.reason = reason
                return web.Response(status=403)
        if origin is not None and request.method == "OPTIONS":
            return web.Response(status=204, headers=preflight_headers(origin))
        request.page_headers = page_headers(origin)
        try:
            return await self._routed(request, connection, told)
        except (OnegateError, BadAsk, Refused) as error:
            self._check_unsaid(request, error)
            no = no_of(error, told.class_)
        except ConnectionError:
            raise  # the client has gone: the server underneath ends the connection
        except Exception as error:
            # A bug of ours must not be taken for an answer, and must not end the others'.
            self._check_unsaid(request, error)
            self._crashed(f"{request.method} {request.path}", error)
            no = No(reason=Reason.ENGINE_FAILED, status=500, sentence=_BUG)
        told.reason = str(no.reason)
        refusal = refusal_of(request.path, no)
        return web.Response(
            status=refusal.status,
            body=refusal.body,
            headers={"Content-Type": refusal.content_type} | retry_headers(no),
        )

    def _check_unsaid(self, request: Request, error: Exception) -> None:
        """Where something has been said, a second answer behind it would be read as that to the
        next request, and nothing must end it cleanly. Raises `error` there."""
        if request.writer.output_size:
            self._crashed(f"{request.method} {request.path}", error)
            _cut(request)
            raise error

    async def _routed(
        self, request: Request, connection: Connection, told: Told
    ) -> web.StreamResponse:
        found = self._routes.find(request.method, request.path)
        if isinstance(found, web.Response):
            return found
        caller = Caller(
            listener=connection.listener,
            who=connection.who,
            headers=request.headers,
            behalf=connection.listener.behalf(connection.who, request.headers),
            gate=connection.gate,
            classes=self._classes,
            ask_status=self._own.status,
        )
        if request.headers.get("Expect", "").casefold() == "100-continue":
            # A client that waits for this sends no body before it.
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        return await found(request, caller, told)

    def _asked(self, route: Route) -> Entry:
        async def handler(
            request: web.BaseRequest, caller: Caller, told: Told
        ) -> web.StreamResponse:
            return await self._inference.answer(request, route, caller, told)

        return Entry("POST", route.path, handler)

    def _carried(self, leased: Leased) -> Entry:
        async def handler(
            request: web.BaseRequest, caller: Caller, told: Told
        ) -> web.StreamResponse:
            async with self._bodies.of(request, caller.name) as body:
                return await leased.answer(request, body, caller, told)

        return Entry("POST", leased.path, handler)

    # --- what is written down -----------------------------------------------------------------

    def _note(
        self, request: Request, connection: Connection, status: int, began_ns: int, told: Told
    ) -> None:
        self._log.line(
            Level.INFO,
            "request",
            method=request.method,
            path=request.path,
            status=status,
            reason=told.reason,
            ms=(monotonic_ns() - began_ns) // NS_PER_MS,
            client=connection.counted_as,
            unit=connection.who.unit,
            class_=told.class_,
            model=told.model,
            notices="; ".join(told.notices) or None,
        )

    def _no_place(self, client: str) -> None:
        self._log.line(Level.WARNING, "connection_refused", client=client, held=len(self._places))

    def _crashed(self, name: str, error: BaseException) -> None:
        detail = f"{type(error).__name__}: {error}"
        self._log.line(Level.ERROR, "bug", task=name, detail=detail, at=_place(error))

    def _close_gate(self, gate: Gate) -> None:
        self._tasks.spawn(gate.close(), name="close gate")


def _managed(route: ManagementRoute) -> Entry:
    async def handler(request: web.BaseRequest, caller: Caller, told: Told) -> web.StreamResponse:
        return await route.answer(request, caller)

    return Entry(route.method, route.path, handler)


def _cut(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _place(error: BaseException) -> str | None:
    """Where it was raised: the file and the line, and nothing of the values."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else None
