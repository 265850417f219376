"""Every way out of a request that has a permit.

After each: one outcome, one last word to the client, one line in the log, no permit held, and the
seat free, or quarantined until the engine confirms.
"""

from typing import Any

from onegate.engines.base import (
    EngineBroke,
    EngineMalformed,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    PoolState,
    Stopped,
)
from onegate.protocol import messages as m
from onegate.protocol.content import Params
from onegate.protocol.errors import Phase, Reason
from onegate.server.outcome import DRAINED, Outcome

Case = Any  # of conftest.py

SAMPLED = Params(temperature=0.7)  # what is lost of it cannot be continued
GREEDY = Params(temperature=0.0)


class Torn(BaseException):
    """Nothing that any code expects."""


# --- the engine -----------------------------------------------------------------------------------


async def test_finished(case: Case) -> None:
    run = await case.start()
    run.accept()
    run.chunk("Because.")
    run.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_seat_freed_before_the_end_is_read(case: Case) -> None:
    run = await case.start()
    run.chunk("Because.")
    run.finish()
    case.box.free(run)
    await case.ended(Outcome.FINISHED)


async def test_engine_refuses(case: Case) -> None:
    run = await case.start()
    run.say(EngineRefused("no such schema", path="params.response_format"))
    await case.ended(Outcome.REJECTED, Reason.INVALID, Phase.GRANTED, quarantined=1)


async def test_engine_does_not_support_it(case: Case) -> None:
    run = await case.start()
    run.say(EngineRefused("no tools here", unsupported=True))
    await case.ended(Outcome.REJECTED, Reason.UNSUPPORTED, Phase.GRANTED, quarantined=1)


async def test_engine_finds_it_too_large(case: Case) -> None:
    run = await case.start()
    run.say(EngineTooLarge(need_tok=5000, limit_tok=4096))
    await case.ended(Outcome.REJECTED, Reason.TOO_LARGE, Phase.GRANTED, quarantined=1)


async def test_engine_refuses_before_it_is_read(case: Case) -> None:
    def refuse(request: object) -> None:
        raise EngineRefused("not like this")

    case.box.engine.on_generate = refuse
    await case.box.ask(case.subject)
    await case.ended(Outcome.REJECTED, Reason.INVALID, Phase.GRANTED)


async def test_engine_fails_the_request(case: Case) -> None:
    run = await case.start()
    run.chunk("Be")
    run.say(EngineBroke("it could not go on"))
    await case.ended(Outcome.FAILED, Reason.ENGINE_FAILED, Phase.DECODE, quarantined=1)


async def test_engine_dies_before_the_first_token(case: Case) -> None:
    run = await case.start(params=SAMPLED)
    run.accept()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    assert again.id != run.id
    again.chunk("Because.")
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_engine_dies_mid_stream(case: Case) -> None:
    run = await case.start(params=SAMPLED)
    run.chunk("Be")
    await case.box.quiet()
    case.box.lose(run)
    run.say(EngineBroke("it died"))
    await case.ended(Outcome.FAILED, Reason.ENGINE_FAILED, Phase.DECODE)


async def test_engine_dies_mid_stream_and_is_resumed(case: Case) -> None:
    run = await case.start(params=GREEDY)
    run.chunk("Be")
    await case.box.quiet()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    again.chunk("cause.")
    again.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_engine_dies_twice(case: Case) -> None:
    run = await case.start()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    again = case.box.engine.runs[-1]
    case.box.lose(again)
    again.say(EngineBroke("it died again"))
    await case.ended(Outcome.FAILED, Reason.ENGINE_FAILED, Phase.GRANTED)


async def test_engine_is_never_there(case: Case) -> None:
    def away(request: object) -> None:
        raise EngineUnavailable("not connected")

    case.box.engine.on_generate = away
    await case.box.ask(case.subject)
    await case.ended(Outcome.FAILED, Reason.ENGINE_UNAVAILABLE, Phase.GRANTED)


