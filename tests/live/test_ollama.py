"""The ollama adapter against a real Ollama, or one of one's own (`ONEGATE_OLLAMA_URL`, with the
model that `ONEGATE_OLLAMA_MODEL` names, else `tiny`)."""

import asyncio
import json
import os

import pytest
from tests.integration.conftest import running_daemon
from tests.live.ollama_server import OllamaServer

from onegate import AsyncClient
from onegate.config import EngineConfig, OllamaConfig, OllamaModel
from onegate.engines.base import (
    EmbedRequest,
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineRefused,
    EngineUnavailable,
    PoolState,
    SeatFreed,
    Stopped,
)
from onegate.protocol.content import (
    FinishReason,
    JsonSchema,
    Message,
    Params,
    ResponseFormat,
)

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.alone("ollama")]

GREEDY = Params(temperature=0.0)
MODEL = os.environ.get("ONEGATE_OLLAMA_MODEL", "tiny")


@pytest.fixture(scope="module")
def server(ollama_home, tmp_path_factory):
    """The prepared one; tests that ask for it read its log, or kill it."""
    found = OllamaServer(ollama_home, tmp_path_factory.mktemp("ollama"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def url(request):
    """A user's own server, or the prepared one."""
    return os.environ.get("ONEGATE_OLLAMA_URL") or request.getfixturevalue("server").url


@pytest.fixture
def ready(new_box):
    async def start(url, *models):
        models = models or (OllamaModel(model=MODEL),)
        box = new_box(
            EngineConfig(
                kind="ollama",
                restart_backoff_ms=100,
                restart_backoff_max_ms=1000,
                ollama=OllamaConfig(base_url=url, boundary="local", models=models),
            )
        )
        await box.start()
        await box.until(lambda: box.pool.state is not PoolState.LOADING)
        await box.engine.load(box.model)
        return box

    return start


async def in_decode(box, prompt="A long story.", max_tokens=2000):
    stream = box.generate(box.request(prompt, max_tokens=max_tokens))
    async for item in stream:
        if isinstance(item, EngineChunk):
            return stream
    raise AssertionError("it ended")


async def test_what_it_is(ready, url):
    box = await ready(url)
    assert box.pool.state is PoolState.READY
    assert box.pool.identity.engine == "ollama"
    assert box.pool.identity.digest.startswith("sha256:")
    assert box.engine.health().state == "ready"


async def test_a_stream_and_what_is_counted(ready, url):
    box = await ready(url)
    outcome = await box.run("Say something.", max_tokens=6, params=GREEDY)
    assert outcome.finished.finish_reason is FinishReason.LENGTH
    assert outcome.finished.usage.output_tok == outcome.n_tok == 6
    assert outcome.finished.usage.prompt_tok > 0
    again = await box.run("Say something.", max_tokens=6, params=GREEDY)
    assert again.text == outcome.text
    messages = [Message(role="system", content="Be brief."), Message(role="user", content="Hi")]
    assert (await box.run(messages=messages, max_tokens=2)).finished
    assert (await box.run("Once upon", raw=True, max_tokens=2)).finished
    await box.all_told()


async def test_a_stop_string_does_not_show(ready, url):
    box = await ready(url)
    whole = await box.run("Count.", max_tokens=10, params=GREEDY)
    stop = whole.text[4:8]
    params = Params(temperature=0.0, stop=[stop])
    outcome = await box.run("Count.", max_tokens=10, params=params)
    assert outcome.text == whole.text[: whole.text.index(stop)]
    assert outcome.finished.finish_reason is FinishReason.STOP


async def test_a_schema_is_kept(ready, url):
    box = await ready(url)
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": ["red", "blue"]}},
        "required": ["kind"],
    }
    wanted = ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=schema))
    outcome = await box.run(
        "A colour.", max_tokens=40, params=Params(temperature=0.0, response_format=wanted)
    )
    assert json.loads(outcome.text)["kind"] in ("red", "blue")


async def test_what_it_lacks_is_said_before_it_is_asked(ready, server):
    box = await ready(server.url)
    before = server.posts("/api/chat")
    for params in (Params(logprobs=True), Params(repeat_penalty=1.2), Params(min_tokens=2)):
        outcome = await box.run("x", params=params)
        assert isinstance(outcome.error, EngineRefused)
        assert outcome.error.unsupported
    with pytest.raises(EngineRefused):
        await box.engine.embed(EmbedRequest(id=1, model=box.model, input=["a"]))
    assert server.posts("/api/chat") == before


