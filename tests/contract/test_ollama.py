"""The `ollama` adapter against a stand-in that has Ollama's inside, and its faults."""

import asyncio

import pytest
import pytest_asyncio
from tests.contract.ollama_stand_in import FAULTS, Model, StandIn

from onegate.config import EngineConfig, OllamaConfig, OllamaModel
from onegate.engines.base import (
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
    Finished,
    PoolState,
    SeatFreed,
    Stopped,
)
from onegate.protocol.content import FinishReason, JsonSchema, Message, Params, ResponseFormat

# As long as a task of the stand-in needs to run at all, and no longer than anybody waits.
MOMENT_S = 0.05


@pytest_asyncio.fixture
async def ollama():
    server = StandIn()
    yield server
    await server.close()


@pytest.fixture
def config(ollama):
    def make(*models, **given):
        engine = {
            key: given.pop(key) for key in ("allow_remote", "restart_backoff_ms") if key in given
        }
        given.setdefault("boundary", "local")
        return EngineConfig(
            kind="ollama",
            ollama=OllamaConfig(
                base_url=ollama.url,
                models=tuple(models) or (OllamaModel(model="tiny", max_seqs=ollama.parallel),),
                **given,
            ),
            **({"restart_backoff_ms": 20} | engine),
        )

    return make


@pytest.fixture
def engine(ollama, new_box, config):
    """Builds an engine in front of the stand-in, started and with its first model loaded."""

    async def start(*models, load=True, **given):
        if not ollama.port:
            await ollama.start()
        box = new_box(config(*models, **given))
        await box.start()
        await box.until(lambda: box.pool.state is not PoolState.LOADING)
        if load:
            await box.engine.load(box.model)
        return box

    return start


async def reading(box, request):
    """A request that is being answered, with its reader there."""
    stream = box.generate(request)
    async for item in stream:
        if isinstance(item, EngineChunk):
            return stream
    raise AssertionError("it ended")


def asked(server, *verbs):
    return [body for verb, body in server.seen if verb in verbs]


# --- what it is ---------------------------------------------------------------------------------


async def test_a_pool_says_what_it_is(engine, ollama):
    box = await engine()
    pool = box.pool
    assert pool.state is PoolState.READY
    assert (pool.loads, pool.load_ms == pool.switch_cost_ms) == (1, True)
    assert pool.identity.engine_version == "0.9.3"
    assert pool.identity.digest == "sha256:" + "ab" * 32
    assert pool.identity.boundary == "local"
    assert pool.capacity.max_seqs == 1
    assert pool.capacity.max_context_tok == pool.capacity.kv_tok == 4096
    assert "logprobs" not in pool.params
    assert "repeat_penalty" not in pool.params
    assert not {Feature.EMBEDDINGS, Feature.WHOLE_PROMPTS} & pool.features


async def test_newer_servers_are_asked_for_more(engine, ollama):
    ollama.version = "0.33.0"
    ollama.models["tiny:latest"].capabilities = ["completion", "tools", "vision", "thinking"]
    box = await engine(penalties=True)
    assert {"logprobs", "top_logprobs", "repeat_penalty"} <= box.pool.params
    more = {Feature.TOOLS, Feature.IMAGES, Feature.THINKING, Feature.WHOLE_PROMPTS}
    assert more <= box.pool.features
    assert ollama.asked["status"] == 1


async def test_a_stream_from_acceptance_to_its_end(engine):
    box = await engine()
    outcome = await box.run("[[tokens:5]]", max_tokens=8)
    assert outcome.text == "w0 w1 w2 w3 w4 "
    assert outcome.finished.finish_reason is FinishReason.STOP
    assert outcome.finished.usage.output_tok == outcome.n_tok == 5
    assert outcome.finished.usage.prompt_tok == 7
    await box.all_told()


async def test_every_request_pins_the_same_settings(engine, ollama):
    model = OllamaModel(model="tiny", context_tok=1024, num_batch=128)
    box = await engine(model, idle_unload_s=90.0)
    await box.run("hello")
    await box.run("hello", raw=True, params=Params(temperature=0.0, stop=["x"]))
    bodies = asked(ollama, "chat", "generate")
    assert len(bodies) == 3
    pins = [
        (b["options"]["num_ctx"], b["options"]["num_batch"], b["keep_alive"], b["shift"])
        for b in bodies
    ]
    assert set(pins) == {(1024, 128, "90000ms", False)}
    assert ollama.loads == 1


