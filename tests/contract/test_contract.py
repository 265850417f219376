"""What every engine adapter keeps, whatever is behind it."""

import asyncio
import random

import msgspec
import pytest

from onegate.engines.base import (
    Accepted,
    EmbedRequest,
    EngineChunk,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    Feature,
    Finished,
    PoolState,
    SeatFreed,
    Stopped,
)
from onegate.protocol.content import (
    FinishReason,
    FunctionSpec,
    ImagePart,
    JsonSchema,
    Message,
    Params,
    ResponseFormat,
    TextPart,
    Tool,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "Tell me a story about a lighthouse."
VALUES = {
    "max_tokens": 8,
    "min_tokens": 1,
    "ignore_eos": True,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "seed": 7,
    "stop": ["\n\n\n"],
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repeat_penalty": 1.1,
    "response_format": ResponseFormat(type="json_object"),
    "logprobs": True,
    "top_logprobs": 2,
}


def going_on(box) -> Params:
    """Output up to the maximum, where the engine can be asked for that: others are long enough."""
    return Params(ignore_eos=True) if "ignore_eos" in box.pool.params else Params()


async def test_a_pool_says_what_it_is(box):
    (pool,) = box.engine.pools()
    assert pool.state is PoolState.READY
    assert pool.error is None
    assert pool.loads == 1
    assert pool.identity.engine
    assert pool.identity.engine_version
    assert pool.identity.model == pool.model
    assert pool.identity.boundary == "local"
    assert pool.capacity.max_context_tok <= pool.capacity.kv_tok
    assert pool.capacity.max_seqs >= 1
    assert {"max_tokens", "stop", "ignore_eos"} <= pool.params
    assert {Feature.ABORT, Feature.COUNTS_TOKENS, Feature.RESUME_EXACT} <= pool.features
    assert box.engine.health().state == "ready"


async def test_a_stream_from_acceptance_to_its_end(box):
    outcome = await box.run(PROMPT, max_tokens=12, params=going_on(box))
    finished = outcome.finished
    assert finished.finish_reason is FinishReason.LENGTH
    assert finished.usage.output_tok == outcome.n_tok == len(outcome.ids) == 12
    assert finished.usage.prompt_tok == outcome.prompt_tok > 0
    assert len(outcome.text) > 12


async def test_a_prompt_of_several_steps_shows_its_progress(box):
    outcome = await box.run("word " * 400, max_tokens=1)
    moved = [item.prefilled_tok for item in outcome.items[1:-2]]
    assert moved == sorted(set(moved))
    assert moved[-1] < outcome.prompt_tok
    assert outcome.finished.usage.output_tok == 1


async def test_messages_and_a_prompt_of_ids(box):
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content=[TextPart(text="Hel"), TextPart(text="lo")]),
    ]
    assert (await box.run(messages=messages)).finished.usage.output_tok >= 1
    outcome = await box.run(prompt_tok_ids=[11, 12, 13])
    assert outcome.prompt_tok == 3


async def test_counting_agrees_with_what_a_request_is_charged(box):
    for given in (
        {"prompt": PROMPT},
        {"prompt": ""},
        {"prompt": PROMPT, "raw": True},
        {"messages": [Message(role="user", content="ñ 漢字 🦊\x00")]},
    ):
        count = await box.engine.count(box.model, **given)
        assert count.exact
        assert (await box.run(**given, max_tokens=1)).prompt_tok == count.n_tok


async def test_a_question_that_nobody_waits_for_disturbs_nothing(box):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await box.engine.count(box.model, prompt=PROMPT)
    assert (await box.engine.count(box.model, prompt=PROMPT)).exact


# --- ends ---------------------------------------------------------------------------------------


async def test_closed_before_the_first_token(box):
    request = box.request(PROMPT, max_tokens=500, params=going_on(box))
    stream = box.generate(request)
    assert isinstance(await anext(stream), Accepted)
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    await box.all_told()


