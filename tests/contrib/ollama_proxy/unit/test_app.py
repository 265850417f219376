"""The proxy put together, without its sockets: who may ask at all, and how each end is told."""

import asyncio
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from onegate.client.errors import Unavailable
from onegate.protocol.errors import Reason
from onegate_ollama_proxy import app as module
from onegate_ollama_proxy.app import App
from onegate_ollama_proxy.config import Config, ListenerConfig
from onegate_ollama_proxy.listeners import Listener
from onegate_ollama_proxy.log import Log
from onegate_ollama_proxy.refused import Refused, no
from onegate_ollama_proxy.routes import Entry, Routes
from onegate_ollama_proxy.server import Connection, Request
from onegate_ollama_proxy.who import NOBODY, Who


class Rig:
    """An app whose one route does what the test says."""

    def __init__(self, asked: Any, act: Any, listener: Listener | None = None) -> None:
        self.asked = asked
        self.out = io.StringIO()
        clients: Any = SimpleNamespace(who=lambda sock: NOBODY)
        self.app = App(Config(), clients=clients, log=Log(self.out, journal=True))
        self.callers: list[Any] = []

        async def handler(request: web.BaseRequest, caller: Any, told: Any) -> web.StreamResponse:
            self.callers.append(caller)
            told.class_ = "loop"
            told.notices.append("left out")
            found = act(request)
            return await found if asyncio.iscoroutine(found) else found  # type: ignore[no-any-return]

        paths = ("/api/chat", "/v1/chat/completions", "/v1/messages")
        self.app._routes = Routes(Entry("POST", path, handler) for path in paths)
        gate: Any = SimpleNamespace()
        self.connection = Connection(
            listener or Listener(ListenerConfig()), Who(7, "a.service"), "uid:7", gate
        )
        self.one: Any = None

    async def ask(
        self, path: str = "/api/chat", method: str = "POST", **headers: str
    ) -> web.StreamResponse:
        self.one = self.asked(path=path, **headers)
        mocked = self.one.request
        if method != "POST":
            mocked._message = mocked._message._replace(method=method)
            mocked._method = method
        request = Request(
            mocked._message,
            mocked._payload,
            mocked._protocol,
            mocked._payload_writer,
            mocked._task,
            mocked._loop,
        )
        return await self.app._answer(request, self.connection)


def fine(request: web.BaseRequest) -> web.Response:
    return web.Response(text="fine")


def error_of(response: Any) -> Any:
    return json.loads(response.body)["error"]


async def test_a_request_is_answered_and_noted(asked: Any) -> None:
    rig = Rig(asked, fine)
    response = await rig.ask(Host="localhost:11434", Authorization="Bearer secret")
    assert response.status == 200
    (caller,) = rig.callers
    assert caller.behalf.uid == 7
    said = rig.out.getvalue()
    assert "request method=POST path=/api/chat status=200 ms=" in said
    assert 'client=uid:7 unit=a.service class=loop notices="left out"' in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_pages_and_names_of_others_are_kept_out(
    asked: Any, headers: dict[str, str], method: str
) -> None:
    rig = Rig(asked, fine)
    response: Any = await rig.ask(method=method, **headers)
    assert (response.status, response.body) == (403, None)
    assert rig.callers == []
    (header,) = headers
    assert f"status=403 reason={header.lower()} " in rig.out.getvalue()


async def test_a_name_before_the_path_is_judged_too(asked: Any) -> None:
    rig = Rig(asked, fine)
    for host, status in (("evil.example", 403), ("localhost:11434", 200), ("[::1]:1", 200)):
        response = await rig.ask(f"http://{host}/api/chat", Host="localhost")
        assert response.status == status, host


async def test_each_origin_is_judged(asked: Any) -> None:
    rig = Rig(asked, fine)
    pages: Any = [("Origin", "http://localhost"), ("Origin", "http://evil.example")]
    one = asked()
    one.request = make_mocked_request(
        "POST", "/api/chat", headers=CIMultiDict(pages), writer=one.written, payload=one.payload
    )
    rig.asked = lambda **given: one
    assert (await rig.ask()).status == 403


async def test_a_browser_is_told_what_it_may(asked: Any) -> None:
    rig = Rig(asked, fine)
    origin = "http://localhost:3000"
    response = await rig.ask(method="OPTIONS", Origin=origin)
    assert response.status == 204
    assert response.headers["Access-Control-Allow-Origin"] == origin
    assert rig.callers == []
    await rig.ask(Origin=origin)
    assert len(rig.callers) == 1


@pytest.mark.parametrize(("path", "status"), [("/nothing", 404), ("/api/chat/", 307)])
async def test_where_nobody_answers(asked: Any, path: str, status: int) -> None:
    assert (await Rig(asked, fine).ask(path)).status == status


async def test_a_refusal_is_in_the_clients_own_words(asked: Any) -> None:
    def refuse(request: web.BaseRequest) -> Any:
        raise Refused(no(Reason.INVALID, "sorry"))

    rig = Rig(asked, refuse)
    response: Any = await rig.ask()
    assert (response.status, error_of(response)) == (400, "sorry")
    assert response.content_type == "application/json"
    assert error_of(await rig.ask("/v1/chat/completions"))["message"] == "sorry"
    assert error_of(await rig.ask("/v1/messages"))["type"] == "invalid_request_error"
    assert "reason=invalid" in rig.out.getvalue()


