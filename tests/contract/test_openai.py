"""The openai adapter against a stand-in: every fault has one outcome, and then it serves again."""

import asyncio

import pytest
import pytest_asyncio
from tests.contract.standin import StandIn

from onegate.config import EngineConfig, OpenAiConfig, OpenAiPool
from onegate.engines.base import (
    Accepted,
    EmbedRequest,
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineMalformed,
    EngineNotice,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    Feature,
    PoolState,
    SeatFreed,
    Stopped,
)
from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    FunctionSpec,
    ImagePart,
    Message,
    Params,
    Tool,
)


@pytest_asyncio.fixture(loop_scope="function")
async def server():
    """Stand-ins of one test; at the end none has a connection left."""
    found = []

    async def start(**given) -> StandIn:
        server = StandIn(**given)
        await server.start()
        found.append(server)
        return server

    yield start
    for one in found:
        one.held.set()
        await one.close()
        assert one.peers == 0


def config_of(server: StandIn, *, boundary="local", allow_remote=False, **given) -> EngineConfig:
    given.setdefault("base_url", server.url)
    return EngineConfig(
        kind="openai",
        restart_backoff_ms=1,
        restart_backoff_max_ms=50,
        allow_remote=allow_remote,
        openai=OpenAiConfig(boundary=boundary, **given),
    )


@pytest.mark.parametrize("flavour", ["llama-server", "vllm", "none"])
async def test_a_stream_to_its_end(server, started, flavour):
    box = await started(config_of(await server(flavour=flavour)))
    outcome = await box.run("hello there", max_tokens=12)
    assert outcome.finished.finish_reason is FinishReason.LENGTH
    assert outcome.finished.usage.output_tok == outcome.n_tok == 12
    assert outcome.finished.usage.prompt_tok == 4
    assert outcome.text.startswith("w0 w1 ")
    await box.all_told()
    assert box.pool.identity.model == box.model
    assert box.pool.identity.boundary == "local"
    assert box.pool.loads == 1


async def test_what_the_servers_say_of_themselves(server, started):
    llama = (await started(config_of(await server(width=3)))).pool
    assert llama.capacity.max_seqs == 3
    assert llama.capacity.max_context_tok == 1024
    assert llama.identity.engine == "llama-server"
    vllm = (await started(config_of(await server(flavour="vllm"), max_seqs=7))).pool
    assert vllm.capacity.max_seqs == 7
    assert vllm.capacity.kv_tok == 16 * 512
    assert vllm.identity.engine_version == "0.0.1"
    plain = (await started(config_of(await server(flavour="none"), max_seqs=5))).pool
    assert plain.capacity.max_seqs == 5
    assert "top_k" not in plain.params
    assert Feature.ABORT not in plain.features


async def test_no_more_seats_than_the_server_has(server, started):
    box = await started(config_of(await server(width=2), max_seqs=9))
    assert box.pool.capacity.max_seqs == 2


@pytest.mark.parametrize(
    "directive", ["crlf", "bytes", "comments", "no-space", "no-done", "double-final", "empty"]
)
async def test_ways_to_say_the_same(server, started, directive):
    box = await started(config_of(await server()))
    outcome = await box.run(f"[[{directive}]]", max_tokens=5)
    assert outcome.finished.usage.output_tok == outcome.n_tok == 5
    assert outcome.text == "w0 w1 w2 w3 w4 "
    await box.all_told()


async def test_a_usage_that_is_missing_or_wrong_is_not_believed(server, started):
    box = await started(config_of(await server(flavour="none")))
    for directive in ("no-usage", "wrong-usage"):
        outcome = await box.run(f"[[{directive}]]", max_tokens=5)
        assert outcome.finished.usage.output_tok == 5
        assert outcome.finished.usage.prompt_tok > 0


