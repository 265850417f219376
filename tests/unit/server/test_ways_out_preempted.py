"""Every way out of a request that is stopped to make room for a better one, and what its client
sees of that.

After each: one outcome, one last word to the client, no permit held, and the seat free, or
quarantined until the engine confirms.
"""

from typing import Any

import pytest

from onegate.admission.model import RequestSpec
from onegate.engines.base import (
    EngineBroke,
    EngineChunk,
    EngineUnavailable,
    Feature,
    Finished,
    PoolState,
    Stopped,
)
from onegate.protocol import messages as m
from onegate.protocol.content import FinishReason, Params, Usage
from onegate.protocol.errors import NoticeCode, Phase, Reason
from onegate.server.outcome import DRAINED, Outcome

Case = Any  # of conftest.py
Run = Any

GREEDY = Params(temperature=0.0, max_tokens=9)
SAMPLED = Params(temperature=0.7, max_tokens=9)  # what is shown of it cannot be continued
PERSON = 99
A_PERSON = RequestSpec(
    rid=10**6,
    pool="tiny",
    class_="interactive",
    principal="uid:7",
    flow="f",
    prompt_tok=1,
    max_tok=1,
    arrived_ns=0,
)


def kinds(answers: list[Any]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


async def start(case: Case, params: Params = GREEDY, **fields: Any) -> Run:
    """The subject's request, which may be stopped, at the engine."""
    return await case.start(params=params, class_="batch", **fields)


async def need_room(case: Case, *stops: Run) -> None:
    """A person comes, and finds no seat."""
    await case.box.ask(case.holder, PERSON, class_="interactive")
    assert case.box.engine.stops == [run.id for run in stops]


async def stopped(case: Case, run: Run) -> Run:
    """The engine has stopped it, and runs the person's request; returns that."""
    before = len(case.box.engine.runs)
    case.box.free(run)
    run.say(Stopped())
    await case.box.quiet()
    assert len(case.box.engine.runs) == before + 1
    case.box.gate.validate()
    return case.box.engine.runs[-1]


async def goes_on(case: Case, person: Run) -> Run:
    """The person is served; returns the next run of the subject's request."""
    await case.leave(person)
    await case.box.quiet()
    case.holder.heard()  # so that it may use its id again
    assert case.box.engine.runs[-1] is not person
    case.box.gate.validate()
    return case.box.engine.runs[-1]


async def preempted(case: Case, run: Run) -> Run:
    """Stopped, and the person served meanwhile; returns the next run."""
    await need_room(case, run)
    return await goes_on(case, await stopped(case, run))


async def serve(case: Case, run: Run) -> None:
    """The engine confirms that the subject's run is over, and the person is served."""
    case.box.free(run)
    await case.box.quiet()
    assert case.box.engine.runs[-1] is not run
    await case.leave(case.box.engine.runs[-1])


# --- what the client sees -------------------------------------------------------------------------


async def test_an_exact_one_goes_on_where_it_was(case: Case) -> None:
    run = await start(case)
    run.accept()
    run.say(EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    await case.box.quiet()
    await need_room(case, run)
    run.say(EngineChunk(n_tok=1, text="c", token_ids=[7]))  # before it heard of it
    person = await stopped(case, run)
    assert kinds(case.listen()) == ["Started", "Chunk", "Chunk", "Paused"]
    (live,) = (live for live in case.box.services.live if live.class_ == "batch")
    assert live.phase is Phase.QUEUED
    again = await goes_on(case, person)
    assert live.phase is Phase.GRANTED
    assert again.request.resume_tok_ids == [66, 101, 7]
    assert again.request.resume_shown_chars == 3
    assert again.request.max_tokens == 6
    again.say(EngineChunk(n_tok=1, text="ause", token_ids=[8]))
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)
    assert kinds(case.heard[4:]) == ["Resumed", "Chunk", "Done"]
    done = case.heard[-1]
    assert (done.usage.output_tok, done.timings.preempted) == (4, 1)
    assert done.notices == []
    account = case.box.services.accounts.of("batch")
    assert (account.preempted, account.discarded_tok) == (1, 0)


async def test_the_core_knows_what_an_exact_one_has_kept(case: Case) -> None:
    run = await start(case)
    run.accept(prompt_tok=5)
    run.chunk("abc", n_tok=3)
    await case.box.quiet()
    await preempted(case, run)
    assert case.box.pool.unprefilled_tok == 8  # the prompt, and what it has said
    case.cancel()
    await case.cancelled(Phase.GRANTED, quarantined=1)


async def test_stopped_again_and_again(case: Case) -> None:
    run = await start(case)
    for times in range(3):
        run.say(EngineChunk(n_tok=1, text="x", token_ids=[times]))
        await case.box.quiet()
        case.box.engine.stops.clear()
        run = await preempted(case, run)
        assert run.request.resume_tok_ids == list(range(times + 1))
        assert run.request.max_tokens == 9 - (times + 1)
    run.finish()
    await case.box.quiet()
    done = case.listen()[-1]
    assert (done.timings.preempted, done.usage.output_tok) == (3, 3)
    assert case.box.services.accounts.of("batch").preempted == 3
    assert case.box.services.reporter.status().classes[2].preempted == 3


async def test_without_a_stream_it_begins_anew(case: Case) -> None:
    run = await start(case, SAMPLED, stream=False)
    run.say(EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    await case.box.quiet()
    again = await preempted(case, run)
    assert again.request.resume_tok_ids is None
    assert (again.request.resume_shown_chars, again.request.max_tokens) == (0, 9)
    again.say(EngineChunk(n_tok=1, text="Since", token_ids=[9]))
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)
    assert kinds(case.heard) == ["Started", "Paused", "Resumed", "Chunk", "Done"]
    assert (case.heard[-2].text, case.heard[-1].usage.output_tok) == ("Since", 1)
    account = case.box.services.accounts.of("batch")
    assert (account.preempted, account.discarded_tok) == (1, 2)


async def test_what_nobody_has_seen_yet_stays_unseen(case: Case) -> None:
    """Text between the word to stop and the end of that is held back: another follows it."""
    run = await start(case, SAMPLED)
    await need_room(case, run)
    run.say(EngineChunk(n_tok=2, text="Be", token_ids=[66, 101]))
    person = await stopped(case, run)
    assert kinds(case.listen()) == ["Started", "Paused"]
    again = await goes_on(case, person)
    assert again.request.resume_tok_ids is None
    again.say(EngineChunk(n_tok=1, text="Since", token_ids=[9]))
    await case.box.quiet()
    assert kinds(case.listen()) == ["Resumed", "Chunk"]  # it streams again
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)
    assert [x.text for x in case.heard if isinstance(x, m.Chunk)] == ["Since"]