async def test_engine_says_what_is_not_its_protocol(case: Case) -> None:
    run = await case.start()
    run.say(EngineMalformed("half a message"))
    await case.ended(Outcome.FAILED, Reason.ENGINE_FAILED, Phase.GRANTED, quarantined=1)


async def test_engine_ends_without_saying_how(case: Case) -> None:
    run = await case.start()
    run.say(None)
    await case.ended(Outcome.FAILED, Reason.ENGINE_FAILED, Phase.GRANTED, quarantined=1)


async def test_engine_stops_it_unasked(case: Case) -> None:
    run = await case.start()
    run.say(Stopped())
    await case.ended(Outcome.FAILED, Reason.ENGINE_FAILED, Phase.GRANTED, quarantined=1)


async def test_malformed_and_given_up(case: Case) -> None:
    run = await case.start()
    case.box.lose(run)
    run.say(EngineMalformed("half a message"))
    await case.box.quiet()
    case.box.change(state=PoolState.READY)
    await case.box.quiet()
    case.box.engine.runs[-1].finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


# --- the client, while it runs --------------------------------------------------------------------


async def test_cancelled_before_the_engine_said_anything(case: Case) -> None:
    await case.start()
    case.cancel()
    await case.cancelled(Phase.GRANTED, quarantined=1)


async def test_cancelled_in_prefill(case: Case) -> None:
    run = await case.start()
    run.accept()
    await case.box.quiet()
    case.cancel()
    await case.cancelled(Phase.PREFILL, quarantined=1)


async def test_cancelled_mid_stream(case: Case) -> None:
    run = await case.start()
    run.chunk("Be")
    await case.box.quiet()
    case.cancel()
    await case.cancelled(Phase.DECODE, quarantined=1)


async def test_cancelled_twice(case: Case) -> None:
    run = await case.start()
    run.chunk("Be")
    await case.box.quiet()
    case.subject.say(m.Cancel(id=1), m.Cancel(id=1))
    await case.cancelled(Phase.DECODE, quarantined=1)


async def test_cancelled_when_it_does_not_stream(case: Case) -> None:
    run = await case.start(stream=False)
    run.chunk("Be")
    await case.box.quiet()
    case.cancel()
    await case.cancelled(Phase.DECODE, quarantined=1)


async def test_cancelled_by_an_administrator(case: Case) -> None:
    await case.start()
    (live,) = case.box.services.live
    case.box.greeted(uid=0).say(m.CancelAny(id=7, rid=live.rid))
    await case.cancelled(Phase.GRANTED, quarantined=1)


async def test_finish_and_cancel_in_one_turn(case: Case) -> None:
    run = await case.start()
    run.finish()  # its reader has been woken and has not run
    case.cancel()
    await case.cancelled(Phase.GRANTED, quarantined=1)


async def test_freed_and_cancelled_in_one_turn(case: Case) -> None:
    run = await case.start()
    case.box.free(run)
    case.cancel()
    await case.cancelled(Phase.GRANTED)


async def test_client_gone_mid_stream(case: Case) -> None:
    run = await case.start()
    run.chunk("Be")
    await case.box.quiet()
    case.subject.hang_up()
    await case.gone(quarantined=1)


async def test_end_of_file_mid_stream(case: Case) -> None:
    run = await case.start()
    case.subject.transport.reads = False
    run.chunk("Be")  # stays in the buffer, so the transport cannot close by itself
    await case.box.quiet()
    case.subject.session.eof_received()
    await case.gone(quarantined=1)


async def test_slow_reader(case: Case) -> None:
    run = await case.start()
    case.subject.transport.unread_bytes = 5 * 2**20
    run.chunk("Be")
    await case.ended(Outcome.ABORTED, Reason.SLOW_READER, Phase.DECODE, quarantined=1)


async def test_slow_reader_in_one_burst(case: Case) -> None:
    run = await case.start()
    case.subject.transport.unread_bytes = 5 * 2**20
    for _ in range(9):
        run.chunk("Be")
    run.finish()
    await case.ended(Outcome.ABORTED, Reason.SLOW_READER, Phase.DECODE, quarantined=1)


