"""Which path is answered by whom."""

from typing import Any

import pytest
from aiohttp import web

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.refused import no
from onegate_ollama_proxy.routes import Entry, Routes, refusal_of


async def chat(*_: Any) -> Any: ...
async def version(*_: Any) -> Any: ...
async def blob(*_: Any) -> Any: ...


ROUTES = Routes(
    [
        Entry("POST", "/api/chat", chat),
        Entry("GET", "/api/version", version),
        Entry("HEAD", "/api/version", version),
        Entry("HEAD", "/api/blobs/", blob),
        Entry("GET", "/", version),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "handler"),
    [
        ("POST", "/api/chat", chat),
        ("GET", "/api/version", version),
        ("GET", "/", version),
        ("HEAD", "/api/blobs/sha256:0", blob),
    ],
)
def test_who_answers(method: str, path: str, handler: Any) -> None:
    assert ROUTES.find(method, path) is handler


@pytest.mark.parametrize(
    ("method", "path", "status", "headers"),
    [
        ("GET", "/api/nothing", 404, {}),
        ("GET", "/nothing", 404, {}),
        ("HEAD", "/api/blobs/", 404, {}),
        ("GET", "/api/chat", 405, {"Allow": "POST"}),
        ("POST", "/api/version", 405, {"Allow": "GET, HEAD"}),
        ("POST", "/api/blobs/x", 405, {"Allow": "HEAD"}),
        ("GET", "/api/version/", 301, {"Location": "/api/version"}),
        ("POST", "/api/chat/", 307, {"Location": "/api/chat"}),
    ],
)
def test_where_nobody_does(method: str, path: str, status: int, headers: dict[str, str]) -> None:
    found = ROUTES.find(method, path)
    assert isinstance(found, web.Response)
    assert found.status == status
    assert {name: found.headers[name] for name in headers} == headers


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/api/chat", b'{"error":"sorry"}'),
        ("/nothing", b'{"error":"sorry"}'),
        ("/v1/chat/completions", b'{"error":{"message":"sorry"'),
        ("/v1/messages", b'{"type":"error","error":{"type"'),
        ("/v1/messages/count_tokens", b'{"type":"error","error":{"type"'),
    ],
)
def test_each_api_says_no_in_its_own_way(path: str, shape: bytes) -> None:
    refusal = refusal_of(path, no(Reason.INVALID, "sorry"))
    assert refusal.body.startswith(shape)
    assert refusal.status == 400
