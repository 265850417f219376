"""An Ollama server, over its own API."""

from contextlib import aclosing
from typing import Any

from onegate.bench.targets.base import Ask, Broke, Facts, Usage, Watch, in_time
from onegate.bench.targets.http import HttpServer, chosen, counted, event_of, named, usage, word

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
        names = [row["name"] for row in named(models, "name")]
        wanted = self._wanted
        if wanted is not None and wanted not in names and f"{wanted}:latest" in names:
            wanted = f"{wanted}:latest"
        facts = chosen(wanted, names, self._server.url)
        self._model = facts.model
        version = word(await self._server.get("/api/version"), "version")
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
        return counted(answer, "prompt_eval_count", self._server.url)

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        body = self._body(ask.text, ask.output_tok, stream=True)
        found = None
        async with (
            in_time(ask, watch) as heard,
            aclosing(self._server.stream(_CHAT, body)) as lines,
        ):
            async for line in lines:
                event = event_of(line)
                if event.get("error") is not None:
                    raise Broke("engine_failed")
                message = event.get("message")
                if isinstance(message, dict) and any(map(message.get, ("content", "thinking"))):
                    heard.piece(1, visible=True)
                if event.get("done") is True:
                    found = usage(event, "prompt_eval_count", "eval_count")
        if found is None:
            raise Broke("cut_short")
        return found

    async def aclose(self) -> None:
        await self._server.aclose()