@pytest.mark.parametrize(
    ("directive", "kind", "said"),
    [
        ("close:2", EngineBroke, 2),
        ("garbage", EngineMalformed, 2),
        ("half-utf8", EngineMalformed, 2),
        ("bad-json", EngineMalformed, 2),
        ("deep-json", EngineMalformed, 2),
        ("long-line", EngineMalformed, 2),
        ("error-mid", EngineBroke, 2),
        ("forever", EngineMalformed, 50),
        ("html", EngineMalformed, 0),
        ("redirect", EngineMalformed, 0),
        ("packed", EngineMalformed, 0),
        ("no-http", EngineMalformed, 0),
        ("cut", EngineBroke, 0),
        ("status:500", EngineBroke, 0),
        ("status:400", EngineRefused, 0),
        ("status:429", EngineUnavailable, 0),
        ("status:503", EngineUnavailable, 0),
    ],
)
async def test_one_outcome_of_each_fault(server, started, directive, kind, said):
    box = await started(config_of(await server()))
    outcome = await box.run(f"[[{directive}]]", max_tokens=50)
    assert type(outcome.error) is kind, outcome.error
    assert outcome.n_tok == said
    await box.all_told()
    assert len(box.log) == len(set(box.log))
    await box.serves_again()


async def test_half_a_surrogate_does_no_harm(server, started):
    box = await started(config_of(await server()))
    outcome = await box.run("[[half-surrogate]]", max_tokens=4)
    for chunk in outcome.of(EngineChunk):
        chunk.text.encode()
    await box.all_told()


async def test_a_burst_refused_inside_the_stream_is_a_refusal(server, started):
    box = await started(config_of(await server(flavour="vllm", max_queued=2), max_seqs=8))
    outcomes = await asyncio.gather(*(box.run("hello", max_tokens=20) for _ in range(6)))
    refused = [outcome for outcome in outcomes if outcome.error is not None]
    assert len(refused) == 4
    assert {type(outcome.error) for outcome in refused} == {EngineUnavailable}
    assert all(outcome.items == [] for outcome in refused)
    assert box.pool.capacity.max_seqs < 8
    await box.serves_again()


async def test_retry_after_is_honoured_and_passed_on(server, started):
    stand_in = await server()
    box = await started(config_of(stand_in))
    outcome = await box.run("[[status:503:1]]")
    assert outcome.error.retry_after_ms == 1000
    assert box.pool.state is PoolState.LOADING
    n_seen = len(stand_in.seen)
    assert isinstance((await box.run("hello")).error, EngineUnavailable)
    assert len(stand_in.seen) == n_seen
    await box.serves_again()


async def test_too_large_as_the_server_says_and_as_the_prompt_shows(server, started):
    box = await started(config_of(await server()))
    outcome = await box.run("word " * 2000, max_tokens=1)
    assert isinstance(outcome.error, EngineTooLarge)
    assert outcome.error.limit_tok == 1024
    assert outcome.error.need_tok > 2000
    outcome = await box.run("word " * 100, max_tokens=1000)
    assert isinstance(outcome.error, EngineTooLarge)
    assert outcome.error.need_tok == 1102
    fitted = await box.run("word " * 1019, max_tokens=1000, fit_max_tokens=True)
    assert fitted.finished.usage.output_tok == 3
    await box.all_told()


# --- leaving ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", ["llama-server", "vllm", "none"])
@pytest.mark.parametrize("items", [0, 1, 4])
async def test_who_leaves_closes_the_connection_and_the_seat_is_told_of(
    server, started, flavour, items
):
    stand_in = await server(flavour=flavour)
    box = await started(config_of(stand_in))
    stream = box.generate(box.request("[[tokens:900]]", max_tokens=900))
    if items:
        for _ in range(items):
            await anext(stream)
    else:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(stream)
    await stream.aclose()
    await stream.aclose()
    await box.all_told()
    assert stand_in.inside == 0


async def test_stopped_with_its_reader_there(server, started):
    box = await started(config_of(await server()))
    request = box.request("hello", max_tokens=900)
    items = []
    async for item in box.generate(request):
        items.append(item)
        if isinstance(item, EngineChunk):
            box.engine.stop(request.id)
            box.engine.stop(request.id)
    assert isinstance(items[-1], Stopped)
    await box.all_told()


