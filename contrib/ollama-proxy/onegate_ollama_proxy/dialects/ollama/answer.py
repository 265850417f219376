"""Answers in the shapes of Ollama's routes: lines of JSON, and documents."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from onegate.client.reply import Reply
from onegate.clock import wall_ms
from onegate.protocol.content import FinishReason, TokenLogprob, ToolCall, Usage
from onegate.protocol.errors import Reason
from onegate.protocol.messages import Chunk
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.dialects.ollama.context import pack
from onegate_ollama_proxy.dialects.ollama.refusal import error_line
from onegate_ollama_proxy.refused import Refused, no

_DOCUMENT = "application/json; charset=utf-8"
_NS_PER_MS = 1_000_000


class _Writer:
    """What the routes for text have in common."""

    content_type = "application/x-ndjson"
    document_type = _DOCUMENT
    # Blanks may stand before any JSON value; an empty line would be an error to some clients.
    padding = b" "

    def __init__(self, model: str) -> None:
        self._model = model

    def broken(self, no: No) -> bytes:
        """The error as a line of its own."""
        return error_line(no)

    def end(self, reply: Reply) -> bytes:
        """The last line of a stream: how it ended, and what it took."""
        return _line(self._head() | self._said("", "") | self._last(reply))

    def _said(self, text: str, thinking: str, calls: list[Any] | None = None) -> dict[str, Any]:
        raise NotImplementedError

    def _last(self, reply: Reply) -> dict[str, Any]:
        return {"done": True, "done_reason": _reason(reply)} | _figures(reply)

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": now()}


class ChatWriter(_Writer):
    """`/api/chat`."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._calls = 0

    def chunk(self, chunk: Chunk) -> bytes:
        """A piece of the answer; a tool call is one whole."""
        if chunk.tool_call is not None:
            said = self._said("", "", [self._call(chunk.tool_call)])
        elif chunk.kind == "thinking":
            said = self._said("", chunk.text)
        else:
            said = self._said(chunk.text, "")
        if not (chunk.text or chunk.tool_call or chunk.logprobs):
            return b""
        return _line(self._head() | said | {"done": False} | _logprobs(chunk.logprobs))

    def whole(self, reply: Reply) -> bytes:
        """The answer in one document."""
        calls = [self._call(call) for call in reply.tool_calls]
        said = self._said(reply.text, reply.thinking, calls)
        return _document(self._head() | said | self._last(reply) | _logprobs(reply.logprobs))

    def _said(self, text: str, thinking: str, calls: list[Any] | None = None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = calls
        return {"message": message}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {
            "index": self._calls,
            "name": call.function.name,
            "arguments": _arguments(call),
        }
        self._calls += 1
        return ({"id": call.id} if call.id else {}) | {"function": function}


class GenerateWriter(_Writer):
    """`/api/generate`. `turns`: the conversation up to here, which the last line gives back with
    the answer; None where that makes no sense."""

    def __init__(self, model: str, turns: list[tuple[str, str]] | None) -> None:
        super().__init__(model)
        self._turns = turns

    def chunk(self, chunk: Chunk) -> bytes:
        """A piece of the answer."""
        if not (chunk.text or chunk.logprobs):
            return b""
        is_thought = chunk.kind == "thinking"
        said = self._said("" if is_thought else chunk.text, chunk.text if is_thought else "")
        return _line(self._head() | said | {"done": False} | _logprobs(chunk.logprobs))

    def whole(self, reply: Reply) -> bytes:
        """The answer in one document."""
        said = self._said(reply.text, reply.thinking)
        return _document(self._head() | said | self._last(reply) | _logprobs(reply.logprobs))

    def _said(self, text: str, thinking: str, calls: list[Any] | None = None) -> dict[str, Any]:
        return {"response": text} | ({"thinking": thinking} if thinking else {})

    def _last(self, reply: Reply) -> dict[str, Any]:
        context: dict[str, Any] = {}
        if self._turns is not None:
            context["context"] = pack([*self._turns, ("assistant", reply.text)])
        return super()._last(reply) | context


class EmbedWriter:
    """`/api/embed`."""

    document_type = _DOCUMENT

    def __init__(self, model: str) -> None:
        self._model = model

    def whole(self, vectors: list[list[float]], usage: Usage, took_ns: int) -> bytes:
        """One document."""
        return _document(
            {
                "model": self._model,
                "embeddings": vectors,
                "total_duration": took_ns,
                "prompt_eval_count": usage.prompt_tok,
            }
        )


class EmbeddingWriter:
    """`/api/embeddings`, the older route: one vector and nothing else."""

    document_type = _DOCUMENT

    def whole(self, vectors: list[list[float]], usage: Usage, took_ns: int) -> bytes:
        """One document."""
        return _document({"embedding": vectors[0]})


def now() -> str:
    """The time as Go writes it."""
    moment = datetime.fromtimestamp(wall_ms() / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def loaded(model: str, reason: str, said: dict[str, Any], took_ns: int) -> bytes:
    """The answer to a request that only loads or unloads: one document, for streams too."""
    return _document(
        {
            "model": model,
            "created_at": now(),
            **said,
            "done": True,
            "done_reason": reason,
            "total_duration": took_ns,
            "load_duration": took_ns,
        }
    )


def _reason(reply: Reply) -> str:
    """`length`, or `stop`, which Ollama says of tool calls too."""
    return "length" if reply.finish_reason == FinishReason.LENGTH else "stop"


def _figures(reply: Reply) -> dict[str, int]:
    """Times in nanoseconds, and tokens. What was waited before the engine began, in the queue and
    for the model, is `load_duration`, as with Ollama. Zeros are left out, as Ollama does."""
    timings = reply.timings
    figures = {
        "total_duration": _ns(timings.e2e_ms),
        "load_duration": _ns(timings.queue_ms),
        "prompt_eval_count": reply.usage.prompt_tok,
        "prompt_eval_duration": _ns(timings.prefill_ms),
        "eval_count": reply.usage.output_tok,
        "eval_duration": _ns(timings.decode_ms),
    }
    return {name: value for name, value in figures.items() if value}


def _ns(milliseconds: float | None) -> int:
    return 0 if milliseconds is None else round(milliseconds * _NS_PER_MS)


def _logprobs(logprobs: list[TokenLogprob] | None) -> dict[str, Any]:
    if not logprobs:
        return {}
    return {
        "logprobs": [
            _token(one.token, one.logprob)
            | (
                {}
                if one.top is None
                else {"top_logprobs": [_token(top.token, top.logprob) for top in one.top]}
            )
            for one in logprobs
        ]
    }


def _token(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _arguments(call: ToolCall) -> msgspec.Raw:
    """The arguments as the object that clients of these routes insist on. Raises Refused."""
    text = call.function.arguments.strip() or "{}"
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        sentence = (
            f"the model called {call.function.name[:64]!a} with arguments that are no JSON object"
        )
        raise Refused(no(Reason.ENGINE_FAILED, sentence)) from None
    return msgspec.Raw(text.encode())


def _line(said: dict[str, Any]) -> bytes:
    return msgspec.json.encode(said) + b"\n"


def _document(said: dict[str, Any]) -> bytes:
    return msgspec.json.encode(said)
