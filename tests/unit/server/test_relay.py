"""What passes between a granted request and the engine, and what an engine's death means for it."""

import asyncio
from typing import Any

import msgspec
import pytest

from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    Feature,
    Finished,
    PoolState,
    Progress,
)
from onegate.protocol import messages as m
from onegate.protocol.content import FinishReason, Params, Usage
from onegate.protocol.errors import NoticeCode, Phase, Reason
from onegate.server.gate import Permit

Case = Any  # of conftest.py

SAMPLED = Params(temperature=0.7)  # what is lost of it cannot be continued


def kinds(answers: list[Any]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


async def test_an_answer(case: Case) -> None:
    run = await case.start(params=Params(max_tokens=9), class_="batch")
    assert run.request.max_tokens == 9
    assert run.request.prompt == "why?"
    assert run.request.cache_salt == "uid:1001"
    assert (run.request.rank, run.request.fit_max_tokens) == (2, False)
    (live,) = case.box.services.live
    run.accept(prompt_tok=12)
    await case.box.quiet()
    assert (live.phase, live.prompt_tok) == (Phase.PREFILL, 12)
    assert case.box.pool.kv_tok_used == 12 + 9
    run.say(EngineChunk(n_tok=2, text="Be"), EngineChunk(n_tok=1, text="cause"))
    run.finish()
    await case.box.quiet()
    started, first, second, done = case.listen()
    assert (started.id, started.rid) == (1, live.rid)
    assert started.queue_ms >= 0
    assert (first.text, first.n_tok, second.text) == ("Be", 2, "cause")
    assert (done.rid, done.finish_reason) == (live.rid, FinishReason.STOP)
    assert (done.usage.prompt_tok, done.usage.output_tok) == (5, 3)
    assert done.identity.engine == "played"
    assert done.notices == []
    assert done.timings.preempted == 0


async def test_the_core_hears_which_permits_finished(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[bool] = []
    settle = Permit.settle

    def note(self: Permit, *, finished: bool) -> None:
        settled.append(finished)
        settle(self, finished=finished)

    monkeypatch.setattr(Permit, "settle", note)
    run = await case.start()
    run.finish()
    await case.box.quiet()
    assert settled[0] is True
    settled.clear()
    case.box.free(run)
    await case.box.run(case.subject, 2)
    case.subject.say(m.Cancel(id=2))
    await case.box.quiet()
    assert settled == [False]


async def test_prefill_makes_room_for_the_next_prompt(box: Any) -> None:
    box.change(capacity=msgspec.structs.replace(box.engine.infos["tiny"].capacity, max_step_tok=64))
    client = box.greeted()
    run = await box.run(client, 1, prompt="x" * 120)
    await box.ask(client, 2, prompt="x" * 120)
    assert box.gate.view().queued == 1
    run.say(Progress(prefilled_tok=56))
    await box.quiet()
    assert box.gate.view().queued == 0


async def test_what_the_engine_counted_is_learned(case: Case) -> None:
    sizes = case.box.services.sizes
    before = sizes.estimate("tiny", 3000, 1)
    run = await case.start(prompt="x" * 3000)
    run.accept(prompt_tok=3000)
    await case.box.quiet()
    assert sizes.estimate("tiny", 3000, 1) > before


async def test_what_was_predicted_is_held_against_what_came(case: Case) -> None:
    holder = await case.wait()
    (permit,) = case.box.gate._waiting.values()
    permit.predicted_ns = 3_000_000_000
    case.box.skip(5)
    await case.leave(holder)
    await case.box.quiet()
    run = case.box.engine.runs[-1]
    run.chunk("Because.")
    run.finish()
    await case.box.quiet()
    assert case.listen()[-1].timings.predicted_wait_ms == 3000
    case.holder.heard()
    account = case.box.services.accounts.of("loop")
    errors = dict(account.ttft_error.buckets())
    # Two seconds later; the one that had a seat at once was not predicted.
    assert (errors["1.0"], errors["+Inf"]) == (0, 1)


async def test_an_engine_that_does_not_count_teaches_nothing(case: Case) -> None:
    run = await case.start(prompt="x" * 3000)
    (live,) = case.box.services.live
    estimated = live.prompt_tok
    run.say(Accepted())
    await case.box.quiet()
    assert (live.prompt_tok, live.phase) == (estimated, Phase.PREFILL)


@pytest.mark.parametrize(("said", "charged"), [(700, 700), (10**9, 4096), (0, None)])
async def test_a_prompt_that_is_counted_at_the_end_is_charged_as_that(
    case: Case, said: int, charged: int | None
) -> None:
    run = await case.start(prompt="x" * 3000)
    (live,) = case.box.services.live
    estimated = live.prompt_tok
    run.say(Accepted())
    run.chunk("y")
    usage = Usage(prompt_tok=said, output_tok=1)
    run.say(Finished(finish_reason=FinishReason.STOP, usage=usage))
    await case.box.quiet()
    assert live.prompt_tok == (charged or estimated)
    assert case.box.services.accounts.of("loop").prompt_tok == (charged or estimated)
    case.box.all_is_given_back()


async def test_a_pool_without_identity_answers_as_unknown(case: Case) -> None:
    case.box.engine.infos["tiny"] = msgspec.structs.replace(
        case.box.engine.infos["tiny"], identity=None
    )
    run = await case.start()
    run.finish()
    await case.box.quiet()
    identity = case.listen()[-1].identity
    assert (identity.engine, identity.model, identity.boundary) == ("unknown", "tiny", "unknown")


async def test_where_text_goes_is_looked_at_when_it_goes_there(make_box: Any) -> None:
    box = make_box('[[class]]\nname = "loop"\nrefuse_on = ["boundary"]\n')
    here = msgspec.structs.replace(box.engine.infos["tiny"].identity, boundary="local")
    box.change(identity=here)
    clients = [box.greeted(uid=1000 + i) for i in range(3)]
    first, second = [await box.run(client, class_="loop") for client in clients[:2]]
    await box.ask(clients[2], class_="loop")
    assert box.gate.view().queued == 1
    box.change(identity=msgspec.structs.replace(here, boundary="remote"))
    first.finish()
    await box.quiet()
    box.free(first)
    await box.quiet()
    failed = clients[2].heard()[-1]
    assert (failed.reason, failed.retryable) == (Reason.BOUNDARY_REFUSED, False)
    assert len(box.engine.runs) == 2  # nothing of it was sent
    second.finish()
    await box.quiet()
    box.free(second)
    box.all_is_given_back()


async def test_whether_a_prompt_may_be_cut_is_looked_at_when_it_is_sent(make_box: Any) -> None:
    box = make_box('[[class]]\nname = "loop"\nrefuse_on = ["truncated"]\n')
    box.change(features=box.engine.infos["tiny"].features | {Feature.WHOLE_PROMPTS})
    clients = [box.greeted(uid=1000 + i) for i in range(3)]
    first, second = [await box.run(client, class_="loop") for client in clients[:2]]
    await box.ask(clients[2], class_="loop")
    assert box.gate.view().queued == 1
    box.change(features=box.engine.infos["tiny"].features - {Feature.WHOLE_PROMPTS})
    first.finish()
    await box.quiet()
    box.free(first)
    await box.quiet()
    assert clients[2].heard()[-1].reason == Reason.DEGRADED_REFUSED
    assert len(box.engine.runs) == 2  # nothing of it was sent
    second.finish()
    await box.quiet()
    box.free(second)
    box.all_is_given_back()


async def test_a_resumed_stream_goes_on_where_it_was(case: Case) -> None:
    run = await case.start(params=Params(temperature=0.0, max_tokens=5))
    run.say(EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    await case.box.quiet()
    await case.requeue(run)
    assert kinds(case.listen()) == ["Started", "Chunk", "Paused"]
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    assert again.request.resume_tok_ids == [66, 101]
    assert again.request.resume_shown_chars == 2
    assert again.request.max_tokens == 3
    again.say(EngineChunk(n_tok=1, text="cause", token_ids=[9]))
    again.finish()
    await case.box.quiet()
    resumed, chunk, done = case.listen()
    assert kinds([resumed, chunk, done]) == ["Resumed", "Chunk", "Done"]
    assert chunk.text == "cause"
    assert done.usage.output_tok == 3
    assert done.timings.preempted == 1
    assert [notice.code for notice in done.notices] == [NoticeCode.ENGINE_RESTARTED]


def computed(case: Case) -> tuple[int | None, int, int]:
    """Of the request that has ended: cached, computed again, made for nothing."""
    (row,) = case.box.services.usage.rows()
    cached_tok = row.cached_tok if row.told_tok else None
    return cached_tok, row.recomputed_tok, row.discarded_tok


@pytest.mark.parametrize(("cached_tok", "again"), [(None, 21), (0, 21), (16, 5), (22, 0)])
async def test_what_was_computed_of_a_resumed_stream(
    case: Case, cached_tok: int | None, again: int
) -> None:
    run = await case.start(params=Params(temperature=0.0, max_tokens=5))
    run.say(Accepted(prompt_tok=20, cached_tok=8), Progress(prefilled_tok=12))
    run.say(EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    await case.box.quiet()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    more = case.box.engine.runs[-1]
    more.say(Accepted(prompt_tok=20, cached_tok=cached_tok))
    more.say(EngineChunk(n_tok=1, text="cause", token_ids=[9]))
    more.finish()
    await case.box.quiet()
    assert case.listen()[-1].timings.cached_tok == 8
    assert computed(case) == (8, again, 0)


async def test_what_was_computed_of_one_that_begins_anew(case: Case) -> None:
    run = await case.start(params=SAMPLED, stream=False)
    run.say(Accepted(prompt_tok=20), EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    await case.box.quiet()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    again.say(Accepted(prompt_tok=20), Progress(prefilled_tok=15))
    await case.box.quiet()
    case.cancel()
    await case.box.quiet()
    assert computed(case) == (None, 15, 2)


async def test_some_engines_say_at_the_end_what_they_had(case: Case) -> None:
    run = await case.start()
    run.accept(prompt_tok=20)
    run.chunk("Because.")
    usage = Usage(prompt_tok=20, output_tok=1)
    run.say(Finished(finish_reason=FinishReason.STOP, usage=usage, cached_tok=13))
    await case.box.quiet()
    assert case.listen()[-1].timings.cached_tok == 13
    assert computed(case) == (13, 0, 0)


async def test_what_nobody_has_seen_begins_anew(case: Case) -> None:
    run = await case.start(params=SAMPLED, stream=False)
    run.say(EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    await case.box.quiet()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    assert again.request.resume_tok_ids is None
    assert again.request.resume_shown_chars == 0
    assert again.request.max_tokens == run.request.max_tokens
    again.say(EngineChunk(n_tok=1, text="Since", token_ids=[9]))
    again.finish()
    await case.box.quiet()
    *_, chunk, done = case.listen()
    assert (chunk.text, done.usage.output_tok) == ("Since", 1)


async def test_lost_between_the_last_token_and_the_end(case: Case) -> None:
    run = await case.start(params=Params(temperature=0.0, max_tokens=2))
    run.say(EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    await case.box.quiet()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    assert len(case.box.engine.runs) == 1
    done = case.listen()[-1]
    assert (done.finish_reason, done.usage.output_tok) == (FinishReason.LENGTH, 2)
    case.box.all_is_given_back()
    assert case.box.pool.seats_used == 0


async def test_in_flight_at_two_deaths_is_not_tried_again(case: Case) -> None:
    run = await case.start()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    case.box.lose(again)
    again.say(EngineBroke("it died again"))
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    assert len(case.box.engine.runs) == 2
    failed = case.listen()[-1]
    assert (failed.reason, failed.retryable) == (Reason.ENGINE_FAILED, False)


async def test_an_engine_that_fails_one_request_may_be_tried_again(case: Case) -> None:
    run = await case.start()
    run.say(EngineBroke("it could not go on"))
    await case.box.quiet()
    assert case.listen()[-1].retryable is True


@pytest.mark.parametrize("said", ["prompt", "piece", "sum"])
async def test_tokens_that_cannot_be_are_counted_for_nobody(case: Case, said: str) -> None:
    """A floor would pay for them, before everybody who waits."""
    run = await case.start(params=Params(max_tokens=4), class_="interactive")
    context_tok = case.box.engine.infos["tiny"].capacity.max_context_tok
    match said:
        case "prompt":
            run.say(Accepted(prompt_tok=context_tok + 1))
        case "piece":
            run.say(EngineChunk(n_tok=2**32 - 1, text="Be"))
        case "sum":
            run.say(EngineChunk(n_tok=4, text="Be"), EngineChunk(n_tok=1, text="cause"))
    await case.box.quiet()
    failed = case.listen()[-1]
    assert failed.reason is Reason.ENGINE_FAILED
    assert "the engine says" in failed.message
    (row,) = case.box.services.usage.rows()
    assert row.output_tok == (4 if said == "sum" else 0)
    case.box.all_is_given_back()


async def test_an_engine_may_use_all_that_it_was_given(case: Case) -> None:
    run = await case.start(params=Params(max_tokens=4))
    run.accept(prompt_tok=case.box.engine.infos["tiny"].capacity.max_context_tok)
    run.say(EngineChunk(n_tok=4, text="Because."))
    run.finish()
    await case.box.quiet()
    assert case.listen()[-1].usage.output_tok == 4


async def test_an_engine_that_is_away_is_tried_three_times(case: Case) -> None:
    tried = []

    def away(request: object) -> None:
        tried.append(request)
        raise EngineUnavailable("not connected")

    case.box.engine.on_generate = away
    await case.box.ask(case.subject)
    assert len(tried) == 3
    failed = case.listen()[-1]
    assert (failed.retryable, failed.retry_after_ms) == (True, None)


async def test_when_to_come_back_as_the_engine_says(case: Case) -> None:
    def busy(request: object) -> None:
        raise EngineUnavailable("busy", retry_after_ms=1500.2)

    case.box.engine.on_generate = busy
    await case.box.ask(case.subject)
    failed = case.listen()[-1]
    assert (failed.reason, failed.retryable) == (Reason.ENGINE_UNAVAILABLE, True)
    assert failed.retry_after_ms == 1501


async def test_the_engine_comes_back_in_time(case: Case) -> None:
    def away(request: object) -> None:
        case.box.engine.on_generate = lambda request: None
        raise EngineUnavailable("not connected")

    case.box.engine.on_generate = away
    run = await case.start()
    run.finish()
    await case.box.quiet()
    assert kinds(case.listen()) == ["Started", "Paused", "Resumed", "Done"]


async def test_too_large_says_both_numbers(case: Case) -> None:
    run = await case.start()
    run.say(EngineTooLarge(need_tok=5000, limit_tok=4096))
    await case.box.quiet()
    failed = case.listen()[-1]
    assert (failed.used, failed.limit) == (5000, 4096)


async def test_a_refusal_of_the_engine_names_the_field(case: Case) -> None:
    run = await case.start()
    run.say(EngineRefused("no such schema", path="params.response_format"))
    await case.box.quiet()
    failed = case.listen()[-1]
    assert (failed.path, failed.message) == ("params.response_format", "no such schema")


async def test_the_permit_comes_back_though_the_engine_hangs(case: Case) -> None:
    never = asyncio.get_running_loop().create_future()

    async def hang() -> None:
        await never

    run = await case.start(timeout_ms=1000)
    run.on_close = hang
    case.cancel()
    await case.box.quiet()
    assert case.box.gate.view().in_flight == 1  # the engine does not even close
    case.box.skip(1)
    case.box.gate.validate()
    assert case.box.gate.view().in_flight == 0
    assert case.box.pool.seats_quarantined == 1
    never.set_result(None)
    await case.box.quiet()
    case.box.all_is_given_back()


async def test_a_quarantined_seat_is_given_to_nobody(case: Case) -> None:
    run = await case.start()
    case.cancel()
    await case.box.quiet()
    await case.box.ask(case.subject, 2)
    assert case.box.gate.view().queued == 1
    assert len(case.box.engine.runs) == 1
    case.box.free(run)
    await case.box.quiet()
    assert len(case.box.engine.runs) == 2


async def test_a_confirmation_that_comes_after_the_loss_frees_nothing(case: Case) -> None:
    run = await case.start()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    assert case.box.pool.seats_used == 1
    case.box.free(run)
    assert case.box.pool.seats_used == 1


async def test_a_failure_right_after_the_abort_is_the_abort(case: Case) -> None:
    run = await case.start(timeout_ms=1000)
    case.box.skipped_ns = 1_000_000_000  # nobody has been told yet
    run.chunk("Be")
    run.say(EngineUnavailable("gone"))
    await case.box.quiet()
    assert case.listen()[-1].reason is Reason.DEADLINE_EXCEEDED
    case.box.all_is_given_back()