async def test_a_schema_goes_out_as_the_format(engine, ollama):
    box = await engine()
    schema = {"type": "object"}
    wanted = ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=schema))
    assert (await box.run("x", params=Params(response_format=wanted))).finished
    assert asked(ollama, "chat")[-1]["format"] == schema


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("params.logprobs", {"params": Params(logprobs=True)}),
        ("params.min_tokens", {"params": Params(min_tokens=1)}),
        ("params.repeat_penalty", {"params": Params(repeat_penalty=1.1)}),
        ("suffix", {"suffix": "end"}),
        ("tool_choice", {"tool_choice": "required"}),
        ("think", {"think": True}),
        ("resume_tok_ids", {"resume_tok_ids": [1]}),
    ],
)
async def test_what_it_cannot_do_never_reaches_it(engine, ollama, path, given):
    box = await engine()
    outcome = await box.run("x", **given)
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.error.unsupported
    assert outcome.error.path == path
    assert asked(ollama, "chat", "generate") == asked(ollama, "generate")[:1]
    await box.all_told()


async def test_counting_and_embedding_are_unsupported(engine):
    box = await engine()
    with pytest.raises(EngineRefused) as refused:
        await box.engine.count(box.model, prompt="x")
    assert refused.value.unsupported
    with pytest.raises(EngineRefused) as refused:
        await box.engine.embed(EmbedRequest(id=1, model=box.model, input=["a"]))
    assert refused.value.unsupported


async def test_a_model_that_embeds(engine, ollama):
    ollama.models["tiny:latest"].capabilities = ["embedding"]
    box = await engine()
    result = await box.engine.embed(EmbedRequest(id=1, model=box.model, input=["a", "bcd"]))
    assert result.vectors == [[1.0, 0.5], [3.0, 0.5]]
    assert result.usage.prompt_tok == 2
    assert isinstance((await box.run("x")).error, EngineRefused)
    for text in ("[[few]]", "[[ragged]]"):
        with pytest.raises(EngineMalformed):
            await box.engine.embed(EmbedRequest(id=2, model=box.model, input=[text, "b"]))


# --- ends ---------------------------------------------------------------------------------------


async def test_one_at_a_time_and_never_a_queue_inside(engine, ollama):
    ollama.parallel = 3
    box = await engine(OllamaModel(model="tiny", max_seqs=3))
    outcomes = await asyncio.gather(*(box.run("[[pause-ms:2]]", max_tokens=5) for _ in range(64)))
    served = [outcome for outcome in outcomes if outcome.error is None]
    assert {type(o.error) for o in outcomes if o.error is not None} == {EngineUnavailable}
    assert len(served) == 3 == len(asked(ollama, "chat"))
    await box.all_told()
    assert (await box.run("again")).finished


async def test_left_in_decode_the_next_is_served_at_once(engine, ollama):
    """No canary is asked, and the seat is told of before anything else happens there."""
    box = await engine()
    request = box.request("[[pause-ms:5]]", max_tokens=4000)
    stream = await reading(box, request)
    await stream.aclose()
    await stream.aclose()
    await box.all_told()
    before = len(ollama.seen)
    assert (await box.run("next")).finished
    assert [body["messages"][0]["content"] for _, body in ollama.seen[before:]] == ["next"]


async def test_stopped_in_decode_with_its_reader_there(engine):
    box = await engine()
    request = box.request("[[pause-ms:5]]", max_tokens=4000)
    items = []
    async for item in box.generate(request):
        items.append(item)
        if isinstance(item, EngineChunk):
            box.engine.stop(request.id)
            box.engine.stop(request.id)
    assert isinstance(items[-1], Stopped)
    await box.all_told()


