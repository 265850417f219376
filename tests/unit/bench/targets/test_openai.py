"""A server of the OpenAI dialect, played."""

import json
from typing import Any

import pytest
from msgspec import structs

pytest.importorskip("aiohttp", reason="absent aiohttp: pip install 'onegate[http]'")

from onegate.bench.targets import openai as module
from onegate.bench.targets.base import Ask, Broke, Expired, Facts, Refused, TargetError
from onegate.bench.targets.openai import OpenAiTarget

CHAT = "/v1/chat/completions"
ASK = Ask(text="hi", output_tok=7, client=0)
MODELS = {"data": [{"id": "a", "owned_by": "vllm", "max_model_len": 99}, {"id": "b"}]}


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode()


def delta(text: str | None, finish: str | None = None) -> bytes:
    return event(choices=[{"delta": {"content": text}, "finish_reason": finish}])


USAGE = event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 3})


@pytest.fixture
async def target(server: Any, monkeypatch: pytest.MonkeyPatch) -> OpenAiTarget:
    monkeypatch.setattr(module, "HttpServer", server)
    server.answers = {"/v1/models": MODELS, CHAT: {"usage": {"prompt_tokens": 5}}}
    found = OpenAiTarget("http://h:1/v1/", None, ready_s=1.0)
    await found.open()
    return found


async def test_it_is_opened_by_its_first_model(server: Any, target: OpenAiTarget) -> None:
    assert server.url == "http://h:1"
    assert await target.open() == Facts(model="a", engine="vllm", context_tok=99)
    assert await target.count("hello") == 5
    assert server.asked[-1][1]["ignore_eos"] is True


async def test_llama_server_says_its_context_elsewhere(server: Any, target: OpenAiTarget) -> None:
    server.answers["/v1/models"] = {"data": [{"id": "a", "meta": {"n_ctx": 77}}]}
    assert (await target.open()).context_tok == 77


async def test_an_answer_is_watched(server: Any, target: OpenAiTarget, watched: Any) -> None:
    # A role chunk without text comes first, an empty text from one server and null from another.
    server.answers["stream"] = [
        *(delta(""), delta(None), b": comment", delta("a"), delta("b"), delta(None, "length")),
        *(USAGE, b"data: [DONE]"),
    ]
    usage = await target.ask(ASK, watched)
    assert (usage.prompt_tok, usage.output_tok) == (9, 3)
    assert watched.pieces == [(1, True), (1, True)]
    body = server.asked[-1][1]
    assert (body["max_tokens"], body["stream_options"]) == (7, {"include_usage": True})


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
async def test_thoughts_are_text_and_no_error_is_none(
    server: Any, target: OpenAiTarget, watched: Any, key: str
) -> None:
    server.answers["stream"] = [
        event(choices=[{"delta": {key: "hm"}}], error=None),
        delta("a", "stop"),
    ]
    await target.ask(ASK, watched)
    assert watched.pieces == [(1, True), (1, True)]


async def test_a_deadline_is_kept_here(server: Any, target: OpenAiTarget, watched: Any) -> None:
    server.hangs = True
    with pytest.raises(Expired, match="ttft_deadline_exceeded"):
        await target.ask(structs.replace(ASK, ttft_timeout_ms=1), watched)
    assert server.left == 1


async def test_a_context_that_cannot_be_is_told(server: Any, target: OpenAiTarget) -> None:
    server.answers["/v1/models"] = {"data": [{"id": "a", "max_model_len": -1}]}
    with pytest.raises(TargetError, match="max_model_len is no number of tokens"):
        await target.open()


async def test_an_end_without_done_is_an_end(
    server: Any, target: OpenAiTarget, watched: Any
) -> None:
    server.answers["stream"] = [delta("a"), delta(None, "stop")]
    assert (await target.ask(ASK, watched)).output_tok is None


@pytest.mark.parametrize(
    ("lines", "kind", "reason"),
    [
        ([event(error={"code": 503}), b"data: [DONE]"], Refused, "http_503"),
        ([delta("a"), event(error={"code": 503})], Broke, "engine_failed"),
        ([event(error="text")], Broke, "engine_failed"),
        ([delta("a")], Broke, "cut_short"),
        ([b"data: {"], Broke, "malformed"),
        ([b"data: []"], Broke, "malformed"),
        ([event(choices=5), event(choices=[5]), event(choices=[{"delta": 5}])], Broke, "cut_short"),
        ([Refused("http_429")], Refused, "http_429"),
        ([event(error={"code": 10**400})], Broke, "engine_failed"),
        ([delta("a"), event(usage={"completion_tokens": 10**23})], Broke, "malformed"),
    ],
)
async def test_how_attempts_end(
    server: Any, target: OpenAiTarget, watched: Any, lines: Any, kind: Any, reason: str
) -> None:
    server.answers["stream"] = lines
    with pytest.raises(kind, match=reason):
        await target.ask(ASK, watched)
    assert server.left == 1


async def test_a_server_that_refuses_unknown_fields_gets_none(
    server: Any, target: OpenAiTarget, unavailable: TargetError
) -> None:
    unavailable.__cause__ = Refused("http_422")
    server.answers[CHAT] = [unavailable, {}]
    await target.open()
    assert "ignore_eos" not in server.asked[-1][1]


async def test_a_server_that_cannot_be_measured(
    server: Any, target: OpenAiTarget, unavailable: TargetError
) -> None:
    server.answers[CHAT] = {}
    with pytest.raises(TargetError, match="how many tokens"):
        await target.count("a")
    server.answers[CHAT] = unavailable
    with pytest.raises(TargetError, match="does not answer"):
        await target.open()
    server.answers["/v1/models"] = {"data": []}
    with pytest.raises(TargetError, match="has no model at all"):
        await target.open()
    await target.aclose()
    assert server.closed
