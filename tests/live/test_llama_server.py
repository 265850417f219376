"""The openai adapter and a real llama.cpp server, or any of one's own (`ONEGATE_OPENAI_URL`)."""

import asyncio
import json
import os
import urllib.error
import urllib.request

import pytest
from tests.live.llama_server import LlamaServer

from onegate.config import EngineConfig, OpenAiConfig
from onegate.engines.base import (
    Accepted,
    EmbedRequest,
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineRefused,
    EngineTooLarge,
    Feature,
    Stopped,
)
from onegate.protocol.content import (
    FinishReason,
    JsonSchema,
    Message,
    Params,
    ResponseFormat,
)

pytestmark = [pytest.mark.live, pytest.mark.slow]

LONG = Params(ignore_eos=True)


@pytest.fixture(scope="module")
def url(request):
    """A user's own server, or the prepared one."""
    if given := os.environ.get("ONEGATE_OPENAI_URL"):
        yield given
        return
    server = LlamaServer(request.getfixturevalue("llama_home"))
    yield server.url + "/v1"
    server.close()


def config_of(url: str, **given) -> EngineConfig:
    return EngineConfig(
        kind="openai",
        restart_backoff_ms=1,
        restart_backoff_max_ms=100,
        openai=OpenAiConfig(base_url=url, boundary="local", **given),
    )


def busy(url: str) -> int:
    """Slots that compute; of a server that does not show them, none."""
    try:
        with urllib.request.urlopen(url.removesuffix("/v1") + "/slots", timeout=10) as response:
            return sum(slot["is_processing"] for slot in json.load(response))
    except urllib.error.HTTPError:
        return 0


async def test_a_stream_and_what_is_counted(started, url):
    box = await started(config_of(url))
    outcome = await box.run("Say something.", max_tokens=8, params=LONG)
    assert outcome.finished.finish_reason is FinishReason.LENGTH
    assert outcome.finished.usage.output_tok == outcome.n_tok == 8
    if Feature.COUNTS_TOKENS in box.pool.features:
        count = await box.engine.count(box.model, prompt="Say something.")
        assert count.exact
        assert outcome.finished.usage.prompt_tok == outcome.prompt_tok == count.n_tok
    again = await box.run("Say something.", max_tokens=1)
    # The others count what is cached only where they were started so.
    assert again.finished.cached_tok > 0 or box.pool.identity.engine != "llama-server"


async def test_messages_ids_and_a_raw_prompt(started, url):
    box = await started(config_of(url))
    messages = [Message(role="system", content="Be brief."), Message(role="user", content="Hi")]
    assert (await box.run(messages=messages, max_tokens=2)).finished
    assert (await box.run(prompt_tok_ids=[11, 12, 13], max_tokens=2)).finished.usage.prompt_tok == 3
    assert (await box.run("Once upon", raw=True, max_tokens=2)).finished


async def test_parameters_are_honoured(started, url):
    box = await started(config_of(url))
    same = Params(temperature=0.0, ignore_eos=True)
    one, two = [await box.run("Count to ten.", max_tokens=12, params=same) for _ in range(2)]
    assert one.text == two.text
    stop = one.text[4:8]
    stopped = await box.run(
        "Count to ten.", max_tokens=12, params=Params(temperature=0.0, ignore_eos=True, stop=[stop])
    )
    assert stopped.text == one.text[: one.text.index(stop)]
    assert stopped.finished.finish_reason is FinishReason.STOP
    likely = await box.run("Hi", max_tokens=2, params=Params(logprobs=True, top_logprobs=2))
    assert all(len(chunk.logprobs[0].top) == 2 for chunk in likely.of(EngineChunk) if chunk.text)


async def test_a_schema_is_kept(started, url):
    box = await started(config_of(url))
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["n"],
        "additionalProperties": False,
    }
    wanted = ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=schema))
    outcome = await box.run(
        "Give me a number.", max_tokens=40, params=Params(response_format=wanted)
    )
    assert json.loads(outcome.text)["n"] in range(10)


async def test_too_large_and_unsupported(started, url):
    box = await started(config_of(url))
    context_tok = box.pool.capacity.max_context_tok
    outcome = await box.run("word " * (context_tok + 1000), max_tokens=1)
    assert isinstance(outcome.error, EngineTooLarge)
    assert outcome.error.need_tok > outcome.error.limit_tok == context_tok
    outcome = await box.run("hello", max_tokens=context_tok + 1000)
    assert isinstance(outcome.error, EngineTooLarge)
    with pytest.raises(EngineRefused) as refused:
        await box.engine.embed(EmbedRequest(id=1, model=box.model, input=["a"]))
    assert refused.value.unsupported
    await box.all_told()


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_who_leaves_frees_a_slot(started, url, pieces):
    box = await started(config_of(url))
    stream = box.generate(box.request("A long story. " * 20, max_tokens=1000, params=LONG))
    if pieces == 0:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(stream)
    for _ in range(pieces):
        while not isinstance(await anext(stream), EngineChunk | Accepted):
            pass
    await stream.aclose()
    await box.all_told()
    assert busy(url) == 0


async def test_stopped_with_its_reader_there_while_others_run(started, url):
    box = await started(config_of(url))
    async with asyncio.TaskGroup() as group:
        others = [
            group.create_task(box.run(f"Number {i}.", max_tokens=60, params=LONG)) for i in range(2)
        ]
        request = box.request("A story.", max_tokens=1000, params=LONG)
        items = []
        async for item in box.generate(request):
            items.append(item)
            if isinstance(item, EngineChunk):
                box.engine.stop(request.id)
    assert isinstance(items[-1], Stopped)
    assert [other.result().finished.usage.output_tok for other in others] == [60, 60]
    await box.all_told()


async def test_64_at_once_each_with_one_outcome(started, url):
    box = await started(config_of(url))
    seats = box.pool.capacity.max_seqs
    outcomes = await asyncio.gather(
        *(box.run(f"Number {i}.", max_tokens=4, params=LONG) for i in range(64))
    )
    assert sum(outcome.error is None for outcome in outcomes) == seats
    await box.all_told()


async def test_killed_and_started_again(started, llama_home, tmp_path):
    path = str(tmp_path / "x.sock")
    server = LlamaServer(llama_home, parallel=2, context=2048, socket=path)
    box = await started(config_of(f"unix:{path}:/v1"))
    async with asyncio.TaskGroup() as group:
        run = group.create_task(box.run("A story.", max_tokens=900, params=LONG))
        await asyncio.sleep(0.5)
        server.kill()
    assert isinstance(run.result().error, EngineBroke)
    await box.until(lambda: bool(box.of(EngineLost)))
    await box.all_told()
    again = LlamaServer(llama_home, parallel=2, context=2048, socket=path)
    await box.serves_again()
    assert Feature.PREFIX_CACHE in box.pool.features
    await box.engine.aclose(1.0)
    server.close()
    again.close()