async def test_left_in_prefill_its_seat_is_kept_until_a_token_shows_that_it_is_free(engine, ollama):
    box = await engine()
    ollama.prefill_go.clear()
    stream = box.generate(box.request("[[tokens:2]]"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(MOMENT_S):
            await anext(stream)
    await stream.aclose()
    await box.until(lambda: len(asked(ollama, "generate")) >= 2)  # the load, and the canary
    assert box.of(SeatFreed) == []
    assert isinstance((await box.run("too early")).error, EngineUnavailable)
    ollama.prefill_go.set()
    await box.all_told()
    canary = asked(ollama, "generate")[1]
    assert canary["options"]["num_predict"] == 1
    assert canary["options"]["num_ctx"] == 4096
    assert (await box.run("next")).finished


async def test_with_several_seats_one_free_seat_proves_nothing(engine, ollama):
    ollama.parallel = 2
    box = await engine(OllamaModel(model="tiny", max_seqs=2))
    ollama.prefill_go.clear()
    held = box.generate(box.request("held"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(MOMENT_S):
            await anext(held)
    await held.aclose()
    await box.until(lambda: len(asked(ollama, "generate")) >= 3)
    assert all(body["options"]["num_predict"] > 1 for body in asked(ollama, "generate")[1:3])
    assert box.of(SeatFreed) == []
    ollama.prefill_go.set()
    await box.all_told()


async def test_a_client_that_leaves_before_its_turn_never_reaches_it(engine, ollama):
    box = await engine()
    stream = await reading(box, box.request("[[pause-ms:5]]", max_tokens=4000))
    assert isinstance((await box.run("waits outside")).error, EngineUnavailable)
    never = box.engine.generate(box.request("never begun"))
    await never.aclose()
    await stream.aclose()
    await box.all_told()
    assert len(ollama.served) == 1


async def test_a_wedged_model_is_given_up_though_the_server_looks_healthy(engine, ollama):
    box = await engine(first_timeout_s=0.3, confirm_timeout_s=0.5)
    ollama.prefill_go.clear()
    outcome = await box.run("[[tokens:2]]")
    assert isinstance(outcome.error, EngineBroke)
    await box.until(lambda: box.pool.state is PoolState.FAILED)
    assert "goes on" in box.pool.error
    assert ollama.asked["tags"] >= 1
    await box.all_told()
    ollama.prefill_go.set()
    await box.until(lambda: box.pool.state is PoolState.READY)
    assert (await box.run("again")).finished


async def test_closing_while_generating_leaves_nothing(engine, ollama):
    box = await engine()
    async with asyncio.TaskGroup() as group:
        run = group.create_task(box.run("[[pause-ms:5]]", max_tokens=4000))
        await box.until(lambda: bool(ollama.served))
        await box.engine.aclose(5.0)
    assert isinstance(run.result().error, EngineBroke)
    assert isinstance((await box.run("x")).error, EngineUnavailable)
    assert box.engine.health().state == "stopped"


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_has_one_outcome_and_the_next_is_served(engine, fault):
    box = await engine()
    outcome = await box.run(f"[[fault:{fault}]]", max_tokens=20)
    assert isinstance(outcome.error, EngineBroke), outcome.error
    assert outcome.n_tok == 2
    await box.all_told()
    await box.until(lambda: box.pool.state is PoolState.READY)
    assert (await box.run("next")).finished


@pytest.mark.parametrize(
    ("directive", "kind", "says"),
    [
        ("[[status:503 server busy, please try again]]", EngineUnavailable, "busy"),
        ("[[status:404 model 'tiny' not found]]", EngineUnavailable, "ollama pull tiny"),
        ("[[status:400 tiny does not support tools]]", EngineRefused, "tools"),
        ("[[status:500 runner has terminated]]", EngineBroke, "terminated"),
        ("[[status:403 ollama cloud is disabled]]", EngineUnavailable, "cloud"),
        ("[[redirect]]", EngineMalformed, "example.org"),
        ("[[html]]", EngineMalformed, "read"),
    ],
)
async def test_an_answer_that_is_none(engine, directive, kind, says):
    box = await engine()
    outcome = await box.run(directive)
    assert type(outcome.error) is kind, outcome.error
    assert says in str(outcome.error)
    assert outcome.items == []
    await box.all_told()


async def test_blank_lines_a_second_end_and_usage_that_is_wrong(engine):
    box = await engine()
    assert (await box.run("[[blank]]", max_tokens=3)).text == "w0 w1 w2 "
    assert len((await box.run("[[twice]]", max_tokens=3)).of(Finished)) == 1
    outcome = await box.run("[[usage:1]]", max_tokens=3)
    assert outcome.finished.usage.output_tok == outcome.n_tok == 3
    await box.all_told()


async def test_one_that_never_ends_is_ended(engine, ollama):
    box = await engine()
    outcome = await box.run("[[tokens:3]][[hang:3]]", max_tokens=3)
    assert outcome.finished
    box = await engine(idle_timeout_s=0.2, confirm_timeout_s=30.0)
    outcome = await box.run("[[hang:1]]", max_tokens=3)
    assert isinstance(outcome.error, EngineBroke)
    await box.all_told()
    assert (await box.run("next")).finished


async def test_a_prompt_that_was_cut_to_fit_is_too_large(engine):
    box = await engine()
    outcome = await box.run("[[prompt-tok:4096]]", max_tokens=3)
    assert isinstance(outcome.error, EngineTooLarge)
    assert outcome.error.limit_tok == 4096
    await box.all_told()


async def test_a_server_that_dies_takes_down_what_is_inside_and_comes_back(engine, ollama):
    box = await engine()
    stream = await reading(box, box.request("[[pause-ms:5]]", max_tokens=4000))
    port = ollama.port
    await ollama.close()
    with pytest.raises(EngineBroke):
        async for _ in stream:
            pass
    await box.until(lambda: bool(box.of(EngineLost)))
    await box.all_told()
    assert box.pool.state is not PoolState.READY
    assert isinstance((await box.run("x")).error, EngineUnavailable)
    await ollama.start(port)
    await box.until(lambda: box.pool.state is PoolState.READY)
    assert (await box.run("again")).finished


# --- models, loads, and other machines ----------------------------------------------------------


async def test_one_load_at_a_time_and_what_it_puts_aside(engine, ollama):
    ollama.load_s = MOMENT_S
    red, blue = OllamaModel(model="tiny"), OllamaModel(model="other")
    box = await engine(red, blue)
    assert [pool.state for pool in box.engine.pools()] == [PoolState.READY, PoolState.COLD]
    assert isinstance((await box.run("x", model="other")).error, EngineUnavailable)
    await asyncio.gather(box.engine.load("other"), box.engine.load("tiny"))
    assert ollama.most_in_load == 1
    assert [pool.state for pool in box.engine.pools()] == [PoolState.READY, PoolState.COLD]
    assert box.engine.pools()[1].switch_cost_ms >= MOMENT_S * 1000
    assert PoolState.LOADING in box.states()


async def test_a_pool_is_unloaded_and_loaded_again(engine, ollama):
    box = await engine()
    stream = await reading(box, box.request("[[pause-ms:5]]", max_tokens=4000))
    async with asyncio.TaskGroup() as group:

        async def read():
            return [item async for item in stream]

        reader = group.create_task(read())
        await box.engine.unload(box.model)
    assert isinstance(reader.result()[-1], Stopped)
    assert box.pool.state is PoolState.COLD
    await box.engine.load(box.model)
    await box.engine.load(box.model)
    assert (box.pool.state, box.pool.loads, ollama.loads) == (PoolState.READY, 2, 2)


async def test_it_loads_the_first_model_by_itself_unless_it_is_to_stay_cold(
    new_box, config, ollama
):
    await ollama.start()
    box = new_box(config(OllamaModel(model="tiny"), OllamaModel(model="other")))
    await box.start()
    await box.until(lambda: box.pool.state is PoolState.READY)
    assert [pool.state for pool in box.engine.pools()] == [PoolState.READY, PoolState.COLD]
    await box.engine.unload("tiny")
    cold = new_box(config())
    cold.engine.keep_cold(True)
    await cold.start()
    await cold.until(lambda: cold.pool.state is PoolState.COLD)
    await cold.until(lambda: ollama.asked["ps"] > 8)
    assert cold.pool.state is PoolState.COLD
    assert ollama.loads == 1


async def test_a_load_that_fails_says_why(engine, ollama):
    ollama.load_error = "model requires more system memory (9 GiB) than is available (8 GiB)"
    box = await engine(load=False)
    with pytest.raises(EngineUnavailable, match="more system memory"):
        await box.engine.load(box.model)
    assert box.pool.state is PoolState.FAILED
    assert "more system memory" in box.pool.error


async def test_a_load_inside_is_seen_and_said(engine):
    box = await engine()
    await box.run("warm")
    await box.run("[[load-ms:900]]")
    await box.until(lambda: box.pool.loads == 2)
    assert box.pool.load_ms == 900
    await box.until(lambda: bool(box.of(EngineNotice)))
    (notice,) = box.of(EngineNotice)
    assert (notice.code, notice.model) == ("cold_load", "tiny")
    assert "900 ms" in notice.detail


async def test_a_model_that_is_not_wholly_on_the_gpu_is_said(engine, ollama):
    ollama.vram = 250
    box = await engine()
    await box.until(lambda: bool(box.of(EngineNotice)))
    (notice,) = box.of(EngineNotice)
    assert (notice.code, notice.model) == ("offload", "tiny")
    assert "75 % of it is on the CPU" in notice.detail


async def test_a_model_that_is_not_there(engine):
    box = await engine(OllamaModel(model="absent"), load=False)
    assert box.pool.state is PoolState.FAILED
    assert "ollama pull absent" in box.pool.error
    assert isinstance((await box.run("x")).error, EngineUnavailable)


@pytest.mark.parametrize("name", ["tiny:cloud", "alias"])
async def test_what_is_answered_elsewhere_is_not_served_unless_allowed(engine, ollama, name):
    ollama.models["alias:latest"] = Model(remote_host="https://ollama.com:443")
    box = await engine(OllamaModel(model=name), load=False)
    assert box.pool.state is PoolState.FAILED
    assert "ollama.com" in box.pool.error
    assert "allow_remote" in box.pool.error
    outcome = await box.run("secret")
    assert isinstance(outcome.error, EngineUnavailable)
    assert all(body.get("model") != "tiny:cloud" for _, body in ollama.seen)
    assert asked(ollama, "chat", "generate") == []


async def test_what_is_allowed_elsewhere_says_so(engine, ollama):
    ollama.version = "0.33.0"
    ollama.models["alias:latest"] = Model(remote_host="h")
    box = await engine(OllamaModel(model="alias"), load=False, allow_remote=True)
    assert box.pool.state is PoolState.READY
    assert box.pool.identity.boundary == "remote"
    ollama.cloud_disabled = True
    other = await engine(OllamaModel(model="alias"), load=False, allow_remote=True)
    assert "OLLAMA_NO_CLOUD" in other.pool.error


async def test_an_answer_from_elsewhere_is_refused_and_said(engine):
    box = await engine()
    outcome = await box.run("[[remote:https://elsewhere]]", max_tokens=3)
    assert isinstance(outcome.error, EngineBroke)
    assert "elsewhere" in str(outcome.error)
    assert outcome.text == ""
    await box.all_told()
    await box.until(lambda: box.pool.state is PoolState.FAILED)
    assert box.pool.identity.boundary == "remote"
    await box.until(lambda: bool(box.of(EngineNotice)))
    assert box.of(EngineNotice)[0].code == "boundary"
    assert isinstance((await box.run("more")).error, EngineUnavailable)


async def test_another_model_under_the_same_name_is_seen(engine, ollama, monkeypatch):
    monkeypatch.setattr("onegate.engines.ollama.store._STORE_EVERY_NS", 0)
    box = await engine()
    before = box.pool.identity
    ollama.models["tiny:latest"].digest = "ef" * 32
    await box.until(lambda: box.pool.identity != before)
    assert box.pool.identity.digest == "sha256:" + "ef" * 32


async def test_messages_are_one_conversation(engine, ollama):
    box = await engine()
    turns = [Message(role="system", content="Be brief."), Message(role="user", content="Hi")]
    assert (await box.run(messages=turns)).finished
    assert asked(ollama, "chat")[-1]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