async def test_closed_before_the_engine_has_answered(box):
    stream = box.generate(box.request(PROMPT, max_tokens=500, params=going_on(box)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(stream)
    await stream.aclose()
    await box.all_told()


async def test_closed_in_the_middle_and_twice(box):
    stream = box.generate(box.request(PROMPT, max_tokens=500, params=going_on(box)))
    seen = 0
    async for item in stream:
        seen += isinstance(item, EngineChunk)
        if seen == 3:
            break
    await stream.aclose()
    await stream.aclose()
    await box.all_told()


async def test_closed_while_its_reader_waits(box):
    stream = box.generate(box.request(PROMPT, max_tokens=500, params=going_on(box)))
    assert isinstance(await anext(stream), Accepted)

    async def read():
        return [item async for item in stream]

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read())
        await asyncio.sleep(0)
        await stream.aclose()
    assert Finished not in map(type, reader.result())
    await box.all_told()


async def test_closed_after_the_end_and_never_begun(box):
    stream = box.generate(box.request(PROMPT, max_tokens=2))
    items = [item async for item in stream]
    assert isinstance(items[-1], Finished)
    await stream.aclose()
    await stream.aclose()
    never = box.engine.generate(box.request(PROMPT))
    await never.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(never)
    await box.all_told()


async def test_stopped_with_its_reader_there(box):
    request = box.request(PROMPT, max_tokens=500, params=going_on(box))
    items = []
    async for item in box.generate(request):
        items.append(item)
        if len([i for i in items if isinstance(i, EngineChunk)]) == 2:
            box.engine.stop(request.id)
            box.engine.stop(request.id)
    assert isinstance(items[-1], Stopped)
    assert sum(isinstance(item, EngineChunk) for item in items) < 500


async def test_stopping_what_has_ended_or_never_was_changes_nothing(box):
    request = box.request(PROMPT, max_tokens=1)
    outcome = await box.collect(request)
    box.engine.stop(request.id)
    box.engine.stop(10**12)
    assert outcome.finished
    assert (await box.run(PROMPT, max_tokens=1)).finished


async def test_a_cancelled_reader_can_close(box):
    stream = box.generate(box.request(PROMPT, max_tokens=500, params=going_on(box)))
    async with asyncio.TaskGroup() as group:

        async def read():
            try:
                async for _ in stream:
                    await asyncio.sleep(0)
            finally:
                await stream.aclose()

        reader = group.create_task(read())
        await asyncio.sleep(0.05)
        reader.cancel()
    await box.all_told()


# --- parameters ---------------------------------------------------------------------------------


async def test_every_parameter_has_a_value_to_try():
    assert VALUES.keys() == {field.name for field in msgspec.structs.fields(Params)}


@pytest.mark.parametrize("name", VALUES)
async def test_a_parameter_is_listed_or_refused_by_name(box, name):
    outcome = await box.run(PROMPT, params=Params(**{name: VALUES[name]}))
    if name in box.pool.params:
        assert outcome.finished
    else:
        assert isinstance(outcome.error, EngineRefused)
        assert outcome.error.path == f"params.{name}"
        assert outcome.items == []


async def test_min_tokens_above_the_maximum_cannot_be_honoured(box):
    outcome = await box.run(PROMPT, max_tokens=2, params=Params(min_tokens=3))
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.error.path == "params.min_tokens"


async def test_a_stop_string_across_tokens_does_not_show(box):
    whole = await box.run(PROMPT, max_tokens=24, params=going_on(box))
    pieces = [chunk.text for chunk in whole.of(EngineChunk)]
    middle = len("".join(pieces[:12]))
    stop = whole.text[middle - 2 : middle + 2]
    expected = whole.text[: whole.text.index(stop)]
    params = Params(ignore_eos=True, stop=["never said \u2620", stop])
    outcome = await box.run(PROMPT, max_tokens=24, params=params)
    assert outcome.finished.finish_reason is FinishReason.STOP
    assert outcome.text == expected
    assert outcome.n_tok == outcome.finished.usage.output_tok < 24


async def test_text_held_back_for_a_stop_string_comes_at_the_end(box):
    whole = await box.run(PROMPT, max_tokens=10, params=going_on(box))
    almost = whole.text[-3:] + "\u2620"
    params = Params(ignore_eos=True, stop=[almost])
    assert (await box.run(PROMPT, max_tokens=10, params=params)).text == whole.text


async def test_the_same_again(box):
    one, two = [
        await box.run(PROMPT, max_tokens=16, params=Params(temperature=0.0)) for _ in range(2)
    ]
    assert one.ids == two.ids
    assert one.text == two.text


# --- what does not fit --------------------------------------------------------------------------


async def test_too_large_names_both_numbers(box):
    limit_tok = box.pool.capacity.max_context_tok
    prompt_tok = (await box.engine.count(box.model, prompt=PROMPT)).n_tok
    outcome = await box.run(PROMPT, max_tokens=limit_tok)
    assert isinstance(outcome.error, EngineTooLarge)
    assert outcome.error.limit_tok == limit_tok
    assert outcome.error.need_tok == limit_tok + prompt_tok


async def test_a_huge_prompt_is_too_large_as_well(box):
    outcome = await box.run("x" * 4_000_000, max_tokens=1)
    assert isinstance(outcome.error, EngineTooLarge)
    assert outcome.error.need_tok > outcome.error.limit_tok


async def test_output_is_fitted_to_the_context_where_nobody_named_a_bound(box):
    limit_tok = box.pool.capacity.max_context_tok
    ids = [20 + i % 50 for i in range(limit_tok - 3)]
    given = {"prompt_tok_ids": ids, "max_tokens": 10_000, "params": going_on(box)}
    fitted = await box.run(fit_max_tokens=True, **given)
    assert fitted.finished.usage.output_tok == 3
    assert isinstance((await box.run(**given)).error, EngineTooLarge)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("suffix", {"suffix": "end"}),
        ("tools", {"tools": [Tool(function=FunctionSpec(name="f"))]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("think", {"think": True}),
    ],
)
async def test_beyond_text_is_unsupported(box, path, given):
    outcome = await box.run(PROMPT, **given)
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.error.unsupported
    assert outcome.error.path == path


async def test_images_and_tool_turns_are_unsupported(box):
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    for message, path in (
        (Message(role="user", content=[picture]), "messages[0].content"),
        (Message(role="tool", content="{}"), "messages[0].role"),
        (Message(role="assistant", content="x", thinking="y"), "messages[0].thinking"),
    ):
        outcome = await box.run(messages=[message])
        assert isinstance(outcome.error, EngineRefused)
        assert outcome.error.unsupported
        assert outcome.error.path == path


@pytest.mark.parametrize("form", ["json_object", "json_schema"])
async def test_a_form_of_the_answer_is_kept_or_refused_and_not_ignored(box, form):
    schema = JsonSchema(schema={"enum": ["red", "blue"]}) if form == "json_schema" else None
    wanted = ResponseFormat(type=form, json_schema=schema)
    outcome = await box.run(PROMPT, max_tokens=20, params=Params(response_format=wanted))
    if Feature.SCHEMA in box.pool.features:
        assert outcome.finished
    else:
        assert isinstance(outcome.error, EngineRefused)
        assert outcome.error.path == "params.response_format"


async def test_what_cannot_be_read_is_invalid(box):
    for given, path in (
        ({"model": "another"}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [Message(role="user")]}, "messages[0].content"),
        ({"prompt_tok_ids": []}, "prompt_token_ids"),
    ):
        if "prompt_tok_ids" in given and Feature.TOKEN_IDS not in box.pool.features:
            continue  # it takes none at all
        outcome = await box.run(**given)
        assert isinstance(outcome.error, EngineRefused)
        assert not outcome.error.unsupported
        assert outcome.error.path == path


