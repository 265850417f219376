"""Answers in the OpenAI API's shapes: documents, and server-sent events."""

import secrets
from typing import Any

import msgspec

from onegate.client.reply import Reply
from onegate.clock import wall_ms
from onegate.protocol.content import FinishReason, TokenLogprob, ToolCall
from onegate.protocol.messages import Chunk
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.dialects.openai import refusal

_FINGERPRINT = "fp_onegate"
_DONE = b"data: [DONE]\n\n"
# A comment, which every reader of events skips.
_PADDING = b": waiting\n\n"
_REASONS = frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS})


class _Writer:
    """What the two routes have in common."""

    document_type = "application/json; charset=utf-8"
    content_type = "text/event-stream"
    document: str  # what a document calls itself
    event: str  # and an event
    prefix: str  # of its name

    def __init__(self, model: str, *, stream: bool, include_usage: bool) -> None:
        self._model = model
        self._stream = stream
        self._include_usage = include_usage
        self._id = f"{self.prefix}-{secrets.token_hex(12)}"
        self._created = wall_ms() // 1000
        # Blanks go before any document.
        self.padding = _PADDING if stream else b" "

    def broken(self, no: No) -> bytes:
        """An error, and no `[DONE]` behind it."""
        return refusal.event(no) if self._stream else refusal.error(no)

    def end(self, reply: Reply) -> bytes:
        """The last pieces of a stream."""
        data = self._say([self._last(reply)])
        if self._include_usage:
            data += self._say([], _usage(reply))
        return data + _DONE

    def whole(self, reply: Reply) -> bytes:
        """The answer in one document."""
        return msgspec.json.encode(
            {**self._head(self.document), "choices": [self._whole(reply)], "usage": _usage(reply)}
        )

    def _last(self, reply: Reply) -> dict[str, Any]:
        raise NotImplementedError

    def _whole(self, reply: Reply) -> dict[str, Any]:
        raise NotImplementedError

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": _FINGERPRINT,
        }

    def _say(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        event = {**self._head(self.event), "choices": choices}
        if self._include_usage:
            event["usage"] = usage  # null in all but the last, as the API has it
        return b"data: " + msgspec.json.encode(event) + b"\n\n"


class ChatWriter(_Writer):
    """`/v1/chat/completions`."""

    document = "chat.completion"
    event = "chat.completion.chunk"
    prefix = "chatcmpl"

    def __init__(self, model: str, *, stream: bool, include_usage: bool) -> None:
        super().__init__(model, stream=stream, include_usage=include_usage)
        self._begun = False
        self._calls = 0

    def chunk(self, chunk: Chunk) -> bytes:
        """A piece of the answer. Who speaks is said once, with the first."""
        delta: dict[str, Any] = {}
        if chunk.tool_call is not None:
            delta["tool_calls"] = [{"index": self._calls, **_call(chunk.tool_call)}]
            self._calls += 1
        elif chunk.text and chunk.kind == "thinking":
            delta["reasoning"] = chunk.text
        elif (chunk.text and chunk.kind == "text") or chunk.logprobs:
            delta["content"] = chunk.text
        else:
            return b""
        choice: dict[str, Any] = {"index": 0, "delta": self._first() | delta, "finish_reason": None}
        if chunk.logprobs:
            choice["logprobs"] = {"content": [_logprob(one) for one in chunk.logprobs]}
        return self._say([choice])

    def _first(self) -> dict[str, Any]:
        if self._begun:
            return {}
        self._begun = True
        return {"role": "assistant", "content": ""}

    def _last(self, reply: Reply) -> dict[str, Any]:
        return {"index": 0, "delta": self._first(), "finish_reason": _reason(reply)}

    def _whole(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        if reply.thinking:
            message["reasoning"] = reply.thinking
        if reply.tool_calls:
            message["tool_calls"] = [_call(call) for call in reply.tool_calls]
        logprobs = [_logprob(one) for one in reply.logprobs]
        return {
            "index": 0,
            "message": message,
            "logprobs": {"content": logprobs} if logprobs else None,
            "finish_reason": _reason(reply),
        }


class CompletionWriter(_Writer):
    """`/v1/completions`. It has no place for what a model thinks before it answers."""

    document = event = "text_completion"
    prefix = "cmpl"

    def chunk(self, chunk: Chunk) -> bytes:
        """A piece of the answer."""
        if chunk.kind != "text" or not (chunk.text or chunk.logprobs):
            return b""
        choice = {"text": chunk.text, "index": 0, "finish_reason": None}
        return self._say([{**choice, "logprobs": _columns(chunk.logprobs or [])}])

    def _last(self, reply: Reply) -> dict[str, Any]:
        return {"text": "", "index": 0, "finish_reason": _reason(reply), "logprobs": None}

    def _whole(self, reply: Reply) -> dict[str, Any]:
        return {
            "text": reply.text,
            "index": 0,
            "logprobs": _columns(reply.logprobs),
            "finish_reason": _reason(reply),
        }


def _reason(reply: Reply) -> str:
    """In the API's own words; one that it does not have is the natural end."""
    if reply.finish_reason not in _REASONS:
        return str(FinishReason.STOP)
    return str(reply.finish_reason)


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    counted: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tok,
        "completion_tokens": usage.output_tok,
        "total_tokens": usage.prompt_tok + usage.output_tok,
    }
    if reply.timings.cached_tok is not None:
        counted["prompt_tokens_details"] = {"cached_tokens": reply.timings.cached_tok}
    return counted


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _logprob(one: TokenLogprob) -> dict[str, Any]:
    return {
        **_token(one.token, one.logprob),
        "top_logprobs": [_token(top.token, top.logprob) for top in one.top or ()],
    }


def _token(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _columns(logprobs: list[TokenLogprob]) -> dict[str, Any] | None:
    """The older form. Where in the text each token begins is not said."""
    if not logprobs:
        return None
    return {
        "tokens": [one.token for one in logprobs],
        "token_logprobs": [one.logprob for one in logprobs],
        "top_logprobs": [{top.token: top.logprob for top in one.top or ()} for one in logprobs],
        "text_offset": [],
    }