async def test_never_reads_at_all(case: Case) -> None:
    run = await case.start()
    case.subject.transport.unread_bytes = 9 * 2**20
    run.chunk("Be")
    await case.ended(Outcome.ABORTED, Reason.SLOW_READER, Phase.DECODE, quarantined=1)
    assert case.subject.transport.closing


# --- time -----------------------------------------------------------------------------------------


async def test_deadline_mid_stream(case: Case) -> None:
    run = await case.start(timeout_ms=1000)
    run.chunk("Be")
    await case.box.quiet()
    case.box.skip(1)
    await case.ended(Outcome.ABORTED, Reason.DEADLINE_EXCEEDED, Phase.DECODE, quarantined=1)


async def test_deadline_noticed_by_its_own_chunk(case: Case) -> None:
    run = await case.start(timeout_ms=1000)
    case.box.skipped_ns = 1_000_000_000
    for _ in range(9):
        run.chunk("Be")
    await case.ended(Outcome.ABORTED, Reason.DEADLINE_EXCEEDED, Phase.DECODE, quarantined=1)


async def test_own_ttft_in_prefill(case: Case) -> None:
    run = await case.start(ttft_timeout_ms=1000)
    run.accept()
    await case.box.quiet()
    case.box.skip(1)
    await case.ended(Outcome.ABORTED, Reason.TTFT_DEADLINE_EXCEEDED, Phase.PREFILL, quarantined=1)


async def test_safety_timeout(case: Case) -> None:
    await case.start(class_="batch")
    case.box.skip(7200)
    await case.ended(Outcome.ABORTED, Reason.ENGINE_TIMEOUT, Phase.GRANTED, quarantined=1)


async def test_out_of_time_while_it_is_being_closed(case: Case) -> None:
    run = await case.start(timeout_ms=1000)

    async def slow_close() -> None:
        # The engine lets us wait for its close, and time is over meanwhile.
        case.box.skip(1)
        assert case.box.gate.view().in_flight == 0
        await case.box.quiet(3)

    run.on_close = slow_close
    case.cancel()
    await case.cancelled(Phase.GRANTED, quarantined=1)


async def test_out_of_time_while_a_failure_is_being_closed(case: Case) -> None:
    run = await case.start(timeout_ms=1000)

    async def slow_close() -> None:
        case.box.skip(1)
        await case.box.quiet(3)

    run.on_close = slow_close
    case.subject.transport.unread_bytes = 5 * 2**20
    run.chunk("Be")
    await case.ended(Outcome.ABORTED, Reason.DEADLINE_EXCEEDED, Phase.DECODE, quarantined=1)


# --- the rest -------------------------------------------------------------------------------------


async def test_drained_while_running(case: Case) -> None:
    run = await case.start()
    case.box.gate.drain()
    run.chunk("Because.")
    run.finish()
    await case.ended(Outcome.FINISHED, quarantined=1)


async def test_drain_runs_out_of_patience(case: Case) -> None:
    await case.start()
    case.box.gate.drain()
    (live,) = case.box.services.live
    live.end(DRAINED)
    await case.ended(Outcome.ABORTED, Reason.SHUTTING_DOWN, Phase.GRANTED, quarantined=1)


async def test_a_bug(case: Case) -> None:
    run = await case.start()
    run.say(ZeroDivisionError("ours"))
    end = (Outcome.FAILED, Reason.ENGINE_FAILED, Phase.GRANTED)
    await case.ended(*end, quarantined=1, crash=ZeroDivisionError)


async def test_anything_at_all(case: Case) -> None:
    run = await case.start()
    run.say(Torn())
    end = (Outcome.FAILED, Reason.ENGINE_FAILED, Phase.GRANTED)
    await case.ended(*end, quarantined=1, crash=Torn)


async def test_its_id_is_used_again(case: Case) -> None:
    run = await case.start()
    run.chunk("Be")
    await case.box.quiet()
    case.subject.say_anyway(m.Generate(id=1, prompt="and that?"))
    await case.ended(Outcome.CANCELLED, Reason.INVALID, Phase.ARRIVAL, quarantined=1)
