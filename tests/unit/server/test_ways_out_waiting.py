"""Every way out of a request that waits, for the first time or again.

After each: one outcome, one last word to the client, one line in the log, no permit held, and the
seat free, or quarantined until the engine confirms.
"""

from typing import Any

from onegate.engines.base import EngineBroke, PoolState
from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason
from onegate.server.outcome import Outcome

Case = Any  # of conftest.py


# --- before the permit ----------------------------------------------------------------------------


async def test_refused_at_the_door(case: Case) -> None:
    case.box.gate.close_class("loop", None)
    await case.box.ask(case.subject)
    await case.ended(Outcome.REJECTED, Reason.PAUSED, Phase.ARRIVAL)


async def test_expired_waiting(case: Case) -> None:
    run = await case.wait(ttft_timeout_ms=1000)
    case.box.skip(1)
    await case.leave(run)
    await case.ended(Outcome.EXPIRED, Reason.TTFT_DEADLINE_EXCEEDED, Phase.QUEUED)


async def test_expired_waiting_as_a_whole(case: Case) -> None:
    run = await case.wait(timeout_ms=1000)
    case.box.skip(1)
    await case.leave(run)
    await case.ended(Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED, Phase.QUEUED)


async def test_cancelled_waiting(case: Case) -> None:
    run = await case.wait()
    case.cancel()
    await case.box.quiet()
    await case.leave(run)
    await case.cancelled(Phase.QUEUED)


async def test_cancelled_waiting_with_progress(case: Case) -> None:
    run = await case.wait(progress=True)
    case.cancel()
    await case.box.quiet()
    await case.leave(run)
    await case.cancelled(Phase.QUEUED)


async def test_connection_lost_waiting(case: Case) -> None:
    run = await case.wait()
    case.subject.hang_up()
    await case.box.quiet()
    await case.leave(run)
    await case.gone()


async def test_end_of_file_waiting(case: Case) -> None:
    run = await case.wait()
    case.subject.session.eof_received()
    await case.box.quiet()
    await case.leave(run)
    await case.gone()


async def test_cancelled_before_the_task_began(case: Case) -> None:
    case.subject.say(m.Generate(id=1, prompt="why?"), m.Cancel(id=1))
    await case.cancelled(Phase.ARRIVAL)


async def test_gone_before_the_task_began(case: Case) -> None:
    case.subject.say(m.Generate(id=1, prompt="why?"))
    case.subject.session.eof_received()
    await case.gone()


async def test_offence_in_the_bytes_behind_the_request(case: Case) -> None:
    case.subject.say(m.Generate(id=1, prompt="why?"))
    case.subject.raw(b"\0\0\0\0")
    await case.ended(Outcome.ABORTED, Reason.PROTOCOL, silent=True)


async def test_granted_and_cancelled_in_one_turn(case: Case) -> None:
    run = await case.wait()
    await case.leave(run)
    assert case.box.gate.view().in_flight == 1  # granted, and its waiter has not run yet
    case.cancel()
    await case.cancelled(Phase.QUEUED)


async def test_cancelled_and_granted_in_one_turn(case: Case) -> None:
    run = await case.wait()
    run.finish()
    await case.box.quiet()
    case.cancel()
    case.box.free(run)
    assert case.box.gate.view().in_flight == 1
    await case.cancelled(Phase.QUEUED)


async def test_granted_and_cancelled_in_one_turn_with_progress(case: Case) -> None:
    run = await case.wait(progress=True)
    await case.leave(run)
    case.cancel()
    await case.cancelled(Phase.QUEUED)


async def test_refused_and_cancelled_in_one_turn(case: Case) -> None:
    run = await case.wait()
    case.box.gate.drain()
    case.cancel()
    await case.leave(run)
    await case.cancelled(Phase.QUEUED)


async def test_cancelled_and_refused_in_one_turn(case: Case) -> None:
    run = await case.wait()
    case.cancel()
    case.box.gate.drain()
    await case.leave(run)
    await case.cancelled(Phase.QUEUED)


async def test_refused_and_cancelled_in_one_turn_with_progress(case: Case) -> None:
    run = await case.wait(progress=True)
    case.box.gate.drain()
    case.cancel()
    await case.leave(run)
    await case.cancelled(Phase.QUEUED)


async def test_drained_while_waiting(case: Case) -> None:
    run = await case.wait()
    case.box.gate.drain()
    await case.leave(run)
    await case.ended(Outcome.REJECTED, Reason.SHUTTING_DOWN, Phase.QUEUED)


# --- waiting again --------------------------------------------------------------------------------


async def test_cancelled_while_it_waits_again(case: Case) -> None:
    run = await case.start()
    await case.requeue(run)
    case.cancel()
    await case.cancelled(Phase.QUEUED)


async def test_lost_and_cancelled_in_one_turn(case: Case) -> None:
    run = await case.start()
    case.box.lose(run)
    run.say(EngineBroke("it died"))
    case.cancel()
    await case.cancelled(Phase.GRANTED)


async def test_gone_while_it_waits_again(case: Case) -> None:
    run = await case.start()
    await case.requeue(run)
    case.subject.hang_up()
    await case.gone()


async def test_expired_while_it_waits_again(case: Case) -> None:
    run = await case.start(timeout_ms=1000)
    await case.requeue(run)
    case.box.skip(1)
    await case.ended(Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED, Phase.QUEUED)


async def test_drained_while_it_waits_again(case: Case) -> None:
    run = await case.start()
    await case.requeue(run)
    case.box.gate.drain()
    await case.ended(Outcome.ABORTED, Reason.SHUTTING_DOWN, Phase.QUEUED)


async def test_lost_after_the_drain_began(case: Case) -> None:
    run = await case.start()
    case.box.gate.drain()
    case.box.lose(run)
    run.say(EngineBroke("it died"))
    await case.ended(Outcome.ABORTED, Reason.SHUTTING_DOWN, Phase.QUEUED)


async def test_granted_again_and_cancelled_in_one_turn(case: Case) -> None:
    run = await case.start()
    await case.requeue(run)
    case.box.change(state=PoolState.READY)
    assert case.box.gate.view().in_flight == 1
    case.cancel()
    await case.cancelled(Phase.QUEUED)
