"""TensorRT-LLM, against a stand-in that is stricter than the package.

The numbers in the names are the points of daemon/onegate/engines/TENSORRT_LLM.md under "What the
adapter reckons with"."""

import asyncio
import os
import signal
import sys

import pytest
from tests.contract.trtllm import is_running, model_folder, stand_in, trtllm_config
from tests.integration.hosts import Manager

from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineRefused,
    EngineTooLarge,
    Feature,
    PoolState,
    Reservation,
    Stopped,
)
from onegate.engines.host.trtllm.surface import KNOWN
from onegate.protocol.content import FinishReason, JsonSchema, Params, ResponseFormat

PROMPT = "Tell me a story about a lighthouse."
# One token by the likeliest and one drawn, when it has come up.
WARM_UP = 2
EVERY_OUTPUT = Params(ignore_eos=True)


pytestmark = pytest.mark.usefixtures("strict_trtllm")


def asked(box) -> list[dict]:
    """What was asked of the library since it came up."""
    return box.stand_in.calls("generate_async")[WARM_UP:]


async def test_01_02_the_package_is_in_another_process_and_loads_in_a_thread(serve):
    box = await serve()
    assert "tensorrt_llm" not in sys.modules
    (imported,) = box.stand_in.calls("import")
    (made,) = box.stand_in.calls("LLM")
    assert imported["thread"] == made["thread"] == "trtllm load"
    # Nothing is fetched and nobody is told: known before the package looks.
    assert set(imported["environment"].values()) == {"1"}


async def test_02_both_ways_to_choose_a_token_are_tried_before_anybody_waits_for_one(serve):
    """What a first use compiles is compiled then."""
    box = await serve()
    greedy, drawn = box.stand_in.calls("generate_async")
    assert greedy["sampling"]["top_k"] == 1
    assert drawn["sampling"]["temperature"] > 0
    assert {greedy["sampling"]["max_tokens"], drawn["sampling"]["max_tokens"]} == {1}


async def test_03_04_what_the_constructor_gets(serve):
    box = await serve(config={"max_seqs": 5, "own": {"kv_tok": 4096, "kv_share": 0.5}})
    (made,) = box.stand_in.calls("LLM")
    names = made.keys() - {"call", "thread"}
    assert names <= KNOWN["LLM"].keys()
    assert "waiting_queue_policy" not in made["scheduler_config"]
    assert made["model"].endswith("/fine-tune")
    assert (made["max_batch_size"], made["max_num_tokens"], made["max_seq_len"]) == (5, 256, 4096)
    assert (made["enable_chunked_prefill"], made["enable_iter_perf_stats"]) == (True, True)
    for part in ("'enable_block_reuse': True", "'max_tokens': 4096", "fraction': 0.5"):
        assert part in made["kv_cache_config"]
    assert "GUARANTEED_NO_EVICT" in made["scheduler_config"]
    assert "guided_decoding_backend" not in made


async def test_05_07_every_request_is_made_in_one_thread_under_an_id_of_the_library(serve):
    box = await serve()
    await asyncio.gather(*(box.run(f"Number {i}.", max_tokens=3) for i in range(8)))
    made = box.stand_in.calls("generate_async")
    assert {call["thread"] for call in made} == {"trtllm loop"}
    assert [call["id"] for call in made] == list(range(1, WARM_UP + 9))


async def test_06_no_priority_in_this_release(serve):
    box = await serve()
    assert Feature.PRIORITY not in box.pool.features
    await box.run(PROMPT, rank=0)
    assert box.stand_in.calls("generate_async")[-1]["priority"] is None


async def test_06_priority_where_the_signature_has_it(serve):
    box = await serve(version="1.3.0rc9", priority=True)
    assert Feature.PRIORITY in box.pool.features
    for rank in (0, 1, 2):
        await box.run(PROMPT, rank=rank)
    given = [call["priority"] for call in asked(box)]
    assert 1.0 >= given[0] > given[1] > given[2] >= 0.0


async def test_08_the_engine_says_how_much_there_is_room_for(serve):
    box = await serve(blocks=100, config={"max_seqs": 3})
    capacity = box.pool.capacity
    assert (capacity.max_seqs, capacity.max_step_tok) == (3, 256)
    assert (capacity.kv_tok, capacity.block_tok) == (3200, 32)
    assert capacity.max_context_tok == 3200  # less than was configured
    assert capacity.reservation is Reservation.FULL


async def test_08_requests_that_may_be_paused_reserve_as_they_grow(serve):
    box = await serve(config={"own": {"policy": "max_utilization"}})
    assert box.pool.capacity.reservation is Reservation.GROW