async def test_what_was_held_back_is_shown_where_it_finishes_first(case: Case) -> None:
    run = await start(case, SAMPLED)
    await need_room(case, run)
    run.chunk("Because.", n_tok=3)
    run.finish()
    await case.box.quiet()
    _started, chunk, done = case.listen()
    assert (chunk.text, chunk.n_tok) == ("Because.", 3)
    assert (done.usage.output_tok, done.timings.preempted) == (3, 0)
    assert case.box.services.accounts.of("batch").preempted == 0
    await serve(case, run)
    case.box.all_is_given_back()


@pytest.mark.parametrize(
    ("fields", "features"),
    [
        ({"params": SAMPLED}, None),
        ({"params": Params(temperature=0.0, max_tokens=9, presence_penalty=0.5)}, None),
        ({"params": Params(temperature=0.0, max_tokens=9, min_tokens=2)}, None),
        ({"params": GREEDY}, frozenset({Feature.ABORT})),
        ({"params": GREEDY, "stream": False}, frozenset()),
    ],
)
async def test_not_stopped_where_somebody_would_see_it(
    case: Case, fields: dict[str, Any], features: frozenset[Feature] | None
) -> None:
    if features is not None:
        case.box.change(features=features)
    run = await case.start(class_="batch", **fields)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case)
    run.finish()
    await case.box.quiet()
    assert kinds(case.listen())[-1] == "Done"
    await serve(case, run)
    case.box.all_is_given_back()


