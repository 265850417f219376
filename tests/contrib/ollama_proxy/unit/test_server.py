"""Connections: whose they are, how many there may be, and what is closed with them."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from onegate_ollama_proxy.config import ListenerConfig
from onegate_ollama_proxy.listeners import Listener
from onegate_ollama_proxy.server import Places, Request, Server
from onegate_ollama_proxy.who import NOBODY, Who


class Transport:
    """An accepted connection."""

    def __init__(self, peer: Any = ("10.0.0.7", 4000), sock: Any = "socket") -> None:
        self._extra = {"peername": peer, "socket": sock}
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return self._extra.get(name)

    def abort(self) -> None:
        self.aborted = True


class Rig:
    """A server without its sockets."""

    def __init__(self, who: Who = NOBODY, total: int = 10, each: int = 2) -> None:
        self.places = Places(total, each)
        self.closed: list[Any] = []
        self.refused: list[str] = []
        self.asked: list[Any] = []
        self.answered: list[Any] = []

        def ask(sock: socket.socket) -> Who:
            self.asked.append(sock)
            return who

        async def handler(request: Request, connection: Any) -> web.StreamResponse:
            self.answered.append(connection)
            return web.Response()

        clients: Any = SimpleNamespace(who=ask)
        gates = iter(range(100))
        self.server = Server(
            handler,
            listener=Listener(ListenerConfig()),
            clients=clients,
            places=self.places,
            open_gate=lambda: next(gates),  # type: ignore[arg-type,return-value]
            close_gate=self.closed.append,
            refused=self.refused.append,
        )

    def connect(self, **fields: Any) -> tuple[Any, Any]:
        handler: Any = SimpleNamespace(_task_handler=None)
        handler = _Handler()
        transport: Any = Transport(**fields)
        self.server.connection_made(handler, transport)
        return handler, transport


class _Handler:
    """As far as the server underneath looks at it."""

    _task_handler = None


async def test_who_it_is_is_asked_once_when_it_is_accepted() -> None:
    rig = Rig(Who(7, "a.service"))
    handler, _ = rig.connect()
    assert rig.asked == ["socket"]
    connection = rig.server._known[handler]
    assert (connection.who.uid, connection.counted_as) == (7, "uid:7")
    rig.server.connection_lost(handler)
    assert (rig.closed, len(rig.places), rig.server._known) == ([0], 0, {})
    rig.server.connection_lost(handler)
    assert rig.closed == [0]


async def test_of_whom_nothing_is_known_is_an_address() -> None:
    rig = Rig()
    handler, _ = rig.connect()
    assert rig.server._known[handler].counted_as == "address:10.0.0.7"
    handler, _ = rig.connect(peer=None, sock=None)
    assert rig.server._known[handler].counted_as == "address:-"


async def test_one_too_many_is_closed_at_once_and_forgotten() -> None:
    rig = Rig(Who(7))
    first, _ = rig.connect()
    rig.connect()
    third, transport = rig.connect()
    assert (transport.aborted, rig.refused) == (True, ["uid:7"])
    rig.server.connection_lost(third)
    assert (len(rig.places), rig.closed) == (2, [])
    rig.server.connection_lost(first)
    assert rig.connect()[1].aborted is False


@pytest.mark.parametrize(("total", "each"), [(1, 5), (5, 1)])
def test_places_are_bounded_in_all_and_for_each(total: int, each: int) -> None:
    places = Places(total, each)
    assert places.take("eva")
    assert not places.take("eva")
    assert places.take("bob") is (total > 1)
    places.give("eva")
    assert places.take("eva")


async def test_an_answer_has_the_headers_of_its_page() -> None:
    from aiohttp.test_utils import make_mocked_request

    mocked = make_mocked_request("GET", "/")
    request = Request(
        mocked._message,
        mocked._payload,
        mocked._protocol,
        mocked._payload_writer,
        mocked._task,
        mocked._loop,
    )
    request.page_headers = {"Vary": "Origin"}
    response = web.StreamResponse()
    await request._prepare_hook(response)
    assert response.headers["Vary"] == "Origin"
    assert "aiohttp" not in response.headers["Server"]
