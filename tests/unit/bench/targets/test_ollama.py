"""An Ollama server, played."""

import json
from typing import Any

import pytest
from msgspec import structs

pytest.importorskip("aiohttp", reason="absent aiohttp: pip install 'onegate[http]'")

from onegate.bench.targets import ollama as module
from onegate.bench.targets.base import Ask, Broke, Expired, Facts, TargetError
from onegate.bench.targets.ollama import OllamaTarget

ASK = Ask(text="hi", output_tok=7, client=0)


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def said(text: str, **more: Any) -> bytes:
    return line(message={"role": "assistant", "content": text}, done=False, **more)


DONE = line(message={"content": ""}, done=True, prompt_eval_count=9, eval_count=2)


@pytest.fixture
def target(server: Any, monkeypatch: pytest.MonkeyPatch) -> OllamaTarget:
    monkeypatch.setattr(module, "HttpServer", server)
    server.answers = {
        "/api/tags": {"models": [{"name": "tiny:latest"}]},
        "/api/version": {"version": "0.9.3"},
        "/api/chat": {"prompt_eval_count": 5},
    }
    return OllamaTarget("http://h:1", "tiny", ready_s=1.0)


async def test_it_is_opened_and_its_model_loaded(server: Any, target: OllamaTarget) -> None:
    assert await target.open() == Facts(model="tiny:latest", engine="ollama 0.9.3")
    assert server.asked[-1][1]["options"]["num_predict"] == 1
    assert await target.count("hello") == 5


async def test_an_answer_is_watched(server: Any, target: OllamaTarget, watched: Any) -> None:
    await target.open()
    server.answers["stream"] = [said("a", error=None), said(""), said("b"), DONE]
    usage = await target.ask(ASK, watched)
    assert (usage.prompt_tok, usage.output_tok) == (9, 2)
    assert watched.pieces == [(1, True), (1, True)]
    path, body = server.asked[-1]
    assert (path, body["model"], body["options"]["num_predict"]) == ("/api/chat", "tiny:latest", 7)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([said("a"), line(error="x")], "engine_failed"),
        ([said("a")], "cut_short"),
        ([b"{"], "malformed"),
        ([said("a"), line(done=True, eval_count=-5)], "malformed"),
    ],
)
async def test_how_attempts_end(
    server: Any, target: OllamaTarget, watched: Any, lines: Any, reason: str
) -> None:
    server.answers["stream"] = lines
    with pytest.raises(Broke, match=reason):
        await target.ask(ASK, watched)
    assert server.left == 1


async def test_a_deadline_is_kept_here(server: Any, target: OllamaTarget, watched: Any) -> None:
    server.hangs = True
    with pytest.raises(Expired, match="ttft_deadline_exceeded"):
        await target.ask(structs.replace(ASK, ttft_timeout_ms=1), watched)
    assert server.left == 1


async def test_a_server_that_cannot_be_measured(server: Any, target: OllamaTarget) -> None:
    server.answers["/api/chat"] = {}
    with pytest.raises(TargetError, match="how many tokens"):
        await target.open()
    server.answers["/api/tags"] = {"models": [{"name": "other:latest"}]}
    with pytest.raises(TargetError, match="has no model tiny; it has other:latest"):
        await target.open()
    await target.aclose()
    assert server.closed