# --- the engine -----------------------------------------------------------------------------------


async def test_finished_in_the_same_step(case: Case) -> None:
    run = await start(case)
    run.chunk("Because.")
    await need_room(case, run)
    run.finish()
    await serve(case, run)
    await case.ended(Outcome.FINISHED)
    assert "Paused" not in kinds(case.heard)


async def test_said_all_that_it_may_and_was_stopped(case: Case) -> None:
    run = await start(case)
    run.chunk("x" * 9, n_tok=9)
    await case.box.quiet()
    await need_room(case, run)
    person = await stopped(case, run)
    await case.leave(person)
    assert len(case.box.engine.runs) == 2  # there is nothing left to run
    await case.ended(Outcome.FINISHED)
    assert case.heard[-1].finish_reason is FinishReason.LENGTH


async def test_the_word_comes_before_its_seat_is_free(case: Case) -> None:
    run = await start(case)
    for _ in range(2):
        run.chunk("Be")
        await case.box.quiet()
        case.box.engine.stops.clear()
        await need_room(case, run)
        run.say(Stopped())
        await case.box.quiet()
        assert kinds(case.listen())[-1] == "Paused"  # at once: nothing more comes
        assert case.box.engine.runs[-1] is run
        assert case.box.gate.view().queued == 1
        case.box.free(run)
        await case.box.quiet()
        run = await goes_on(case, case.box.engine.runs[-1])
    run.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
async def test_engine_dies_while_it_stops(case: Case, params: Params) -> None:
    run = await start(case, params)
    if params is GREEDY:
        run.chunk("Be", n_tok=2)
        await case.box.quiet()
    await need_room(case, run)
    run.chunk("c")
    case.box.lose(run)
    run.say(EngineBroke("it died"))
    await case.box.quiet()
    assert case.box.gate.view().queued == 2
    case.box.gate.validate()
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = await goes_on(case, case.box.engine.runs[-1])
    assert again.request.resume_tok_ids == ([66, 101, 99] if params is GREEDY else None)
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)
    done = case.heard[-1]
    assert [notice.code for notice in done.notices] == [NoticeCode.ENGINE_RESTARTED]
    assert case.box.services.accounts.of("batch").preempted == 0


async def test_engine_dies_before_its_seat_is_free(case: Case) -> None:
    run = await start(case)
    await need_room(case, run)
    run.say(Stopped())
    await case.box.quiet()
    case.box.lose(run)
    await case.box.quiet()
    assert case.box.gate.view().queued == 2
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = await goes_on(case, case.box.engine.runs[-1])
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_engine_is_away_when_it_would_go_on(case: Case) -> None:
    run = await start(case)
    run.chunk("Be", n_tok=2)
    await case.box.quiet()
    await need_room(case, run)
    person = await stopped(case, run)

    def away(request: object) -> None:
        case.box.engine.on_generate = lambda request: None
        raise EngineUnavailable("not connected")

    case.box.engine.on_generate = away
    again = await goes_on(case, person)
    assert again.request.resume_tok_ids == [66, 101]
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_stopping_does_not_count_as_a_death(case: Case) -> None:
    run = await start(case)
    for _ in range(4):
        case.box.engine.stops.clear()
        run = await preempted(case, run)
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    case.box.engine.runs[-1].finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_asked_to_stop_before_it_came_to_the_engine(case: Case) -> None:
    """It is granted, and before it runs a person comes."""
    box = case.box
    run = await case.wait(class_="batch")
    box.free(run)
    run.finish()
    async with box.gate.admit(A_PERSON, lambda refusal: None):
        await box.quiet()
        assert kinds(case.listen()) == ["Started", "Paused"]
        assert len(box.engine.runs) == 1
        assert box.engine.stops == []
        box.gate.validate()
    await box.quiet()
    assert kinds(case.listen()) == ["Resumed"]
    box.engine.runs[-1].finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_asked_to_stop_before_it_came_there_again(case: Case) -> None:
    """Nothing of it runs, so there is nothing to be stopped."""
    box = case.box
    run = await start(case)
    await need_room(case, run)
    person = await stopped(case, run)
    person.finish()
    await box.quiet()
    box.free(person)
    async with box.gate.admit(A_PERSON, lambda refusal: None):
        await box.quiet()
        assert box.engine.stops == [run.id]
    await box.quiet()
    box.engine.runs[-1].finish()
    await case.ended(Outcome.FINISHED, quarantined=1)
    assert case.heard[-1].timings.preempted == 2


