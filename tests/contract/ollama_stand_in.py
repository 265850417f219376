"""A server that answers as Ollama does, as far as the adapter reads it, and misbehaves on demand.

It has what matters of Ollama's inside: `parallel` seats for each loaded model with a queue before
them that nobody sees, one load at a time, models that are evicted, and prompts that are read to
their end whoever has left. What a request is to do stands in its text: `[[tokens:5]]`.
"""

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web

_DIRECTIVE = re.compile(r"\[\[([a-z-]+)(?::([^\]]*))?\]\]")
_DIGEST = "ab" * 32


@dataclass
class Model:
    """One model of its store. `seats` counts down to none free."""

    capabilities: list[str] = field(default_factory=lambda: ["completion"])
    digest: str = _DIGEST
    remote_host: str = ""
    context_length: int = 4096
    loaded: bool = False
    num_ctx: int = 0
    seats: asyncio.Semaphore | None = None
    inside: int = 0
    most_inside: int = 0


class StandIn:
    """`seen` are the bodies that reached it, `served` the texts it began to answer, in order."""

    def __init__(
        self,
        *,
        parallel: int = 1,
        version: str = "0.9.3",
        loadable: int = 1,
        token_s: float = 0.0,
    ) -> None:
        self.token_s = token_s
        self.parallel = parallel
        self.version = version
        self.loadable = loadable
        self.models = {"tiny:latest": Model(), "other:latest": Model(digest="cd" * 32)}
        self.cloud_disabled = False
        self.vram = 1000  # of each model's 1000 bytes
        self.load_s = 0.0
        self.load_error: str | None = None
        self.seen: list[tuple[str, dict]] = []
        self.served: list[str] = []
        self.asked: Counter[str] = Counter()
        self.loads = 0
        self.in_load = self.most_in_load = 0
        self.prefill_go = asyncio.Event()
        self.prefill_go.set()
        self._tasks: set[asyncio.Task] = set()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/api/{verb}", self._get)
        app.router.add_post("/api/{verb}", self._post)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # --- questions --------------------------------------------------------------------------

    async def _get(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        self.asked[verb] += 1
        if verb == "version":
            return web.json_response({"version": self.version})
        if verb == "status" and self.version >= "0.16.2":
            return web.json_response({"cloud": {"disabled": self.cloud_disabled}})
        if verb == "tags":
            return web.json_response({"models": [self._tag(*m) for m in self.models.items()]})
        if verb == "ps":
            loaded = [m for m in self.models.items() if m[1].loaded]
            return web.json_response({"models": [self._loaded(*m) for m in loaded] or None})
        return web.Response(status=404, text="404 page not found")

    def _tag(self, name: str, model: Model) -> dict:
        tag = {"name": name, "model": name, "digest": model.digest, "size": 1000}
        return tag | ({"remote_host": model.remote_host} if model.remote_host else {})

    def _loaded(self, name: str, model: Model) -> dict:
        return self._tag(name, model) | {"size_vram": self.vram, "context_length": model.num_ctx}

    async def _post(self, request: web.Request) -> web.StreamResponse:
        verb = request.match_info["verb"]
        body = await request.json()
        self.seen.append((verb, body))
        name = body["model"] if ":" in body["model"] else f"{body['model']}:latest"
        model = self.models.get(name)
        if model is None:
            return _error(404, f"model '{body['model']}' not found")
        if verb == "show":
            shown = {
                "capabilities": model.capabilities,
                "parameters": 'stop    "<|end|>"',
                "model_info": {"x.context_length": model.context_length},
            }
            return web.json_response(shown)
        if body.get("keep_alive") == "0ms":
            model.loaded = False
            return web.json_response({"response": "", "done": True, "done_reason": "unload"})
        if (refused := await self._load(name, model, body["options"]["num_ctx"])) is not None:
            return refused
        if verb == "embed":
            return await self._embed(model, body)
        text = body.get("prompt")
        if text == "":
            return web.json_response({"response": "", "done": True, "done_reason": "load"})
        if text is None:
            text = body["messages"][-1]["content"]
        return await self._answer(request, model, text, body, chat=verb == "chat")

    async def _load(self, name: str, model: Model, num_ctx: int) -> web.Response | None:
        if model.loaded and model.num_ctx == num_ctx:
            return None
        self.loads += 1
        self.in_load += 1
        self.most_in_load = max(self.most_in_load, self.in_load)
        try:
            await asyncio.sleep(self.load_s)
        finally:
            self.in_load -= 1
        if self.load_error is not None:
            return _error(500, self.load_error)
        others = [m for m in self.models.values() if m.loaded and m is not model]
        for other in others[: max(0, len(others) + 1 - self.loadable)]:
            other.loaded = False
        model.loaded, model.num_ctx = True, num_ctx
        model.seats = asyncio.Semaphore(self.parallel)
        return None

    async def _embed(self, model: Model, body: dict) -> web.Response:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        directives = dict(_DIRECTIVE.findall(" ".join(texts)))
        vectors = [[float(len(text)), 0.5] for text in texts]
        if "few" in directives:
            vectors = vectors[:-1]
        if "ragged" in directives:
            vectors[0] = [1.0]
        answer = {"embeddings": vectors, "prompt_eval_count": len(texts)}
        return web.json_response(answer)

    # --- answers ----------------------------------------------------------------------------

    async def _answer(
        self, request: web.Request, model: Model, text: str, body: dict, *, chat: bool
    ) -> web.StreamResponse:
        said = dict(_DIRECTIVE.findall(text))
        if "status" in said:
            status, _, why = said["status"].partition(" ")
            return _error(int(status), why or "no")
        if "html" in said:
            return web.Response(text="<html>hello\n</html>", content_type="text/html")
        if "redirect" in said:
            raise web.HTTPFound("http://example.org/")
        assert model.seats is not None
        async with model.seats:
            self.served.append(text)
            model.inside += 1
            model.most_inside = max(model.most_inside, model.inside)
            # A prompt is read to its end, and its seat is taken as long, even if nobody waits.
            prefill = asyncio.get_running_loop().create_task(self._prefill())
            self._tasks.add(prefill)
            prefill.add_done_callback(self._tasks.discard)
            try:
                try:
                    await asyncio.shield(prefill)
                except asyncio.CancelledError:
                    await asyncio.wait([prefill])
                    raise
                return await self._stream(request, body, said, chat=chat)
            finally:
                model.inside -= 1

    async def _prefill(self) -> None:
        await self.prefill_go.wait()

    async def _stream(
        self, request: web.Request, body: dict, said: dict, *, chat: bool
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        most = body["options"]["num_predict"]
        n_tok = min(most, int(said.get("tokens", most)))
        pause_s = float(said["pause-ms"]) / 1000 if "pause-ms" in said else self.token_s
        for i in range(n_tok):
            if "hang" in said and i == int(said["hang"] or 0):
                await asyncio.Event().wait()
            if "fault" in said and i == 2:
                await answer.write(_FAULTS[said["fault"]])
                if said["fault"] in ("cut", "half-line"):
                    assert request.transport is not None
                    request.transport.abort()
                return answer
            if "blank" in said:
                await answer.write(b"\n  \n")
            await answer.write(_line(f"w{i} ", chat, remote=said.get("remote", "")))
            await asyncio.sleep(pause_s)
        final = {
            "done": True,
            "done_reason": "length" if n_tok == most else "stop",
            "load_duration": int(float(said.get("load-ms", 20)) * 1e6),
            "prompt_eval_count": int(said.get("prompt-tok", 7)),
            "eval_count": int(said.get("usage", n_tok)),
        }
        for _ in range(2 if "twice" in said else 1):
            await answer.write(_line("", chat, **final))
        return answer


def _line(text: str, chat: bool, *, remote: str = "", **given) -> bytes:
    line = {"model": "tiny", "done": False} | given
    line |= {"message": {"role": "assistant", "content": text}} if chat else {"response": text}
    if remote:
        line["remote_host"] = remote
    return json.dumps(line).encode() + b"\n"


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


_FAULTS = {
    "error": b'{"error":"an error was encountered while running the model"}\n',
    "cut": b'{"message":{"content":"never whole"',
    "half-line": b"{",
    "no-done": b"",
    "garbage": b"\x00\x01 this is no JSON\n",
    "half-utf8": b'{"message":{"content":"\xe6\xbc"},"done":false}\n',
    "long-line": b"x" * (3 << 20) + b"\n",
    "deep": b"[" * 200_000 + b"\n",
    "list": b"[]\n",
    "load": b'{"done":true,"done_reason":"load"}\n',
    "negative": b'{"done":true,"done_reason":"stop","eval_count":-3}\n',
}
FAULTS = sorted(_FAULTS)
