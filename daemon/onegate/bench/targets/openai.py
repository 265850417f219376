"""Any server that speaks the OpenAI chat dialect: vLLM, llama-server, transformers serve, ..."""

from contextlib import aclosing
from typing import Any

from msgspec import structs

from onegate.bench.targets.base import (
    Ask,
    Broke,
    Facts,
    Refused,
    TargetError,
    Usage,
    Watch,
    in_time,
)
from onegate.bench.targets.http import (
    HttpServer,
    chosen,
    counted,
    event_of,
    failure,
    named,
    number,
    usage,
    word,
)

_CHAT = "/v1/chat/completions"
_DATA, _END = b"data:", b"[DONE]"
# vLLM and Ollama call their models' thoughts `reasoning`, others and older ones the longer name.
_SPOKEN = ("content", "reasoning_content", "reasoning", "tool_calls")


class OpenAiTarget:
    """See `base.Target`. A class means nothing to such a server."""

    def __init__(self, url: str, model: str | None, *, ready_s: float) -> None:
        # With or without the /v1 that OpenAI clients want in their base URL.
        self._server = HttpServer(url.rstrip("/").removesuffix("/v1"), ready_s=ready_s)
        self._wanted = model
        self._model = ""
        self._ignore_eos = True

    async def open(self) -> Facts:
        rows = named((await self._server.get("/v1/models")).get("data"), "id")
        facts = chosen(self._wanted, [row["id"] for row in rows], self._server.url)
        self._model = facts.model
        await self._learn_end()
        row = next(row for row in rows if row["id"] == facts.model)
        try:
            context_tok = _context_tok(row)
        except ValueError as error:
            raise TargetError(f"{self._server.url} cannot be reckoned with: {error}") from error
        return structs.replace(facts, engine=word(row, "owned_by"), context_tok=context_tok)

    async def _learn_end(self) -> None:
        """Whether answers can be made as long as wanted: some servers refuse unknown fields."""
        try:
            await self._server.post(_CHAT, self._body("One.", 1, stream=False))
        except TargetError as error:
            if not isinstance(error.__cause__, Refused):
                raise
            self._ignore_eos = False
            await self._server.post(_CHAT, self._body("One.", 1, stream=False))

    def _body(self, text: str, n_tok: int, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": n_tok,
            "temperature": 0,
            "stream": stream,
        }
        if self._ignore_eos:
            body["ignore_eos"] = True
        if stream:
            body["stream_options"] = {"include_usage": True}
        return body

    async def count(self, text: str) -> int:
        answer = await self._server.post(_CHAT, self._body(text, 1, stream=False))
        found = answer.get("usage")
        return counted(found if isinstance(found, dict) else {}, "prompt_tokens", self._server.url)

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        body = self._body(ask.text, ask.output_tok, stream=True)
        async with (
            in_time(ask, watch) as heard,
            aclosing(self._server.stream(_CHAT, body)) as lines,
        ):
            answer = _Answer(heard)
            async for line in lines:
                if line.startswith(_DATA):
                    answer.take(line.removeprefix(_DATA).strip())
        if not answer.ended:
            raise Broke("cut_short")
        return answer.usage

    async def aclose(self) -> None:
        await self._server.aclose()


class _Answer:
    """What the events of one stream add up to."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._spoke = False
        self.usage = Usage()
        self.ended = False

    def take(self, data: bytes) -> None:
        """One event. Raises Refused, Broke."""
        if data == _END:
            self.ended = True
            return
        event = event_of(data)
        if (error := event.get("error")) is not None:
            raise _error(error, started=self._spoke)
        if isinstance(found := event.get("usage"), dict):
            self.usage = usage(found, "prompt_tokens", "completion_tokens")
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict) and any(map(delta.get, _SPOKEN)):
            self._spoke = True
            self._watch.piece(1, visible=True)
        # Not every server ends with [DONE].
        self.ended = self.ended or choice.get("finish_reason") is not None


def _context_tok(row: dict[str, Any]) -> int | None:
    """vLLM's name for it, then llama-server's. Raises ValueError."""
    found = number(row, "max_model_len")
    if found is None and isinstance(meta := row.get("meta"), dict):
        found = number(meta, "n_ctx")
    return found or None


def _error(error: Any, *, started: bool) -> Refused | Broke:
    """An error within a stream: under status 200 vLLM refuses like this when many come at once."""
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 600 and not started:
        return failure(code, None)
    return Broke("engine_failed")