# --- the client -----------------------------------------------------------------------------------


async def test_cancelled_while_it_is_stopped(case: Case) -> None:
    run = await start(case)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case, run)
    case.cancel()
    await case.box.quiet()
    assert case.box.pool.seats_quarantined == 1
    await serve(case, run)
    await case.cancelled(Phase.DECODE)


async def test_gone_while_it_is_stopped(case: Case) -> None:
    run = await start(case)
    await need_room(case, run)
    case.subject.hang_up()
    await case.box.quiet()
    await serve(case, run)
    await case.gone()


async def test_stopped_and_cancelled_in_one_turn(case: Case) -> None:
    run = await start(case)
    await need_room(case, run)
    case.box.free(run)
    run.say(Stopped())
    case.cancel()
    await case.box.quiet()
    await case.leave(case.box.engine.runs[-1])
    await case.cancelled(Phase.GRANTED)


@pytest.mark.parametrize("leave", ["cancel", "hang up"])
async def test_left_before_its_seat_is_free(case: Case, leave: str) -> None:
    run = await start(case)
    await need_room(case, run)
    run.say(Stopped())
    await case.box.quiet()
    case.cancel() if leave == "cancel" else case.subject.hang_up()
    await case.box.quiet()
    assert case.box.gate.view().in_flight == 0
    await serve(case, run)
    if leave == "cancel":
        await case.cancelled(Phase.QUEUED)
    else:
        await case.gone()


@pytest.mark.parametrize("leave", ["cancel", "hang up"])
async def test_left_while_it_waits_again(case: Case, leave: str) -> None:
    run = await start(case)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case, run)
    person = await stopped(case, run)
    case.cancel() if leave == "cancel" else case.subject.hang_up()
    await case.box.quiet()
    case.box.gate.validate()
    assert case.box.gate.view().queued == 0
    await case.leave(person)
    if leave == "cancel":
        await case.cancelled(Phase.QUEUED)
    else:
        await case.gone()


# --- time -----------------------------------------------------------------------------------------


async def test_out_of_time_while_it_is_stopped(case: Case) -> None:
    run = await start(case, timeout_ms=1000)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case, run)
    case.box.skip(1)
    await case.box.quiet()
    await serve(case, run)
    await case.ended(Outcome.ABORTED, Reason.DEADLINE_EXCEEDED, Phase.DECODE)


async def test_out_of_time_in_the_moment_in_which_it_stops(case: Case) -> None:
    """Its own last token shows that it is late; the cancellation has not come through when the
    engine's word is read."""
    run = await start(case, timeout_ms=1000)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case, run)
    case.box.free(run)
    case.box.skipped_ns = 1_000_000_000
    run.chunk("c")
    run.say(Stopped())
    await case.box.quiet()
    await case.leave(case.box.engine.runs[-1])
    await case.ended(Outcome.ABORTED, Reason.DEADLINE_EXCEEDED, Phase.DECODE)