async def test_a_seat_that_is_held_is_in_quarantine_and_the_others_go_on(server, started):
    stand_in = await server(width=2)
    box = await started(config_of(stand_in))
    stream = box.generate(box.request("[[hold]]", max_tokens=900))
    async for item in stream:
        if isinstance(item, EngineChunk):
            break
    await stream.aclose()
    await asyncio.sleep(0.3)
    assert box.of(SeatFreed) == []
    assert (await box.run("beside it", max_tokens=3)).finished
    assert len(box.told()) == 1
    stand_in.held.set()
    await box.all_told()


async def test_a_server_that_never_lets_go_is_given_nothing_more(server, started):
    stand_in = await server(width=2)
    box = await started(config_of(stand_in, confirm_timeout_s=0.5))
    stream = box.generate(box.request("[[hold]]", max_tokens=900))
    async for item in stream:
        if isinstance(item, EngineChunk):
            break
    await stream.aclose()
    await box.until(lambda: bool(box.of(EngineLost)))
    assert box.pool.state is PoolState.FAILED
    assert "connections were closed" in box.pool.error
    assert isinstance((await box.run("hello")).error, EngineUnavailable)
    stand_in.held.set()
    await box.serves_again()


async def test_silence_has_an_end_before_and_between_tokens(server, started):
    box = await started(config_of(await server(), first_timeout_s=0.3, idle_timeout_s=0.3))
    for directive in ("hang", "stall:2"):
        outcome = await box.run(f"[[{directive}]]", max_tokens=9)
        assert isinstance(outcome.error, EngineBroke)
        assert "said nothing" in str(outcome.error)
    await box.all_told()


async def test_a_server_that_dies_loses_what_is_inside_and_is_found_again(server, started):
    stand_in = await server(token_s=0.01)
    box = await started(config_of(stand_in))
    beside = box.request("[[tokens:900]]", max_tokens=900)
    async with asyncio.TaskGroup() as group:
        other = group.create_task(box.collect(beside))
        await box.until(lambda: stand_in.inside == 1)
        first = group.create_task(box.run("[[die:3]]", max_tokens=9))
    assert isinstance(first.result().error, EngineBroke)
    assert isinstance(other.result().error, EngineBroke)
    await box.until(lambda: bool(box.of(EngineLost)))
    await box.all_told()
    assert box.pool.state is PoolState.LOADING
    await stand_in.start()
    await box.serves_again()
    assert box.pool.loads == 2


async def test_closing_leaves_nothing(server, started):
    stand_in = await server(token_s=0.01, width=8)
    box = await started(config_of(stand_in))
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(box.run("[[tokens:900]]", max_tokens=900)) for _ in range(8)]
        await box.until(lambda: stand_in.inside == 8)
        await box.engine.aclose(5.0)
    assert all(isinstance(run.result().error, EngineBroke) for run in runs)
    assert set(box.told()) == box.iterated
    await box.until(lambda: stand_in.peers == 0)
    assert box.engine.health().state == "stopped"
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task for task in others if "openai" in task.get_name()] == []


# --- what it is ---------------------------------------------------------------------------------


async def test_another_model_underneath_is_another_pool(server, started):
    stand_in = await server()
    box = await started(config_of(stand_in))
    before = box.pool.identity.digest
    stand_in.width, stand_in.context_tok = 3, 512
    box.engine._keeper.doubt()
    await box.until(lambda: box.pool.identity.digest != before)
    assert box.pool.capacity.max_context_tok == 512
    stand_in.model = "another"
    box.engine._keeper.doubt()
    await box.until(lambda: len(box.engine.pools()) == 2)
    gone, new = box.engine.pools()
    assert gone.state is PoolState.FAILED
    assert new.model == "another"