async def test_embedding_is_unsupported(box):
    with pytest.raises(EngineRefused) as refused:
        await box.engine.embed(EmbedRequest(id=1, model=box.model, input=["a"]))
    assert refused.value.unsupported


async def test_questions_about_another_model_are_refused(box):
    with pytest.raises(EngineRefused):
        await box.engine.count("another", prompt="x")
    with pytest.raises(EngineUnavailable):
        await box.engine.load("another")


# --- many, and again ----------------------------------------------------------------------------


async def test_64_at_once_each_with_one_outcome(box):
    seats = box.pool.capacity.max_seqs
    outcomes = await asyncio.gather(
        *(box.run(f"Number {i}.", max_tokens=6, params=going_on(box)) for i in range(64))
    )
    served = [outcome for outcome in outcomes if outcome.error is None]
    assert all(outcome.finished.usage.output_tok == 6 for outcome in served)
    refused = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert {type(error) for error in refused} <= {EngineUnavailable}
    assert len(served) >= seats
    await box.all_told()
    again = await box.run(PROMPT)
    assert again.finished


async def test_what_runs_beside_a_cancelled_one_is_not_disturbed(box):
    alone = await box.run(PROMPT, max_tokens=20, params=going_on(box))
    stream = box.generate(box.request("Something else.", max_tokens=500, params=going_on(box)))
    await anext(stream)
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(box.run(PROMPT, max_tokens=20, params=going_on(box)))
        await anext(stream)
        await stream.aclose()
    assert beside.result().finished.usage.output_tok == alone.n_tok


@pytest.mark.parametrize("cut", [1, 7, 15])
async def test_resuming_by_ids_says_what_would_have_been_said(box, cut):
    whole = await box.run(PROMPT, max_tokens=24, params=Params(temperature=0.0, ignore_eos=True))
    seen = "".join(chunk.text for chunk in whole.of(EngineChunk)[:cut])
    rest = await box.run(
        PROMPT,
        max_tokens=24 - cut,
        resume_tok_ids=whole.ids[:cut],
        resume_shown_chars=len(seen),
        params=Params(temperature=0.0, ignore_eos=True),
    )
    assert rest.ids == whole.ids[cut:]
    assert seen + rest.text == whole.text
    assert rest.prompt_tok == whole.prompt_tok
    assert rest.finished.usage.output_tok == 24 - cut