async def test_09_10_tokens_go_in_and_the_length_is_always_said(serve):
    box = await serve()
    counted = await box.engine.count(box.model, prompt=PROMPT)
    await box.run(PROMPT, max_tokens=7)
    await box.run(PROMPT, max_tokens=7, params=Params(temperature=0.5, top_p=0.9, top_k=3))
    greedy, sampled = asked(box)
    assert greedy["prompt_tok"] == counted.n_tok
    assert greedy["sampling"] == {"max_tokens": 7, "n": 1, "detokenize": False, "top_k": 1}
    assert sampled["sampling"]["temperature"] == 0.5
    assert (sampled["sampling"]["top_p"], sampled["sampling"]["top_k"]) == (0.9, 3)


async def test_11_what_does_not_fit_never_reaches_the_library(serve):
    box = await serve()
    for given in ({"prompt_tok_ids": [20] * 4096}, {"prompt_tok_ids": [20] * 4090}):
        outcome = await box.run(**given, max_tokens=8)
        assert isinstance(outcome.error, EngineTooLarge)
    assert asked(box) == []


async def test_11_a_context_beyond_the_models_own_is_lowered_and_said(new_box, tmp_path):
    """The library lowers it, too, and does not say so."""
    made, folder = stand_in(tmp_path), model_folder(tmp_path, context_tok=512)
    box = new_box(trtllm_config(made.python, folder))
    await box.start()
    await box.ready()
    assert box.pool.capacity.max_context_tok == 512
    said = "reads 512 tokens at most, and engine.context_tok is 4096"
    assert any(said in line for line in box.log)
    outcome = await box.run(prompt_tok_ids=[20] * 510, max_tokens=3)
    assert isinstance(outcome.error, EngineTooLarge)
    assert (await box.run(prompt_tok_ids=[20] * 509, max_tokens=3)).finished


async def test_11_without_chunked_prefill_a_prompt_has_to_fit_into_a_step(serve):
    box = await serve(config={"own": {"chunked_prefill": False}})
    outcome = await box.run(prompt_tok_ids=[20] * 257)
    assert isinstance(outcome.error, EngineTooLarge)
    assert (outcome.error.need_tok, outcome.error.limit_tok) == (257, 256)
    assert (await box.run(prompt_tok_ids=[20] * 256)).finished
    assert len(asked(box)) == 1


@pytest.mark.parametrize("words", ["", "[[pairs]]"])
async def test_12_no_token_is_lost_though_the_output_is_one_object(serve, words):
    box = await serve()
    whole = await box.run(f"{words}{PROMPT}", max_tokens=33, params=EVERY_OUTPUT)
    assert whole.n_tok == whole.finished.usage.output_tok == len(whole.ids) == 33
    again = await box.run(f"{words}{PROMPT}", max_tokens=33, params=EVERY_OUTPUT)
    assert again.ids == whole.ids
    assert all(chunk.n_tok == 1 for chunk in whole.of(EngineChunk))


async def test_13_characters_in_halves_come_whole(serve):
    box = await serve()
    outcome = await box.run("[[half]]", max_tokens=10, params=EVERY_OUTPUT)
    assert outcome.text == "🦊🦊\ufffd"
    texts = [chunk.text for chunk in outcome.of(EngineChunk)]
    assert texts[:4] == ["", "", "", "🦊"]
    assert {call["sampling"]["n"] for call in box.stand_in.calls("generate_async")} == {1}


async def test_14_ends_and_what_is_no_end(serve):
    box = await serve()
    assert (await box.run(PROMPT, max_tokens=3)).finished.finish_reason is FinishReason.LENGTH
    stopped = await box.run(PROMPT, max_tokens=500)
    assert stopped.finished.finish_reason is FinishReason.STOP
    late = await box.run("[[timeout]]", max_tokens=9)
    assert str(late.error) == "the engine gave the request up: timeout"


async def test_15_an_error_of_one_request_is_its_own_and_the_last_that_is_heard(serve):
    box = await serve()
    failed, beside = await asyncio.gather(
        box.run("[[error]]", max_tokens=20, params=EVERY_OUTPUT),
        box.run(PROMPT, max_tokens=60, params=EVERY_OUTPUT),
    )
    assert isinstance(failed.error, EngineBroke)
    assert "no more ink" in str(failed.error)
    assert failed.n_tok == 2
    assert beside.finished.usage.output_tok == 60
    await box.all_told()
    assert box.stand_in.calls("awaited after its error") == []
    assert box.stand_in.calls("abort") == []
    assert box.of(EngineLost) == []


