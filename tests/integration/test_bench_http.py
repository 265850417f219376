"""HTTP targets over real sockets, against stand-ins that speak as the real servers were seen to."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="absent aiohttp: pip install 'onegate[http]'")

import aiohttp
from aiohttp import web

from onegate.bench.prompts import learn, prompt
from onegate.bench.targets import http
from onegate.bench.targets.base import Ask, Broke, Expired, Refused, Target, TargetError
from onegate.bench.targets.ollama import OllamaTarget
from onegate.bench.targets.openai import OpenAiTarget
from onegate.tasks import Tasks

TEMPLATE_TOK = 30


class Watched:
    def __init__(self) -> None:
        self.pieces = 0
        self.first = asyncio.Event()

    def started(self, queue_ms: float | None) -> None: ...

    def piece(self, n_tok: int, *, visible: bool) -> None:
        self.pieces += 1
        self.first.set()


class Server:
    """Speaks both dialects. `mood` is what it does with a streamed request."""

    def __init__(self) -> None:
        self.mood = "answer"
        self.gone = asyncio.Event()
        self.loading = 2

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._json({"data": [{"id": "tiny", "owned_by": "x"}]}))
        app.router.add_get("/api/tags", self._json({"models": [{"name": "tiny"}]}))
        app.router.add_get("/api/version", self._json({"version": "1"}))
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/api/chat", self._chat)
        return app

    def _json(self, found: dict[str, Any]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            # As llama-server does until its model is there.
            self.loading -= 1
            return web.json_response(found, status=200 if self.loading < 0 else 503)

        return answer

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        openai = request.path.startswith("/v1")
        prompt_tok = TEMPLATE_TOK + len(body["messages"][0]["content"].split())
        if self.mood == "mute":
            await asyncio.sleep(3600)
        if not body["stream"]:
            count = {"usage": {"prompt_tokens": prompt_tok}, "prompt_eval_count": prompt_tok}
            return web.json_response(count)
        if self.mood == "busy":
            return web.json_response({}, status=503, headers={"Retry-After": "2"})
        response = web.StreamResponse()
        await response.prepare(request)
        n_tok = body["max_tokens"] if openai else body["options"]["num_predict"]
        try:
            for _ in range(n_tok):
                await self._say(response, openai, {"content": "a "})
            if self.mood == "hang":
                await asyncio.sleep(3600)
            if self.mood == "long":
                await response.write(b"data: " + b"x" * (3 << 20) + b"\n")
            if self.mood == "answer":
                await self._end(response, openai, prompt_tok, n_tok)
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        if self.mood == "break":
            assert request.transport is not None
            request.transport.abort()
        return response

    @staticmethod
    async def _say(response: web.StreamResponse, openai: bool, message: dict[str, str]) -> None:
        event = (
            {"choices": [{"delta": message, "finish_reason": None}]}
            if openai
            else {"message": message, "done": False}
        )
        await response.write((b"data: " if openai else b"") + json.dumps(event).encode() + b"\n")

    @staticmethod
    async def _end(response: web.StreamResponse, openai: bool, prompt_tok: int, n_tok: int) -> None:
        if openai:
            usage = {"prompt_tokens": prompt_tok, "completion_tokens": n_tok}
            last = json.dumps({"choices": [], "usage": usage}).encode()
            await response.write(b"data: " + last + b"\n\ndata: [DONE]\n\n")
        else:
            done = {"done": True, "prompt_eval_count": prompt_tok, "eval_count": n_tok}
            await response.write(json.dumps(done).encode() + b"\n")


@asynccontextmanager
async def serving(server: Server, path: Path) -> AsyncIterator[str]:
    runner = web.AppRunner(server.app(), handler_cancellation=True)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield f"unix:{path}"
    finally:
        await runner.cleanup()


@pytest.fixture(params=[OpenAiTarget, OllamaTarget])
async def both(request: Any, tmp_path: Path) -> AsyncIterator[tuple[Server, Target]]:
    server = Server()
    async with serving(server, tmp_path / "http.sock") as url:
        target = request.param(url, None, ready_s=30.0)
        await target.open()
        try:
            yield server, target
        finally:
            await target.aclose()


Both = tuple[Server, Target]


def asking(**more: Any) -> Ask:
    return Ask(**({"text": "hi", "output_tok": 5, "client": 0} | more))


async def test_an_answer_of_a_prompt_of_exact_length(both: Both) -> None:
    _, target = both
    rule = await learn(target.count)
    assert (rule.overhead_tok, rule.exact) == (TEMPLATE_TOK, True)
    watched = Watched()
    usage = await target.ask(asking(text=prompt(rule, 48, "a")), watched)
    assert (usage.prompt_tok, usage.output_tok, watched.pieces) == (48, 5, 5)


async def test_a_server_that_never_gets_ready(tmp_path: Path) -> None:
    server = Server()
    server.loading = 10**9
    async with serving(server, tmp_path / "http.sock") as url:
        target = OpenAiTarget(url, None, ready_s=0.05)
        with pytest.raises(TargetError, match="not ready within"):
            await target.open()
        await target.aclose()


@pytest.mark.parametrize("kind", [OpenAiTarget, OllamaTarget])
async def test_a_server_that_never_answers_a_request(kind: Any, tmp_path: Path) -> None:
    server = Server()
    server.loading, server.mood = 0, "mute"
    async with serving(server, tmp_path / "http.sock") as url:
        target = kind(url, None, ready_s=0.3)
        with pytest.raises(TargetError, match="did not answer within"):
            await target.open()
        await target.aclose()


async def test_a_document_without_end_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_MAX_DOCUMENT_BYTES", 20)
    async with serving(Server(), tmp_path / "http.sock") as url:
        target = OpenAiTarget(url, None, ready_s=30.0)
        with pytest.raises(TargetError, match="more than 20 bytes"):
            await target.open()
        await target.aclose()


async def test_a_connection_that_is_not_made_is_a_failure(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = both

    async def late(*_: Any, **__: Any) -> Any:
        raise aiohttp.ConnectionTimeoutError

    monkeypatch.setattr(aiohttp.UnixConnector, "_create_connection", late)
    for connector in (target._server._session.connector,):  # type: ignore[attr-defined]
        await connector.close()
    target._server._session = None  # type: ignore[attr-defined]
    with pytest.raises(Broke, match="timeout"):
        await target.ask(asking(timeout_ms=60_000), Watched())


async def test_a_refusal_with_its_hint(both: Both) -> None:
    server, target = both
    server.mood = "busy"
    with pytest.raises(Refused) as caught:
        await target.ask(asking(), Watched())
    assert (caught.value.reason, caught.value.retry_after_ms) == ("http_503", 2000.0)


async def test_a_caller_that_leaves_is_seen_to_leave(both: Both, timeout_factor: float) -> None:
    server, target = both
    server.mood = "hang"
    watched = Watched()
    tasks = Tasks(lambda name, error: None)
    tasks.spawn(target.ask(asking(), watched), name="caller")
    async with asyncio.timeout(30 * timeout_factor):
        await watched.first.wait()
        await tasks.aclose()
        await server.gone.wait()


@pytest.mark.parametrize("mood", ["break", "long", "end"])
async def test_what_is_not_whole_is_a_failure(both: Both, mood: str) -> None:
    server, target = both
    server.mood = mood
    with pytest.raises(Broke):
        await target.ask(asking(), Watched())


async def test_a_deadline_of_ones_own(both: Both) -> None:
    server, target = both
    server.mood = "hang"
    with pytest.raises(Expired):
        await target.ask(asking(timeout_ms=50), Watched())


@pytest.mark.parametrize("kind", [OpenAiTarget, OllamaTarget])
async def test_nobody_there(kind: Any, tmp_path: Path) -> None:
    target = kind(f"unix:{tmp_path}/none", None, ready_s=30.0)
    with pytest.raises(TargetError, match="does not answer"):
        await target.open()
    await target.aclose()