@pytest.mark.parametrize(
    "listing", ["<html>", "", "[1]", '{"data": []}', '{"data": [{"id": 5}]}', '{"data":' * 9000]
)
async def test_a_server_that_is_none_is_not_served_from(server, new_box, listing):
    stand_in = await server(listing=listing)
    box = new_box(config_of(stand_in))
    await box.start()
    await box.until(lambda: bool(box.log))
    assert box.engine.pools() == []
    assert box.engine.health().state != "ready"
    await box.until(lambda: len(stand_in.heads) > 3)
    assert len(box.log) == 1
    stand_in.listing = None
    await box.until(lambda: bool(box.engine.pools()))
    await box.serves_again()


async def test_a_named_pool_is_there_from_the_beginning(server, new_box):
    stand_in = await server()
    named = OpenAiPool(model="stand-in", max_seqs=2, tools=True)
    box = new_box(config_of(stand_in, pools=(named, OpenAiPool(model="missing"))))
    assert [pool.state for pool in box.engine.pools()] == [PoolState.LOADING] * 2
    await box.start()
    await box.ready()
    here, missing = box.engine.pools()
    assert here.capacity.max_seqs == 2
    assert Feature.TOOLS in here.features
    assert missing.state is PoolState.FAILED


@pytest.mark.parametrize("url", ["http://192.0.2.1:9/v1", "http://0.0.0.0:9/v1"])
async def test_a_remote_address_is_not_spoken_to(server, new_box, url):
    named = OpenAiPool(model="x")
    box = new_box(config_of(await server(), base_url=url, pools=(named,)))
    await box.start()
    await box.until(lambda: box.pool.state is PoolState.FAILED)
    assert "not this machine" in box.pool.error
    assert len(box.log) == 1


async def test_the_key_goes_out_and_nowhere_else(server, started, tmp_path):
    file = tmp_path / "key"
    file.write_text("sesame-open\n")
    stand_in = await server(key="sesame-open")
    box = await started(config_of(stand_in, api_key_file=str(file)))
    assert (await box.run("hello")).finished
    assert "sesame" not in repr(box.engine._link) + str(vars(box.engine._dialect)) + str(box.log)


async def test_a_wrong_key_is_said(server, new_box):
    box = new_box(config_of(await server(key="sesame")))
    await box.start()
    await box.until(lambda: bool(box.log))
    assert "api_key_file" in box.log[0]


async def test_over_a_unix_socket(server, started, tmp_path):
    stand_in = await server()
    path = str(tmp_path / "x.sock")
    relay = await asyncio.start_unix_server(stand_in._serve, path)
    box = await started(config_of(stand_in, base_url=f"unix:{path}:/v1"))
    assert (await box.run("hello")).finished
    await box.engine.aclose(1.0)
    relay.close()


# --- what is asked ------------------------------------------------------------------------------


async def test_priority_goes_to_a_server_that_takes_it(server, started):
    for taken in (True, False):
        stand_in = await server(flavour="vllm", priority=taken)
        box = await started(config_of(stand_in))
        assert (Feature.PRIORITY in box.pool.features) is taken
        assert (await box.run("hello", rank=2)).finished
        assert stand_in.seen[-1].get("priority") == (2 if taken else None)