async def test_stopped_again_and_again_it_says_the_same(box):
    """With its reader there, at any token, and each time gone on from all that came."""
    chance = random.Random(5)
    whole = await box.run(PROMPT, max_tokens=40, params=Params(temperature=0.0, ignore_eos=True))
    ids, text, runs = [], "", 0
    while len(ids) < 40:
        request = box.request(
            PROMPT,
            max_tokens=40 - len(ids),
            resume_tok_ids=ids or None,
            resume_shown_chars=len(text),
            params=Params(temperature=0.0, ignore_eos=True),
        )
        runs += 1
        stop_at = len(ids) + chance.randrange(1, 9)
        async for item in box.generate(request):
            if isinstance(item, EngineChunk):
                ids = ids + item.token_ids
                text += item.text
                if len(ids) >= stop_at:
                    box.engine.stop(request.id)
    assert runs > 1
    assert ids == whole.ids
    assert text == whole.text


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.0, "repeat_penalty": 1.3},
        {"temperature": 0.0, "presence_penalty": 1.0, "frequency_penalty": 1.0},
        {"temperature": 0.7, "seed": 7},
        {"temperature": 0.0, "min_tokens": 8},
        {"temperature": 0.0, "logprobs": True},
        {"temperature": 0.0, "response_format": ResponseFormat(type="json_object")},
    ],
    ids=lambda given: "-".join(given),
)
async def test_what_cannot_go_on_is_the_same_when_it_begins_anew(box, given):
    """What a preemption makes of it: stopped at any token, and asked again from its beginning."""
    params = Params(**given)
    whole = await box.run(PROMPT, max_tokens=12, params=params)
    if not given.keys() <= box.pool.params:
        assert isinstance(whole.error, EngineRefused)
        return
    request = box.request(PROMPT, max_tokens=12, params=params)
    chunks = 0
    async for item in box.generate(request):
        chunks += isinstance(item, EngineChunk)
        if chunks == 3:
            box.engine.stop(request.id)
    again = await box.run(PROMPT, max_tokens=12, params=params)
    assert chunks > 0
    assert whole.finished
    assert (again.text, again.ids) == (whole.text, whole.ids)


async def test_a_stop_string_across_the_cut_is_found(box):
    params = Params(temperature=0.0, ignore_eos=True)
    whole = await box.run(PROMPT, max_tokens=24, params=params)
    cut = 10
    edge = len("".join(chunk.text for chunk in whole.of(EngineChunk)[:cut]))
    stop = whole.text[edge - 3 : edge + 3]
    params = msgspec.structs.replace(params, stop=[stop])
    shown = whole.text[: edge - 3]
    rest = await box.run(
        PROMPT,
        max_tokens=14,
        resume_tok_ids=whole.ids[:cut],
        resume_shown_chars=len(shown),
        params=params,
    )
    if whole.text.index(stop) == edge - 3:
        assert rest.text == ""
    assert rest.finished.finish_reason is FinishReason.STOP


async def test_the_snapshot_tells_figures_and_their_age(box):
    await box.run(PROMPT, max_tokens=4)
    snapshot = box.engine.snapshot(box.model)
    assert snapshot.model == box.model
    assert snapshot.steps > 0
    assert snapshot.step_ms_p50 <= snapshot.step_ms_p95
    assert snapshot.rss_bytes > 1_000_000
    assert snapshot.age_ms >= 0
    await box.until(lambda: box.engine.snapshot(box.model).seats_used == 0)
    assert box.engine.snapshot(box.model).kv_tok_used == 0
    assert box.engine.snapshot("another") is None


async def test_a_pool_can_be_unloaded_and_loaded_again(box):
    stream = box.generate(box.request(PROMPT, max_tokens=500, params=going_on(box)))
    await anext(stream)
    async with asyncio.TaskGroup() as group:

        async def read():
            return [item async for item in stream]

        reader = group.create_task(read())
        await box.engine.unload(box.model)
    assert isinstance(reader.result()[-1], Stopped)
    assert box.pool.state is PoolState.COLD
    assert isinstance((await box.run(PROMPT)).error, EngineUnavailable)
    loads = box.pool.loads
    await box.engine.load(box.model)
    assert box.pool.state is PoolState.READY
    assert box.pool.loads == loads + 1
    await box.engine.load(box.model)
    assert box.pool.loads == loads + 1
    assert (await box.run(PROMPT)).finished
    assert box.of(SeatFreed)