async def test_out_of_time_before_its_seat_is_free(case: Case) -> None:
    run = await start(case, timeout_ms=1000)
    await need_room(case, run)
    run.say(Stopped())
    await case.box.quiet()
    case.box.skip(1)
    await case.box.quiet()
    await serve(case, run)
    await case.ended(Outcome.ABORTED, Reason.DEADLINE_EXCEEDED, Phase.QUEUED)


async def test_out_of_time_while_it_waits_again(case: Case) -> None:
    run = await start(case, timeout_ms=1000)
    await need_room(case, run)
    person = await stopped(case, run)
    case.box.skip(1)
    await case.box.quiet()
    await case.leave(person)
    await case.ended(Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED, Phase.QUEUED)


async def test_the_wait_for_a_first_token_is_not_counted_twice(case: Case) -> None:
    """Its own ttft was kept by the grant; stopped, it is not refused for what others cause."""
    run = await start(case, SAMPLED, ttft_timeout_ms=1000)
    await need_room(case, run)
    person = await stopped(case, run)
    case.box.skip(2)
    await case.box.quiet()
    again = await goes_on(case, person)
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


# --- drain ----------------------------------------------------------------------------------------


async def test_drained_while_it_is_stopped(case: Case) -> None:
    run = await start(case)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case, run)
    case.box.gate.drain()
    run.say(Stopped())
    await case.box.quiet()
    case.box.free(run)
    await case.box.quiet()
    assert case.holder.heard()[-1].reason is Reason.SHUTTING_DOWN
    await finish_again(case, run)


async def test_drained_while_it_waits_again(case: Case) -> None:
    run = await start(case)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case, run)
    person = await stopped(case, run)
    case.box.gate.drain()
    await case.box.quiet()
    assert kinds(case.listen())[-1] == "Paused"
    await case.leave(person)
    await finish_again(case, run)


async def finish_again(case: Case, run: Run) -> None:
    """It goes on where it was, and is done."""
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    assert again is not run
    assert again.request.resume_shown_chars == 2
    again.chunk("c")
    again.finish(n_tok=3)
    await case.box.quiet()
    case.listen()
    assert "".join(x.text for x in case.heard if isinstance(x, m.Chunk)) == "Bec"
    assert isinstance(case.heard[-1], m.Done)
    case.box.free(again)
    case.box.all_is_given_back()


@pytest.mark.parametrize("leaves", [True, False])
async def test_at_the_end_of_the_drain_while_it_waits_again(case: Case, leaves: bool) -> None:
    run = await start(case)
    run.chunk("Be")
    await case.box.quiet()
    await need_room(case, run)
    person = await stopped(case, run)
    case.box.gate.drain()
    await case.box.quiet()
    for live in case.box.services.live:
        if live.class_ == "batch":
            live.end(DRAINED)
    if leaves:  # in the same turn, so that it has its seat again
        person.finish()
    await case.box.quiet()
    case.listen()
    assert (case.heard[-1].reason, case.heard[-1].phase) == (Reason.SHUTTING_DOWN, Phase.QUEUED)
    if not leaves:
        person.finish()
        await case.box.quiet()
    case.box.free(person)
    case.box.all_is_given_back()


async def test_the_engines_end_of_it_is_the_whole_of_it(case: Case) -> None:
    """What the engine counted of its last run is not what the client is told."""
    run = await start(case)
    run.chunk("Be", n_tok=2)
    await case.box.quiet()
    again = await preempted(case, run)
    again.chunk("c")
    usage = Usage(prompt_tok=5, output_tok=1)
    again.say(Finished(finish_reason=FinishReason.STOP, usage=usage))
    await case.box.quiet()
    assert case.listen()[-1].usage == Usage(prompt_tok=5, output_tok=3)
