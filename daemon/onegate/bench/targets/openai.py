"""Any server that speaks the OpenAI chat dialect: vLLM, llama-server, transformers serve, ..."""

from contextlib import aclosing
from typing import Any

from msgspec import structs

from onegate.bench.targets.base import Ask, Broke, Facts, Refused, TargetError, Usage, Watch
from onegate.bench.targets.http import HttpServer, chosen, event_of, failure, number

_CHAT = "/v1/chat/completions"
_DATA, _END = b"data:", b"[DONE]"
_SPOKEN = ("content", "reasoning_content", "tool_calls")


class OpenAiTarget:
    """See `base.Target`. A class means nothing to such a server."""

    def __init__(self, url: str, model: str | None, *, ready_s: float) -> None:
        # With or without the /v1 that OpenAI clients want in their base URL.
        self._server = HttpServer(url.rstrip("/").removesuffix("/v1"), ready_s=ready_s)
        self._wanted = model
        self._model = ""
        self._ignore_eos = True

    async def open(self) -> Facts:
        listed = (await self._server.get("/v1/models")).get("data")
        rows = [row for row in listed or [] if isinstance(row, dict)]
        facts = chosen(self._wanted, [str(row.get("id")) for row in rows], self._server.url)
        self._model = facts.model
        await self._learn_end()
        (row,) = [row for row in rows if row.get("id") == facts.model][:1]
        # vLLM's name for it, then llama-server's.
        context_tok = number(row, "max_model_len")
        if context_tok is None and isinstance(meta := row.get("meta"), dict):
            context_tok = number(meta, "n_ctx")
        return structs.replace(facts, engine=str(row.get("owned_by", "")), context_tok=context_tok)

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
        usage = answer.get("usage")
        n_tok = number(usage, "prompt_tokens") if isinstance(usage, dict) else None
        if n_tok is None:
            raise TargetError(f"{self._server.url} does not say how many tokens a prompt has")
        return n_tok

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        answer = _Answer(watch)
        body = self._body(ask.text, ask.output_tok, stream=True)
        async with aclosing(self._server.stream(_CHAT, body, ask)) as lines:
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
        if "error" in event:
            raise _error(event["error"], started=self._spoke)
        if isinstance(counted := event.get("usage"), dict):
            self.usage = Usage(
                number(counted, "prompt_tokens"), number(counted, "completion_tokens")
            )
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


def _error(error: Any, *, started: bool) -> Refused | Broke:
    """An error within a stream: under status 200 vLLM refuses like this when many come at once."""
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and not started:
        return failure(code, None)
    return Broke("engine_failed")
