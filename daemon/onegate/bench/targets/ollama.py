"""An Ollama server, over its own API."""

from contextlib import aclosing
from typing import Any

from onegate.bench.targets.base import Ask, Broke, Facts, TargetError, Usage, Watch
from onegate.bench.targets.http import HttpServer, chosen, event_of, number

_CHAT = "/api/chat"


class OllamaTarget:
    """See `base.Target`. It cannot ignore an answer's own end: answers are at most as asked.

    A class means nothing to it, and it queues without a bound for a model that is loaded.
    """

    def __init__(self, url: str, model: str | None, *, ready_s: float) -> None:
        self._server = HttpServer(url, ready_s=ready_s)
        self._wanted = model
        self._model = ""

    async def open(self) -> Facts:
        models = (await self._server.get("/api/tags")).get("models")
        names = [str(row.get("name")) for row in models or [] if isinstance(row, dict)]
        wanted = self._wanted
        if wanted is not None and wanted not in names and f"{wanted}:latest" in names:
            wanted = f"{wanted}:latest"
        facts = chosen(wanted, names, self._server.url)
        self._model = facts.model
        version = (await self._server.get("/api/version")).get("version", "")
        await self.count("One.")  # loads it, so that no request pays for that
        return Facts(model=facts.model, engine=f"ollama {version}".strip())

    def _body(self, text: str, n_tok: int, *, stream: bool) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "stream": stream,
            "options": {"num_predict": n_tok, "temperature": 0, "seed": 1},
        }

    async def count(self, text: str) -> int:
        answer = await self._server.post(_CHAT, self._body(text, 1, stream=False))
        n_tok = number(answer, "prompt_eval_count")
        if n_tok is None:
            raise TargetError(f"{self._server.url} does not say how many tokens a prompt has")
        return n_tok

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        body = self._body(ask.text, ask.output_tok, stream=True)
        usage = None
        async with aclosing(self._server.stream(_CHAT, body, ask)) as lines:
            async for line in lines:
                event = event_of(line)
                if "error" in event:
                    raise Broke("engine_failed")
                message = event.get("message")
                if isinstance(message, dict) and any(map(message.get, ("content", "thinking"))):
                    watch.piece(1, visible=True)
                if event.get("done") is True:
                    usage = Usage(number(event, "prompt_eval_count"), number(event, "eval_count"))
        if usage is None:
            raise Broke("cut_short")
        return usage

    async def aclose(self) -> None:
        await self._server.aclose()
