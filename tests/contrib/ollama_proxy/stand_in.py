"""A server in Ollama's place, for what is carried to it: management, and the two newer routes.

It is no Ollama. Its answers have the shapes that Ollama's sources and its clients agree on, of
releases (0.13 and later) that can't be run here; it generates nothing, and remembers what reached
it. Misbehaviour is asked for by `fault`.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

MIB = 1 << 20


@dataclass
class Seen:
    """One request that reached it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    whole: bool = False  # its body came to its end
    left: bool = False  # the connection was closed before the answer was said
    said: bool = False


@dataclass
class StandIn:
    """`fault`: what goes wrong; `stuck`: questions are taken and not answered while it is set;
    `steps`: lines of progress of a pull; `big`: bytes of an answer to `/api/show`."""

    fault: str = ""
    stuck: bool = False
    steps: int = 3
    pause_s: float = 0.0
    big: int = 0
    hosts: dict[str, str] = field(default_factory=lambda: {"tiny:latest": ""})
    seen: list[Seen] = field(default_factory=list)
    blobs: dict[str, int] = field(default_factory=dict)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str) -> list[Seen]:
        """The requests of one path."""
        return [seen for seen in self.seen if seen.path == path]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.headers))
        self.seen.append(seen)
        try:
            answer = await self._answer(request, seen)
            # Said here, and not when this returns, so that it is known how it went.
            await answer.prepare(request)
            await answer.write_eof()
            seen.said = True
            return answer
        except (asyncio.CancelledError, ConnectionError):
            seen.left = True
            raise

    async def _answer(self, request: web.BaseRequest, seen: Seen) -> web.StreamResponse:
        if request.method == "POST" and request.path.startswith("/api/blobs/"):
            return await self._take_blob(request, seen)
        seen.body = await request.read()
        seen.whole = True
        if request.method in ("GET", "HEAD"):
            return await self._question(request)
        match request.path:
            case "/api/pull" | "/api/push" | "/api/create":
                if seen.body and json.loads(seen.body).get("stream") is False:
                    return web.json_response({"status": "success"})
                return await self._progress(request)
            case "/api/show":
                return self._show(seen)
            case "/api/copy" | "/api/delete":
                return web.Response()
            case "/api/me":
                return web.json_response({"name": "somebody"})
            case "/v1/responses" | "/v1/messages" if self.fault == "refused":
                error = {"message": "bad input", "type": "invalid_request_error"}
                return web.json_response({"error": error}, status=400)
            case "/v1/responses":
                return await self._responses(request, json.loads(seen.body))
            case "/v1/messages":
                return await self._messages(request, json.loads(seen.body))
        return web.Response(status=404, text="404 page not found")

    async def _question(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.stuck:
            await asyncio.Event().wait()
        if request.path.startswith("/api/blobs/"):
            known = request.path.rpartition("/")[2] in self.blobs
            return web.Response(status=200 if known else 404)
        match request.path:
            case "/":
                return web.Response(text="Ollama is running")
            case "/api/version":
                return web.json_response({"version": "0.33.0"})
            case "/api/tags":
                return web.json_response({"models": [self._tag(name) for name in self.hosts]})
            case "/api/ps":
                return web.json_response({"models": []})
            case "/api/status":
                return web.json_response({"cloud": {"disabled": False, "source": "none"}})
            case "/v1/models":
                data = [
                    {"id": name, "object": "model", "owned_by": "library"} for name in self.hosts
                ]
                return web.json_response({"object": "list", "data": data})
        return web.Response(status=404, text="404 page not found")

    def _tag(self, name: str) -> dict[str, Any]:
        details = {"format": "gguf", "family": "llama", "families": ["llama"]}
        details |= {"parent_model": "", "parameter_size": "1B", "quantization_level": "F16"}
        tag = {"name": name, "model": name, "digest": "ab" * 32, "size": 1000, "details": details}
        tag["modified_at"] = "2026-01-01T00:00:00Z"
        return tag | ({"remote_host": self.hosts[name]} if self.hosts[name] else {})

    def _show(self, seen: Seen) -> web.Response:
        name = json.loads(seen.body).get("model", "")
        if f"{name}:latest" not in self.hosts and name not in self.hosts:
            return web.json_response({"error": f"model '{name}' not found"}, status=404)
        shown = {"details": self._tag(next(iter(self.hosts)))["details"]}
        shown |= {"model_info": {"llama.context_length": 4096}, "capabilities": ["completion"]}
        return web.json_response(shown | {"license": "x" * self.big})

    async def _take_blob(self, request: web.BaseRequest, seen: Seen) -> web.StreamResponse:
        digest, n_bytes = hashlib.sha256(), 0
        async for data in request.content.iter_any():
            digest.update(data)
            n_bytes += len(data)
            await asyncio.sleep(self.pause_s)
        seen.whole = True
        name = request.path.rpartition("/")[2]
        if name != f"sha256:{digest.hexdigest()}":
            return web.json_response({"error": "digest mismatch"}, status=400)
        self.blobs[name] = n_bytes
        return web.Response(status=201)

    async def _progress(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        await answer.write(b'{"status":"pulling manifest"}\n')
        for step in range(1, self.steps + 1):
            await asyncio.sleep(self.pause_s)
            line = {"status": "pulling abc", "digest": "sha256:abc", "total": self.steps * MIB}
            await answer.write(json.dumps(line | {"completed": step * MIB}).encode() + b"\n")
        if self.fault in ("cut", "half-line"):
            await answer.write(b'{"status":' if self.fault == "half-line" else b"")
            assert request.transport is not None
            await asyncio.sleep(0.05)  # what is said is read before the reset
            request.transport.abort()
            return answer
        if self.fault == "error":
            await answer.write(b'{"error":"pull model manifest: file does not exist"}\n')
        else:
            await answer.write(b'{"status":"success"}\n')
        return answer

    # --- the two newer routes -----------------------------------------------------------------

    async def _responses(self, request: web.BaseRequest, body: dict) -> web.StreamResponse:
        head = {"id": "resp_1", "object": "response", "created_at": 1, "model": body["model"]}
        part = {"type": "output_text", "text": "Hello there", "annotations": []}
        item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant"}
        item["content"] = [part]
        usage = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
        whole = head | {"status": "completed", "output": [item], "usage": usage}
        if not body.get("stream"):
            return web.json_response(whole)
        at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        empty = item | {"content": [], "status": "in_progress"}
        events = [
            ("response.created", {"response": head | {"status": "in_progress", "output": []}}),
            ("response.output_item.added", {"output_index": 0, "item": empty}),
            ("response.content_part.added", at | {"part": part | {"text": ""}}),
            ("response.output_text.delta", at | {"delta": "Hello"}),
            ("response.output_text.delta", at | {"delta": " there"}),
            ("response.output_text.done", at | {"text": "Hello there"}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": whole}),
        ]
        numbered = [(kind, said | {"sequence_number": i}) for i, (kind, said) in enumerate(events)]
        return await self._events(request, numbered)

    async def _messages(self, request: web.BaseRequest, body: dict) -> web.StreamResponse:
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
        usage = {"input_tokens": 7, "output_tokens": 2}
        text = {"type": "text", "text": "Hello there"}
        whole = head | {"content": [text], "stop_reason": "end_turn", "usage": usage}
        if not body.get("stream"):
            return web.json_response(whole | {"stop_sequence": None})
        begun = head | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 0}}
        delta = {"type": "text_delta"}
        events = [
            ("message_start", {"message": begun}),
            ("content_block_start", {"index": 0, "content_block": text | {"text": ""}}),
            ("content_block_delta", {"index": 0, "delta": delta | {"text": "Hello"}}),
            ("content_block_delta", {"index": 0, "delta": delta | {"text": " there"}}),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": usage}),
            ("message_stop", {}),
        ]
        return await self._events(request, events)

    async def _events(
        self, request: web.BaseRequest, events: list[tuple[str, dict[str, Any]]]
    ) -> web.StreamResponse:
        if self.fault == "silent":
            await asyncio.Event().wait()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        if self.fault == "no-end":
            events = events[:-1]  # as an Ollama ends a stream in which something went wrong
        for i, (kind, said) in enumerate(events):
            if self.fault == "hang" and i == 4:
                await asyncio.Event().wait()
            await asyncio.sleep(self.pause_s)
            data = json.dumps({"type": kind} | said)
            await answer.write(f"event: {kind}\ndata: {data}\n\n".encode())
        return answer


@asynccontextmanager
async def served(handler: Any) -> AsyncIterator[int]:
    """A handler of requests on a port of its own."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def standing_in(**given: Any) -> AsyncIterator[StandIn]:
    """A running stand-in."""
    stand_in = StandIn(**given)
    async with served(stand_in.answer) as port:
        stand_in.port = port
        yield stand_in


@contextmanager
def in_a_thread(**given: Any) -> Iterator[StandIn]:
    """The same on a loop of its own, for those who wait for programs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = standing_in(**given)
    try:
        yield asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