async def test_who_shall_come_back_is_told_when(asked: Any) -> None:
    def refuse(request: web.BaseRequest) -> Any:
        raise Unavailable("nobody listens")

    response = await Rig(asked, refuse).ask()
    assert response.status == 503
    assert response.headers["Retry-After"] == "2"


async def test_a_key_that_is_missing(asked: Any) -> None:
    listener = Listener(ListenerConfig(), {"0123456789abcdef": "webui"})
    rig = Rig(asked, fine, listener)
    response = await rig.ask()
    assert (response.status, rig.callers) == (403, [])
    await rig.ask(Authorization="Bearer 0123456789abcdef")
    assert rig.callers[0].behalf.principal == "webui"


async def test_a_bug_of_ours_is_a_500_and_a_line_without_content(asked: Any) -> None:
    def break_(request: web.BaseRequest) -> Any:
        raise KeyError("what")

    rig = Rig(asked, break_)
    response: Any = await rig.ask()
    assert response.status == 500
    assert "what" not in error_of(response)
    assert "bug task=" in rig.out.getvalue()
    assert "test_app.py:" in rig.out.getvalue()


async def test_a_bug_in_mid_answer_does_not_end_it_cleanly(asked: Any) -> None:
    async def break_(request: web.BaseRequest) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        raise KeyError("what")

    rig = Rig(asked, break_)
    with pytest.raises(KeyError):
        await rig.ask()
    assert rig.one.request.transport.abort.called
    assert not rig.one.written.ended


@pytest.mark.parametrize("error", [Unavailable("gone"), Refused(no(Reason.INVALID, "sorry"))])
async def test_nothing_is_answered_twice(asked: Any, error: Exception) -> None:
    """The second answer would be taken for that to the connection's next request."""

    async def both(request: web.BaseRequest) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write_eof(b"whole")
        raise error

    rig = Rig(asked, both)
    with pytest.raises(type(error)):
        await rig.ask()
    assert rig.one.request.transport.abort.called
    assert "bug task=" in rig.out.getvalue()


async def test_a_client_that_leaves_is_noted(asked: Any) -> None:
    def leave(request: web.BaseRequest) -> Any:
        raise asyncio.CancelledError

    rig = Rig(asked, leave)
    with pytest.raises(asyncio.CancelledError):
        await rig.ask()
    assert "status=499" in rig.out.getvalue()


async def test_a_client_that_waits_for_a_word_gets_it(asked: Any) -> None:
    rig = Rig(asked, fine)
    await rig.ask(Expect="100-continue")
    assert rig.one.written.pieces == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    await rig.ask()
    assert rig.one.written.pieces == []


async def test_all_routes_are_there_with_and_without_an_ollama() -> None:
    clients: Any = SimpleNamespace(who=lambda sock: NOBODY)
    log = Log(io.StringIO())
    for upstream in (None, "http://127.0.0.1:1"):
        app = App(Config(upstream=upstream), clients=clients, log=log)
        for method, path in (
            ("POST", "/api/chat"),
            ("POST", "/api/generate"),
            ("POST", "/api/embed"),
            ("POST", "/api/embeddings"),
            ("POST", "/v1/chat/completions"),
            ("POST", "/v1/completions"),
            ("POST", "/v1/embeddings"),
            ("POST", "/v1/responses"),
            ("POST", "/v1/messages"),
            ("HEAD", "/"),
            ("GET", "/api/tags"),
            ("GET", "/api/ps"),
            ("POST", "/api/show"),
            ("GET", "/api/version"),
            ("POST", "/api/pull"),
            ("DELETE", "/api/delete"),
            ("POST", "/api/blobs/sha256:0"),
            ("GET", "/v1/models"),
            ("GET", "/v1/models/tiny"),
        ):
            assert not isinstance(app._routes.find(method, path), web.Response), path
        await app.aclose(0.0)
        await app.aclose(0.0)


async def test_answers_have_their_time_to_end_once() -> None:
    clients: Any = SimpleNamespace(who=lambda sock: NOBODY)
    app = App(Config(), clients=clients, log=Log(io.StringIO()))
    waited: list[float] = []

    class Stuck:
        """As the library's: it waits for its time, asks the handler to end, and waits again."""

        async def shutdown(self, timeout_s: float) -> None:
            waited.append(timeout_s)
            await asyncio.sleep(2 * timeout_s)

        def pre_shutdown(self) -> None:
            pass

    server: Any = Stuck()
    accepting: Any = SimpleNamespace(close=lambda: None)
    app._servers.append((server, accepting))
    await app.aclose(0.5)
    assert waited == [0.5, module._END_S]


async def test_a_connection_takes_its_way_to_the_gate_with_it() -> None:
    clients: Any = SimpleNamespace(who=lambda sock: NOBODY)
    app = App(Config(), clients=clients, log=Log(io.StringIO()))
    closed = asyncio.Event()

    async def close() -> None:
        closed.set()

    gate: Any = SimpleNamespace(close=close)
    app._close_gate(gate)
    await closed.wait()
    await app.aclose(0.0)


def test_its_backlog_is_a_crowd() -> None:
    assert module.BACKLOG >= 1024