async def test_a_client_that_leaves_before_its_turn_never_reaches_it(ready, server):
    box = await ready(server.url)
    before = server.posts("/api/chat")
    stream = await in_decode(box)
    waiting = await asyncio.gather(*(box.run(f"Number {i}.") for i in range(9)))
    assert all(isinstance(outcome.error, EngineUnavailable) for outcome in waiting)
    await stream.aclose()
    await box.all_told()
    assert (await box.run("after", max_tokens=1)).finished
    # Its log has one line for each request it ever heard of, however it ended, a moment later.
    await box.until(lambda: server.posts("/api/chat") - before >= 2)
    assert server.posts("/api/chat") - before == 2


async def test_left_in_decode_the_next_is_served(ready, server):
    """It would go on for two thousand tokens: that the next one ends shows that it did not."""
    box = await ready(server.url)
    canaries = server.posts("/api/generate")
    stream = await in_decode(box)
    await stream.aclose()
    await box.all_told()
    assert (await box.run("next", max_tokens=2)).finished
    assert server.posts("/api/generate") == canaries


async def test_left_in_prefill_its_seat_is_kept_until_it_is_free(ready, url):
    box = await ready(url)
    request = box.request("word " * 800, max_tokens=2)
    stream = box.generate(request)
    try:
        async with asyncio.timeout(0.3):
            await anext(stream)
    except TimeoutError:
        await stream.aclose()
    else:
        await stream.aclose()
        pytest.skip("this Ollama has read the prompt before anybody can leave")
    assert box.of(SeatFreed) == []
    assert isinstance((await box.run("too early", max_tokens=1)).error, EngineUnavailable)
    await box.all_told()
    assert (await box.run("next", max_tokens=2)).finished


async def test_stopped_with_its_reader_there(ready, url):
    box = await ready(url)
    request = box.request("A story.", max_tokens=1000)
    items = []
    async for item in box.generate(request):
        items.append(item)
        if isinstance(item, EngineChunk):
            box.engine.stop(request.id)
    assert isinstance(items[-1], Stopped)
    await box.all_told()


async def test_two_models_of_which_one_is_in_memory(ready, server):
    box = await ready(server.url, OllamaModel(model="tiny"), OllamaModel(model="other"))
    assert [pool.state for pool in box.engine.pools()] == [PoolState.READY, PoolState.COLD]
    await box.engine.unload("tiny")
    assert [pool.state for pool in box.engine.pools()] == [PoolState.COLD, PoolState.COLD]
    await box.engine.load("tiny")
    assert box.pool.load_ms > 0
    assert (await box.run("x", max_tokens=1)).finished


async def test_killed_and_started_again(ready, server):
    box = await ready(server.url)
    stream = await in_decode(box)
    server.kill()
    with pytest.raises(EngineBroke):
        async for _ in stream:
            pass
    await box.until(lambda: bool(box.of(EngineLost)))
    await box.all_told()
    server.start()
    await box.until(lambda: box.pool.state is PoolState.READY)
    assert (await box.run("x", max_tokens=1)).finished


async def test_a_person_is_served_next_however_many_wait(server, tmp_path, timeout_factor):
    """Ten batch requests are there first, on one seat. The person comes after the one that runs, or
    before its end where it is stopped for him, and never behind the queue."""
    config = f"""
[engine]
kind = "ollama"
[engine.ollama]
base_url = "{server.url}"
boundary = "local"
models = [{{model = "tiny"}}]
"""
    ended: list[str] = []
    with running_daemon(tmp_path / "d", config, 60 * timeout_factor) as daemon:
        async with AsyncClient(daemon.socket) as gate:

            async def ask(who, class_, max_tokens):
                await gate.generate(f"I am {who}.", class_=class_, max_tokens=max_tokens)
                ended.append(who)

            async with asyncio.TaskGroup() as group:
                for i in range(10):
                    group.create_task(ask(f"batch {i}", "batch", 12))
                async for _ in gate.stream("Who runs?", class_="batch", max_tokens=1):
                    pass  # so long the others are there, and one of them runs
                group.create_task(ask("person", "interactive", 4))
    assert len(ended) == 11
    assert ended.index("person") <= 1
