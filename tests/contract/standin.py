"""A stand-in for OpenAI-compatible servers: their shapes, their widths, and every way to go wrong.

What a request is to get is said in its last message, as in the scripted engine: `[[close:2]]`.
"""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

_DIRECTIVE = re.compile(r"\[\[([a-z0-9-]+)(?::([^\]]*))?\]\]")
_CONTEXT_TOK = 1024
Server = TypeVar("Server")  # with `start` and `close`


@dataclass
class StandIn:
    """`flavour` is vllm, llama-server or none; `width` requests run at once, the rest waits in it.

    `inside` counts what it holds, whoever waits or runs; `seen` are the bodies that came.
    """

    flavour: str = "llama-server"
    width: int = 4
    token_s: float = 0.001
    prefill_s: float = 0.0
    priority: bool = False
    model: str = "stand-in"
    context_tok: int = _CONTEXT_TOK
    key: str | None = None
    max_queued: int | None = None
    listing: str | None = None
    inside: int = 0
    running: int = 0
    most_running: int = 0
    seen: list[dict] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    peers: int = 0
    port: int = 0
    held: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._waiting: list[asyncio.Event] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port or self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Dies: every connection is cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.inside = self.running = 0
        self._waiting.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.peers += 1
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the peer is gone, as it may
        finally:
            self.peers -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        method, path, _ = head.split(" ", 2)
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        if self.key is not None and f"Bearer {self.key}" not in head:
            return whole(writer, 401, {"error": {"message": "who are you"}})
        if method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            await self._complete(reader, writer, json.loads(body), "chat" in path)
        else:
            status, answer = self._question(path, json.loads(body) if body else {})
            whole(writer, status, answer)

    def _question(self, path: str, body: dict) -> tuple[int, object]:
        llama, vllm = self.flavour == "llama-server", self.flavour == "vllm"
        if path == "/v1/models":
            if self.listing is not None:
                return 200, self.listing
            row = {"id": self.model, "owned_by": "somebody"}
            if llama:
                meta = {"n_ctx": self.context_tok, "n_params": 1000}
                row |= {"owned_by": "llamacpp", "meta": meta}
            if vllm:
                row |= {"owned_by": "vllm", "max_model_len": self.context_tok}
            return 200, {"data": [row]}
        if llama and path == "/props":
            return 200, {"total_slots": self.width, "build_info": "b1", "model_path": self.model}
        if llama and path == "/slots":
            busy = min(self.inside, self.width)
            return 200, [{"is_processing": i < busy} for i in range(self.width)]
        if llama and path == "/metrics":
            waiting = max(0, self.inside - self.width)
            return 200, f"# x\nllamacpp:requests_deferred {waiting}\n"
        if vllm and path == "/version":
            return 200, {"version": "0.0.1"}
        if vllm and path == "/metrics":
            labels = f'{{engine="0",model_name="{self.model}"}}'
            busy = min(self.inside, self.width)
            return 200, (
                f"vllm:num_requests_running{labels} {busy}.0\n"
                f"vllm:num_requests_waiting{labels} {self.inside - busy}.0\n"
                'vllm:cache_config_info{block_size="16",num_gpu_blocks="512"} 1.0\n'
            )
        if llama and path == "/apply-template":
            return 200, {"prompt": rendered(body["messages"])}
        if llama and path == "/tokenize":
            return 200, {"tokens": [1] * n_tokens(body["content"])}
        if vllm and path == "/tokenize":
            text = body["prompt"] if "prompt" in body else rendered(body["messages"])
            return 200, {"count": n_tokens(text)}
        if path == "/v1/embeddings":
            if body["input"] == ["no"]:
                return 501, {"error": {"message": "no embeddings", "code": 501}}
            rows = [{"index": i, "embedding": [0.5, i]} for i in range(len(body["input"]))]
            return 200, {"data": rows[::-1], "usage": {"prompt_tokens": 3}}
        return 404, {"error": {"message": "not found"}}

    async def _complete(self, reader, writer, body: dict, chat: bool) -> None:
        self.seen.append(body)
        prompt = body.get("prompt")
        text = rendered(body["messages"]) if chat else prompt
        n_prompt = len(prompt) if isinstance(prompt, list) else n_tokens(text)
        wanted = dict(_DIRECTIVE.findall(text)) if isinstance(text, str) else {}
        if "priority" in body and not self.priority:
            return whole(writer, 400, {"error": {"message": "no priority here", "code": 400}})
        if body.get("model") != self.model:
            return whole(writer, 404, {"error": {"message": "no such model"}})
        if n_prompt > self.context_tok:
            error = {"message": "too long", "n_prompt_tokens": n_prompt, "n_ctx": self.context_tok}
            return whole(writer, 400, {"error": error})
        if not body.get("stream"):
            return whole(writer, 200, {"choices": [{"text": "x", "finish_reason": "length"}]})
        if self._refuse(writer, wanted):
            return
        await self._generate(reader, writer, body, chat, n_prompt, wanted)

    def _refuse(self, writer, wanted: dict) -> bool:
        if "status" in wanted:
            status, _, after = wanted["status"].partition(":")
            headers = f"Retry-After: {after}\r\n" if after else ""
            whole(writer, int(status), {"error": {"message": "as you like"}}, headers)
        elif "redirect" in wanted:
            whole(writer, 302, "", "Location: http://192.0.2.1/\r\n")
        elif "html" in wanted:
            whole(writer, 200, "<html><body>It works!</body></html>")
        elif "packed" in wanted:
            whole(writer, 200, "xx", "Content-Encoding: gzip\r\n")
        elif "no-http" in wanted:
            writer.write(b"220 mail.example.org ESMTP\r\n")
        elif "cut" in wanted:
            pass
        elif self.max_queued is not None and self.inside >= self.max_queued:
            stream_head(writer)
            writer.write(sse({"error": {"message": "too many", "code": 503}}) + DONE)
        else:
            return False
        return True

    async def _generate(self, reader, writer, body, chat, n_prompt, wanted) -> None:
        gone = asyncio.ensure_future(reader.read(1))  # noqa: TID251 - a server of its own
        self.inside += 1
        try:
            await self._seat(gone)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            try:
                await Script(self, writer, body, chat, n_prompt, wanted, gone).run()
            finally:
                self.running -= 1
                if self._waiting:
                    self._waiting.pop(0).set()
        except ConnectionError:
            if "hold" in wanted:
                await self.held.wait()
        finally:
            self.inside = max(0, self.inside - 1)
            gone.cancel()

    async def _seat(self, gone: asyncio.Future) -> None:
        if self.running < self.width and not self._waiting:
            return
        turn = asyncio.Event()
        self._waiting.append(turn)
        waiter = asyncio.ensure_future(turn.wait())  # noqa: TID251 - a server of its own
        await asyncio.wait([waiter, gone], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if not turn.is_set():
            self._waiting.remove(turn)
            raise ConnectionResetError


@contextlib.contextmanager
def in_a_thread(server: Server) -> Iterator[Server]:
    """The stand-in on a loop of its own, for those whose loops come and go."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass
class Script:
    """One answer, as its directives want it."""

    server: StandIn
    writer: asyncio.StreamWriter
    body: dict
    chat: bool
    n_prompt: int
    wanted: dict
    gone: asyncio.Future

    async def run(self) -> None:
        wanted, body = self.wanted, self.body
        stream_head(self.writer, sized=False)
        await self._pause(self.server.prefill_s)
        if self.server.flavour == "llama-server" and body.get("return_progress"):
            steps = range(256, self.n_prompt, 256)
            for done in (0, *steps, self.n_prompt):
                progress = {"total": self.n_prompt, "cache": 0, "processed": done}
                await self.send(sse({"choices": [], "prompt_progress": progress}))
        if "hang" in wanted:
            await self._pause(3600)
        if self.chat:
            await self.send(sse({"choices": [{"delta": {"role": "assistant", "content": None}}]}))
        n_tok = int(wanted.get("tokens", 10**9))
        n_tok = min(n_tok, body["max_tokens"], self.server.context_tok - self.n_prompt)
        if "forever" in wanted:
            n_tok = 10**9
        reason = "length" if n_tok >= body["max_tokens"] or "tokens" not in wanted else "stop"
        text, shown, made = "", 0, 0
        stops = body.get("stop") or []
        for i in range(n_tok):
            await self._pause(self.server.token_s)
            await self._fault(i)
            made += 1
            text += f"w{i % 10} "
            cut = min((text.index(s) for s in stops if s in text), default=None)
            if cut is not None:
                await self._piece(text[shown:cut])
                reason = "stop"
                break
            # As servers do: what may be the beginning of a stop string is held back.
            held = max(
                (k for s in stops for k in range(1, len(s)) if text.endswith(s[:k])), default=0
            )
            await self._piece(text[shown : len(text) - held])
            shown = max(shown, len(text) - held)
        else:
            if shown < len(text):
                await self._piece(text[shown:], extra=False)
        await self._end(reason, made)

    async def _piece(self, text: str, extra: bool = True) -> None:
        choice = {"index": 0, "finish_reason": None}
        choice |= {"delta": {"content": text}} if self.chat else {"text": text}
        if self.body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": text, "logprob": -0.5}]}
        await self.send(sse({"choices": [choice]}))

    async def _fault(self, i: int) -> None:
        wanted = self.wanted
        at = {name: int(value or 2) for name, value in wanted.items() if name in FAULTS}
        for name, when in at.items():
            if i != when:
                continue
            if name == "close":
                raise asyncio.CancelledError
            if name == "die":
                await self.server.close()
                raise asyncio.CancelledError
            if name == "stall":
                await self._pause(3600)
            data = FAULTS[name]
            if name == "long-line":
                data = b"data: " + b"x" * 3_000_000
            if data:
                await self.send(data)
            if name == "error-mid":
                await self.send(DONE)
                raise ConnectionResetError

    async def _end(self, reason: str, made: int) -> None:
        wanted = self.wanted
        final = {"index": 0, "finish_reason": reason} | (
            {"delta": {}} if self.chat else {"text": ""}
        )
        for call in [wanted["tool"]] if "tool" in wanted else []:
            for piece in (
                {"index": 0, "id": "c1", "function": {"name": call, "arguments": ""}},
                {"index": 0, "function": {"arguments": '{"a"'}},
                {"index": 0, "function": {"arguments": ": 1}"}},
            ):
                await self.send(sse({"choices": [{"delta": {"tool_calls": [piece]}}]}))
            final["finish_reason"] = "tool_calls"
        await self.send(sse({"choices": [final]}))
        if "double-final" in wanted:
            await self.send(sse({"choices": [final]}))
        usage: object = {"prompt_tokens": self.n_prompt, "completion_tokens": made}
        if "wrong-usage" in wanted:
            usage = {"prompt_tokens": self.n_prompt, "completion_tokens": 987_654}
        if "no-usage" not in wanted:
            await self.send(sse({"choices": [], "usage": usage}))
        if "no-done" not in wanted:
            await self.send(DONE)
        await self.send(b"", last=True)

    async def _pause(self, wait_s: float) -> None:
        if wait_s > 0:
            await asyncio.wait([self.gone], timeout=wait_s)
        if self.gone.done():
            raise ConnectionResetError

    async def send(self, data: bytes, last: bool = False) -> None:
        if "crlf" in self.wanted:
            data = data.replace(b"\n", b"\r\n")
        if "comments" in self.wanted:
            data = b": here\n\nid: 5\nevent: message\n" + data
        if "no-space" in self.wanted:
            data = data.replace(b"data: ", b"data:")
        pieces = [data[i : i + 1] for i in range(len(data))] if "bytes" in self.wanted else [data]
        for piece in pieces:
            if piece:
                self.writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if last:
            self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        if self.gone.done():
            raise ConnectionResetError


FAULTS = {
    "close": b"",
    "die": b"",
    "stall": b"",
    "garbage": b"\x00\x01 nonsense\n\n",
    "half-utf8": b'data: {"choices": [{"delta": {"content": "\xe6\xbc"}}]}\n\n',
    "half-surrogate": b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n',
    "bad-json": b'data: {"choices": [\n\n',
    "deep-json": b'data: {"choices": ' + b"[" * 100_000 + b"\n\n",
    "long-line": b"",
    "empty": b'data: {"choices": [{"delta": {"content": ""}}]}\n\n' * 50,
    "error-mid": b'data: {"error": {"message": "no more ink", "code": 500}}\n\n',
}
DONE = b"data: [DONE]\n\n"


def sse(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def rendered(messages: list[dict]) -> str:
    parts = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        parts.append(f"<{message['role']}> {content} ")
    return "".join(parts)


def n_tokens(text: str) -> int:
    return len(text.split()) + text.count("x" * 100) + 1


def whole(writer, status: int, answer: object, headers: str = "") -> None:
    data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{headers}Connection: close\r\n"
    writer.write(head.encode() + b"\r\n" + data)


def stream_head(writer, sized: bool = True) -> None:
    kind = "" if sized else "Transfer-Encoding: chunked\r\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{kind}Connection: close\r\n\r\n"
    writer.write(head.encode())