async def test_16_any_other_error_ends_the_process_and_everything_in_it(serve):
    box = await serve()
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(box.run("[[slow]]", max_tokens=500, params=EVERY_OUTPUT))
        broke = group.create_task(box.run("[[serious]]", max_tokens=9))
    assert isinstance(broke.result().error, EngineBroke)
    assert isinstance(beside.result().error, EngineBroke)
    (lost,) = box.of(EngineLost)
    assert len(lost.ids) == 2
    assert any("illegal memory access" in line for line in box.log)
    await box.serves_again()
    assert box.pool.loads == 2


async def test_17_what_runs_is_cancelled_with_the_next_step(serve):
    box = await serve()
    request = box.request("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT)
    items = []
    async for item in box.generate(request):
        items.append(item)
        if isinstance(item, EngineChunk):
            box.engine.stop(request.id)
    assert isinstance(items[-1], Stopped)
    assert len(items) < 20
    assert len(box.stand_in.calls("abort")) == 1


async def test_18_an_abort_that_is_never_answered_is_waited_for_a_while(serve):
    box = await serve(blocks=40, config={"context_tok": 1024})
    first = box.generate(box.request("[[slow]]", max_tokens=900, params=EVERY_OUTPUT))
    await anext(first)
    # There is no room for two of them, so this one waits in the engine's own queue.
    second = box.generate(box.request("[[slow]]", max_tokens=900, params=EVERY_OUTPUT))
    assert isinstance(await anext(second), Accepted)
    await second.aclose()
    await box.until(lambda: sum(box.told().values()) == 1)
    assert len(box.stand_in.calls("dropped while queued")) == 1
    # It runs on. How much of its prompt's progress comes before a chunk is the moment's.
    await anext(item async for item in first if isinstance(item, EngineChunk))
    await first.aclose()
    await box.all_told()
    assert box.of(EngineLost) == []


async def test_19_whoever_leaves_is_aborted(serve):
    box = await serve()
    stream = box.generate(box.request("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT))
    await anext(stream)
    await stream.aclose()
    await box.all_told()
    assert [call["id"] for call in box.stand_in.calls("abort")] == [WARM_UP + 1]


@pytest.mark.parametrize(
    "name",
    [
        "logprobs",
        "seed",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "repeat_penalty",
        "response_format",
    ],
)
async def test_20_what_the_engine_gets_wrong_or_ignores_is_refused(serve, name):
    values = {"logprobs": True, "seed": 1, "min_tokens": 1}
    values |= {"response_format": ResponseFormat(type="json_object")}
    box = await serve()
    outcome = await box.run(PROMPT, params=Params(**{name: values.get(name, 0.5)}))
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.error.path == f"params.{name}"


async def test_21_statistics_are_asked_for_by_one_thread(serve):
    box = await serve()
    await box.run(PROMPT, max_tokens=50, params=EVERY_OUTPUT)
    (first,) = box.stand_in.calls("get_stats")
    assert first["thread"] == "trtllm statistics"
    snapshot = box.engine.snapshot(box.model)
    assert snapshot.step_ms_p50 > 0


async def test_22_an_engine_that_gives_no_figures_has_none(serve):
    box = await serve(mute=True)
    assert box.pool.capacity.kv_tok is None
    stream = box.generate(box.request("[[slow]]", max_tokens=500, params=EVERY_OUTPUT))
    async for item in stream:
        if isinstance(item, EngineChunk):
            break
    await box.until(lambda: box.engine.snapshot(box.model) is not None)
    snapshot = box.engine.snapshot(box.model)
    assert snapshot.seats_used == 1
    assert (snapshot.kv_tok_used, snapshot.waiting, snapshot.step_ms_p50) == (None, None, None)
    await stream.aclose()
    await box.all_told()


async def test_22_what_waits_inside_is_counted_here(serve):
    box = await serve(blocks=40, config={"context_tok": 1024})
    streams = [
        box.generate(box.request("[[slow]]", max_tokens=900, params=EVERY_OUTPUT)) for _ in "ab"
    ]
    for stream in streams:
        await anext(stream)

    def waits() -> bool:
        snapshot = box.engine.snapshot(box.model)
        return snapshot is not None and snapshot.waiting == 1

    await box.until(waits)
    for stream in streams:
        await stream.aclose()
    await box.all_told()


@pytest.mark.slow
async def test_23_a_dead_worker_is_noticed_though_nothing_says_so(serve):
    box = await serve()
    (worker,) = box.stand_in.calls("worker")
    os.kill(worker["pid"], signal.SIGKILL)
    await box.until(lambda: bool(box.of(EngineLost)))
    assert any(f"process {worker['pid']} of TensorRT-LLM has ended" in line for line in box.log)
    await box.serves_again()


async def test_23_no_step_with_work_inside_is_a_stall(serve):
    box = await serve(config={"stall_floor_s": 1.0})
    outcome = await box.run("[[hang]]", max_tokens=9)
    assert isinstance(outcome.error, EngineBroke)
    await box.serves_again()


async def test_24_a_shutdown_that_blocks_is_not_waited_for(serve):
    box = await serve(shutdown="blocks")
    (worker,) = box.stand_in.calls("worker")
    await box.engine.aclose(10.0)
    (called,) = box.stand_in.calls("shutdown")
    assert called["running"]
    assert called["thread"] not in ("trtllm loop", "MainThread")
    assert not is_running(worker["pid"])


async def test_24_an_unload_frees_the_worker(serve):
    box = await serve()
    (worker,) = box.stand_in.calls("worker")
    await box.engine.unload(box.model)
    assert box.pool.state is PoolState.COLD
    assert not is_running(worker["pid"])
    assert box.of(EngineLost) == []


async def test_25_two_fine_tunes_of_one_base_are_two_models(new_box, tmp_path):
    python = stand_in(tmp_path).python
    base = model_folder(tmp_path, "base", b"base weights")
    tuned = model_folder(tmp_path, "tuned", b"tuned weights")
    talked = model_folder(tmp_path, "talked", b"base weights")
    (talked / "tokenizer_config.json").write_text('{"chat_template": "another"}')
    identities = []
    for folder in (base, tuned, talked):
        box = new_box(trtllm_config(python, folder))
        await box.start()
        await box.ready()
        identities.append(box.pool.identity)
        await box.engine.aclose(10.0)
    assert len({identity.digest for identity in identities}) == 3
    assert {identity.engine_version for identity in identities} == {"1.2.1"}
    assert [identity.model for identity in identities] == ["base", "tuned", "talked"]
    assert f"model='{base}'" in identities[0].launch
    assert "KvCacheConfig(enable_block_reuse=True" in identities[0].launch


# --- beside the points --------------------------------------------------------------------------


async def test_users_share_no_prefixes_unless_they_are_to(serve):
    box = await serve()
    await box.run(PROMPT, cache_salt="uid:1000")
    await box.run(PROMPT, cache_salt="uid:1001")
    salts = [call["cache_salt"] for call in box.stand_in.calls("generate_async")]
    assert salts[WARM_UP:] == ["uid:1000", "uid:1001"]
    # Nobody's: who writes to no prefix of another reads none of his either.
    (own,) = set(salts[:WARM_UP])
    assert own not in (None, *salts[WARM_UP:])


async def test_users_share_prefixes_where_the_owner_says_so(serve):
    box = await serve(config={"prefix_cache_scope": "shared"})
    await box.run(PROMPT, cache_salt="uid:1000")
    assert {call["cache_salt"] for call in box.stand_in.calls("generate_async")} == {None}


async def test_what_the_cache_had_is_told(serve):
    box = await serve()
    outcome = await box.run(prompt_tok_ids=[20] * 64, max_tokens=2)
    assert outcome.finished.cached_tok == 32


async def test_a_schema_is_a_guide_where_a_backend_is_configured(serve):
    box = await serve(config={"own": {"guided": "xgrammar"}})
    assert Feature.SCHEMA in box.pool.features
    schema = JsonSchema(schema={"type": "object"})
    for wanted in (
        ResponseFormat(type="json_schema", json_schema=schema),
        ResponseFormat(type="json_object"),
        ResponseFormat(type="text"),
    ):
        assert (await box.run(PROMPT, params=Params(response_format=wanted))).finished
    guides = [call["guide"] for call in asked(box)]
    assert guides[0]["json"] == '{"type": "object"}'
    assert guides[1]["json_object"] is True
    assert guides[2] is None


async def test_a_host_of_its_own_keeps_the_model_and_loads_what_is_put_in_its_place(
    new_box, tmp_path, monkeypatch
):
    """Seats of a daemon that has left are freed while nobody is attached."""
    made, folder = stand_in(tmp_path), model_folder(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    service = Manager(tmp_path)
    try:
        config = trtllm_config(made.python, folder, host_socket=service.path)
        digests = []
        for turn in range(3):
            box = new_box(config)
            await box.start()
            await box.ready()
            digests.append(box.pool.identity.digest)
            stream = box.generate(box.request("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT))
            await anext(stream)
            await box.engine.aclose(10.0)
            if turn == 1:
                (folder / "model.safetensors").write_bytes(b"other weights")
        assert digests[0] == digests[1] != digests[2]
        assert len(made.calls("LLM")) == 2
        assert len(made.calls("shutdown")) == 1
        assert len(made.calls("abort")) >= 2
        assert service.starts == 1
    finally:
        service.close()
