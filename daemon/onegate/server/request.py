"""Carry out one request in its own task, and account for its one end.

`Requests.run` is the only place that turns an ending into a `Failed`, a metric and a log line, so
that each request has exactly one of each.
"""

import asyncio
from collections.abc import Awaitable, Callable

from onegate.admission.model import Refusal, Refused, Standing
from onegate.engines.base import EngineError, EngineRefused, EngineTooLarge
from onegate.protocol.errors import FrameTooLarge, LimitedBy, Phase, Reason
from onegate.protocol.messages import Failed, Queued
from onegate.server.checks import too_large
from onegate.server.gate import NotAdmitted
from onegate.server.live import LiveRequest
from onegate.server.outcome import Ending, Outcome, RequestEnded

NS_PER_MS = 1_000_000

# Out of time in the queue is one outcome, out of time while running another.
_EXPIRIES = {Refused.TTFT_DEADLINE_EXCEEDED, Refused.DEADLINE_EXCEEDED}


def ending_of(refusal: Refusal, outcome: Outcome) -> Ending:
    """A refusal of the core as the ending of its request."""
    retry_ns = refusal.retry_after_ns
    return Ending(
        outcome,
        Reason(refusal.reason.value),
        refusal.message,
        limit=refusal.limit,
        used=refusal.used,
        # Rounded up: coming back a moment early is being refused again.
        retry_after_ms=None if retry_ns is None else -(-retry_ns // NS_PER_MS),
        ticket=refusal.ticket,
        limited_by=None if refusal.limited_by is None else LimitedBy(refusal.limited_by.value),
    )


def not_admitted(error: NotAdmitted, *, started: bool) -> Ending:
    """The ending of a request that got no permit, or, once `started`, none again."""
    outcome = Outcome.ABORTED if started else Outcome.REJECTED
    if error.queued and error.refusal.reason in _EXPIRIES:
        outcome = Outcome.EXPIRED
    elif error.refusal.reason is Refused.DISPLACED:
        outcome = Outcome.DISPLACED
    return ending_of(error.refusal, outcome)


def engine_said_no(error: EngineError) -> Ending:
    """The ending of a request that the engine did not take: an `EngineError` outside of a run."""
    if isinstance(error, EngineTooLarge):
        return too_large(error.need_tok, error.limit_tok).ending
    if isinstance(error, EngineRefused):
        reason = Reason.UNSUPPORTED if error.unsupported else Reason.INVALID
        return Ending(Outcome.REJECTED, reason, str(error), path=error.path)
    return Ending(Outcome.FAILED, Reason.ENGINE_UNAVAILABLE, str(error))


def too_long(error: FrameTooLarge) -> Ending:
    """The ending of a request whose answer does not fit into a frame."""
    return Ending(
        Outcome.FAILED,
        Reason.TOO_LARGE,
        f"the answer is too long for one message: {error}; ask for less, or for a stream",
    )


def queued_message(live: LiveRequest, standing: Standing) -> Queued:
    """A progress frame."""
    wait_ns, opens_ns = standing.expected_wait_ns, standing.opens_in_ns
    return Queued(
        id=live.id,
        rid=live.rid,
        position=standing.position,
        ahead=standing.ahead,
        expected_wait_ms=None if wait_ns is None else wait_ns // NS_PER_MS,
        limited_by=None if standing.limited_by is None else LimitedBy(standing.limited_by.value),
        opens_in_ms=None if opens_ns is None else opens_ns // NS_PER_MS,
    )


def failed_message(
    ending: Ending, phase: Phase, *, id: int | None = None, rid: str | None = None
) -> Failed:
    """The last message of a request that did not finish; without an id, of a whole connection."""
    return Failed(
        id=id,
        rid=rid,
        reason=ending.reason,
        message=ending.message,
        phase=phase,
        retryable=ending.can_retry,
        retry_after_ms=ending.retry_after_ms,
        ticket=ending.ticket,
        limit=ending.limit,
        used=ending.used,
        limited_by=ending.limited_by,
        path=ending.path,
        models=None if ending.models is None else list(ending.models),
    )


Account = Callable[[LiveRequest, Outcome, Reason | None], None]


async def carry_out(
    live: LiveRequest, body: Callable[[], Awaitable[None]], account: Account
) -> None:
    """Run `body` in the current task and end the request exactly once, however it ends.

    A cancellation with no ending recorded is not about this request (the loop is being torn down)
    and goes on, accounted as a disconnect. Any other exception is a bug: it goes on too, after the
    client was told that its request failed.
    """
    ending: Ending | None = None
    if live.ending is None:
        live.task = asyncio.current_task()
        try:
            await body()
        except RequestEnded as error:
            ending = error.ending
        except NotAdmitted as error:
            if not error.queued and live.granted_ns is None:
                live.phase = Phase.ARRIVAL
            ending = not_admitted(error, started=live.granted_ns is not None)
        except EngineError as error:
            ending = engine_said_no(error)
        except FrameTooLarge as error:
            ending = too_long(error)
        except asyncio.CancelledError:
            if live.ending is None:
                account(live, Outcome.DISCONNECTED, None)
                raise
        except BaseException:
            ending = Ending(Outcome.FAILED, Reason.ENGINE_FAILED, "internal error; see the journal")
            _end(live, ending, account)
            raise
        else:
            account(live, Outcome.FINISHED, None)
            return
    # The first reason holds, also when it came while the request was failing by itself.
    last = live.ending or ending
    assert last is not None
    _end(live, last, account)


def _end(live: LiveRequest, ending: Ending, account: Account) -> None:
    try:
        live.client.send(failed_message(ending, live.phase, id=live.id, rid=live.rid))
    finally:
        account(live, ending.outcome, ending.reason)
