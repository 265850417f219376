"""What the base asks of Ollama's dialect. Whole requests are in the contract tests."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.unit.engines.ollama.conftest import failed

from onegate.clock import monotonic_ns
from onegate.config import OllamaConfig, OllamaModel
from onegate.engines.base import (
    EmbedRequest,
    EngineBroke,
    EngineMalformed,
    EngineRefused,
    EngineRequest,
    EngineUnavailable,
    PoolState,
)
from onegate.engines.http.dialect import Leaving, Phase
from onegate.engines.ollama.dialect import OllamaDialect
from onegate.protocol.content import Usage

LEAVING = Leaving(id=1, model="m", phase=Phase.SENT, since_ns=0, others=0)
TOKEN = b'{"response":"a","done":true,"done_reason":"length"}\n'


@pytest.fixture
async def dialect(link):
    found = OllamaDialect(
        OllamaConfig(models=(OllamaModel(model="m"),)),
        boundary="local",
        allow_remote=False,
        log=lambda line: None,
    )
    await found.probe(link)
    link.asked.clear()
    return found


async def pool(dialect, link):
    return (await dialect.watch(link)).pools[0]


async def test_a_load_is_an_empty_prompt_and_is_measured(dialect, link):
    link.documents["/api/generate"] = {"done": True, "done_reason": "load"}
    link.documents["/api/ps"] = [{"models": None}, {"models": [{"name": "m:latest"}]}]
    await dialect.load(link, "m")
    found = await pool(dialect, link)
    assert (found.state, found.loads) == (PoolState.READY, 1)
    assert found.switch_cost_ms is not None
    (body,) = [body for path, body in link.asked if path == "/api/generate"]
    assert (body["prompt"], body["stream"], body["options"]) == ("", False, {"num_ctx": 4096})


async def test_what_is_not_on_the_gpu_is_told_by_a_look(dialect, link):
    link.holds("m:latest", size=4, size_vram=1)
    (notice,) = (await dialect.watch(link)).notices
    assert (notice.code, notice.detail[:4]) == ("offload", "75 %")
    assert (await dialect.watch(link)).notices == []


async def test_what_is_loaded_is_not_loaded_again(dialect, link):
    link.holds("m:latest")
    await dialect.load(link, "m")
    assert "/api/generate" not in link.paths()
    assert (await pool(dialect, link)).state is PoolState.READY


async def test_a_load_that_shows_in_no_list_is_none(dialect, link):
    link.documents["/api/generate"] = {"done": True}
    with pytest.raises(EngineUnavailable, match="does not list it"):
        await dialect.load(link, "m")


async def test_a_load_that_is_given_up_while_it_waits_for_its_turn_is_over(dialect, link):
    async with dialect._load_turn:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await dialect.load(link, "m")
    assert (await pool(dialect, link)).state is PoolState.COLD


async def test_a_load_that_fails_is_the_pools_error(dialect, link):
    link.documents["/api/generate"] = failed(500, "no memory")
    with pytest.raises(EngineUnavailable, match="no memory"):
        await dialect.load(link, "m")
    found = await pool(dialect, link)
    assert found.state is PoolState.FAILED
    assert "no memory" in found.error


async def test_an_unload_keeps_for_no_time_and_waits_until_it_is_gone(dialect, link, monkeypatch):
    monkeypatch.setattr("onegate.engines.ollama.dialect._UNLOAD_LOOK_S", 0.0)
    here = {"models": [{"name": "m:latest"}]}
    link.documents["/api/generate"] = {"done": True}
    link.documents["/api/ps"] = [here, here, {"models": None}]
    await dialect.unload(link, "m")
    assert link.asked[0][1]["keep_alive"] == "0ms"
    assert link.paths().count("/api/ps") == 3
    link.documents["/api/ps"] = here
    with pytest.raises(EngineUnavailable, match="keeps m"):
        await dialect.unload(link, "m")


async def test_a_seat_of_what_is_not_in_memory_is_free_without_a_canary(dialect, link):
    assert await dialect.confirm(link, LEAVING)
    assert "/api/generate" not in link.paths()


async def test_a_seat_is_free_when_a_token_shows_it(dialect, link):
    link.holds("m:latest")
    link.streams = [[TOKEN]]
    assert await dialect.confirm(link, LEAVING)
    link.streams = [failed(500, "runner died")]
    assert not await dialect.confirm(link, LEAVING)


@pytest.mark.parametrize(
    ("others", "age_s", "asks"),
    [(0, 0, 3), (1, 0, 0), (1, 31, 2), (2, 0, 1)],
)
async def test_a_seat_that_nobody_needs_is_not_asked_about_at_once(link, others, age_s, asks):
    dialect = OllamaDialect(
        OllamaConfig(models=(OllamaModel(model="m", max_seqs=3),)),
        boundary="local",
        allow_remote=False,
        log=lambda line: None,
    )
    link.holds("m:latest")
    await dialect.probe(link)
    link.streams = [[TOKEN, asyncio.Event()] for _ in range(3)]
    leaving = replace(LEAVING, others=others, since_ns=monotonic_ns() - age_s * 10**9)
    assert await dialect.confirm(link, leaving) is (asks > 0)
    assert link.paths().count("/api/generate") == asks


async def test_without_a_token_it_is_not(dialect, link, monkeypatch):
    monkeypatch.setattr("onegate.engines.ollama.dialect._CANARY_S", 0.0)
    link.holds("m:latest")
    link.streams = [[asyncio.Event()]]
    assert not await dialect.confirm(link, LEAVING)


async def test_vectors_are_checked(dialect, link):
    link.documents["/api/embed"] = {"embeddings": [[1, 2], [3, 4]], "prompt_eval_count": 5}
    ask = EmbedRequest(id=1, model="m", input=["a", "b"])
    result = await dialect.embed(link, ask)
    assert result.vectors == [[1.0, 2.0], [3.0, 4.0]]
    assert result.usage == Usage(prompt_tok=5, output_tok=0)
    for wrong in ([], [[1.0]], [[1.0], [1.0, 2.0]], [[], []]):
        link.documents["/api/embed"] = {"embeddings": wrong}
        with pytest.raises(EngineMalformed):
            await dialect.embed(link, ask)
    link.documents["/api/embed"] = {"embeddings": [[1.0]] * 90}
    with pytest.raises(EngineMalformed, match="more parts"):
        await dialect.embed(link, ask)
    link.documents["/api/embed"] = failed(400, "input is too long")
    with pytest.raises(EngineRefused):
        await dialect.embed(link, ask)


async def test_a_model_that_only_completes_embeds_nothing(dialect, link):
    dialect._store["m"].facts = None
    with pytest.raises(EngineRefused) as refused:
        await dialect.embed(link, EmbedRequest(id=1, model="m", input=["a"]))
    assert refused.value.unsupported


async def test_nothing_is_counted(dialect, link):
    with pytest.raises(EngineRefused) as refused:
        await dialect.count(link, "m", prompt="x", raw=False, messages=None, tools=None)
    assert refused.value.unsupported


def test_when_to_come_back_is_passed_on():
    found = OllamaDialect(
        OllamaConfig(), boundary="local", allow_remote=False, log=lambda line: None
    )
    assert found.refusal(503, b'{"error":"full"}', 2000.0).retry_after_ms == 2000.0
    assert found.refusal(503, b'{"error":"full"}', None).retry_after_ms is None
    assert isinstance(found.refusal(500, b'{"error":"x"}', 5.0), EngineBroke)


async def read(dialect, link, **line):
    request = EngineRequest(id=1, model="m", prompt="x", max_tokens=3)
    decoder = dialect.decoder(request, await pool(dialect, link))
    fields = {"done": True, "done_reason": "stop"} | line
    return list(decoder.line(json.dumps(fields).encode()))


async def test_a_load_inside_is_a_notice_until_it_is_warm_again(dialect, link):
    await read(dialect, link, load_duration=900_000_000)
    (notice,) = (await dialect.watch(link)).notices
    assert (notice.code, notice.model) == ("cold_load", "m")
    assert "900 ms" in notice.detail
    await read(dialect, link, load_duration=9_000_000)
    (notice,) = (await dialect.watch(link)).notices
    assert notice.detail is None


async def test_an_answer_from_elsewhere_ends_it_and_is_said_once(dialect, link):
    with pytest.raises(EngineBroke, match="far"):
        await read(dialect, link, remote_host="far")
    watched = await dialect.watch(link)
    assert [notice.code for notice in watched.notices] == ["boundary"]
    assert watched.pools[0].state is PoolState.FAILED
    assert (await dialect.watch(link)).notices == []


async def test_a_look_during_an_answer_loses_no_notice(dialect, link):
    request = EngineRequest(id=1, model="m", prompt="x", max_tokens=3)
    decoder = dialect.decoder(request, await pool(dialect, link))
    await dialect.watch(link)
    with pytest.raises(EngineBroke):
        list(decoder.line(b'{"remote_host":"far"}'))
    assert [notice.code for notice in (await dialect.watch(link)).notices] == ["boundary"]