async def test_a_plain_server_is_sent_nothing_beyond_the_standard(server, started):
    stand_in = await server(flavour="none")
    box = await started(config_of(stand_in))
    await box.run("hello", rank=2, cache_salt="mine", params=Params(temperature=0.5, stop=["x"]))
    standard = {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert stand_in.seen[-1].keys() == standard | {"temperature", "stop"}
    refused = await box.run("hello", params=Params(top_k=3))
    assert refused.error.path == "params.top_k"
    assert len(stand_in.seen) == 1


async def test_tools_images_and_thinking_where_the_server_has_them(server, started):
    stand_in = await server()
    pool = OpenAiPool(model="stand-in", tools=True, images=True, thinking=True)
    box = await started(config_of(stand_in, pools=(pool,)))
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    messages = [Message(role="user", content=[picture]), Message(role="user", content="[[tool:f]]")]
    outcome = await box.run(
        messages=messages, think=True, tools=[Tool(function=FunctionSpec(name="f"))]
    )
    calls = [chunk.tool_call for chunk in outcome.of(EngineChunk) if chunk.tool_call is not None]
    assert [(c.id, c.function.name, c.function.arguments) for c in calls] == [
        ("c1", "f", '{"a": 1}')
    ]
    assert outcome.finished.finish_reason is FinishReason.TOOL_CALLS
    kinds = {chunk.kind for chunk in outcome.of(EngineChunk)}
    assert kinds == {ChunkKind.TEXT, ChunkKind.TOOL_CALL}
    sent = stand_in.seen[-1]
    assert sent["messages"][0]["content"][0]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert sent["tools"] == [{"type": "function", "function": {"name": "f"}}]
    assert sent["chat_template_kwargs"] == {"enable_thinking": True}


async def test_what_it_does_not_have_is_unsupported_before_anything_is_sent(server, started):
    stand_in = await server()
    box = await started(config_of(stand_in))
    for path, given in (
        ("tools", {"tools": [Tool(function=FunctionSpec(name="f"))]}),
        ("think", {"think": True}),
        ("suffix", {"suffix": "x"}),
        ("resume_token_ids", {"resume_tok_ids": [1]}),
    ):
        outcome = await box.run("hello", **given)
        assert outcome.error.unsupported
        assert outcome.error.path == path
    assert stand_in.seen == []


async def test_counts_and_vectors(server, started):
    for flavour in ("llama-server", "vllm"):
        box = await started(config_of(await server(flavour=flavour)))
        assert (await box.engine.count(box.model, prompt="one two", raw=True)).n_tok == 3
        assert (await box.engine.count(box.model, prompt="one two")).n_tok == 4
    box = await started(config_of(await server(flavour="none")))
    with pytest.raises(EngineRefused):
        await box.engine.count(box.model, prompt="one")
    result = await box.engine.embed(EmbedRequest(id=1, model=box.model, input=["a", "b"]))
    assert result.vectors == [[0.5, 0.0], [0.5, 1.0]]
    assert result.usage.prompt_tok == 3
    with pytest.raises(EngineRefused) as refused:
        await box.engine.embed(EmbedRequest(id=1, model=box.model, input=["no"]))
    assert refused.value.unsupported


# --- how many at once ---------------------------------------------------------------------------


async def test_seats_that_are_too_many_are_found_out_and_the_right_number_is_said(server, started):
    stand_in = await server(flavour="none", width=2, token_s=0.02)
    box = await started(config_of(stand_in, max_seqs=6))
    await box.run("alone", max_tokens=20)

    async def one() -> None:
        while box.pool.capacity.max_seqs > 2:
            await box.run("hello", max_tokens=20)

    await asyncio.gather(*(one() for _ in range(6)))
    assert box.pool.capacity.max_seqs == 2
    (said,) = [e for e in box.of(EngineNotice) if e.code == "engine_queueing"][-1:]
    assert "max_seqs = 2" in said.detail
    await box.all_told()


async def test_others_at_the_server_are_seen(server, started):
    stand_in = await server(flavour="vllm")
    box = await started(config_of(stand_in))
    stand_in.inside += 2
    for _ in range(3):
        box.engine._keeper.doubt()
        await asyncio.sleep(0.1)
    await box.until(lambda: any(e.code == "foreign_load" for e in box.of(EngineNotice)))
    # Its load is not taken for that of one of ours which has left.
    stream = box.generate(box.request("[[tokens:900]]", max_tokens=900))
    assert isinstance(await anext(stream), Accepted)
    await stream.aclose()
    await box.all_told()
    stand_in.inside -= 2
    box.engine._keeper.doubt()
    await box.until(lambda: box.of(EngineNotice)[-1].detail is None)
