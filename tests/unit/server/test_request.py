"""Carrying out: one task, one ending, one account, whatever the body does."""

import asyncio
from typing import Any

import pytest

from onegate.admission.model import Binding, Refusal, Refused, Standing
from onegate.engines.base import (
    EngineBroke,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
)
from onegate.protocol.errors import FrameTooLarge, LimitedBy, LocalProtocolError, Phase, Reason
from onegate.server.gate import NotAdmitted
from onegate.server.live import LiveRequest
from onegate.server.outcome import CANCELLED, SLOW_READER, Ending, Outcome, RequestEnded
from onegate.server.request import (
    carry_out,
    ending_of,
    failed_message,
    not_admitted,
    queued_message,
)


class Listener:
    principal = "uid:1"
    uid = 1
    overflowing = False

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.deaf: Exception | None = None

    def send(self, message: Any) -> None:
        if self.deaf is not None:
            raise self.deaf
        self.heard.append(message)


class Trial:
    """One request and what became of it."""

    def __init__(self) -> None:
        self.client = Listener()
        self.live = LiveRequest(
            client=self.client, id=3, serial=1, rid="b-1", verb="generate", arrived_ns=0
        )
        self.accounted: list[tuple[Outcome, Reason | None]] = []
        self.ran = False

    def account(self, live: LiveRequest, outcome: Outcome, reason: Reason | None) -> None:
        assert live is self.live
        self.accounted.append((outcome, reason))

    async def carry_out(self, result: BaseException | None = None) -> None:
        async def body() -> None:
            self.ran = True
            if result is not None:
                raise result

        await carry_out(self.live, body, self.account)

    def last_word(self) -> Any:
        (failed,) = self.client.heard
        return failed


@pytest.fixture
def trial() -> Trial:
    return Trial()


async def test_a_body_that_returns_has_finished(trial: Trial) -> None:
    await trial.carry_out()
    assert trial.accounted == [(Outcome.FINISHED, None)]
    assert trial.client.heard == []
    assert trial.live.task is asyncio.current_task()


async def test_a_request_that_was_ended_before_it_began_does_not_begin(trial: Trial) -> None:
    trial.live.end(CANCELLED)
    await trial.carry_out()
    assert not trial.ran
    assert trial.accounted == [(Outcome.CANCELLED, Reason.CANCELLED)]
    assert trial.last_word().reason is Reason.CANCELLED


def refusal(reason: Refused) -> Refusal:
    return Refusal(reason, "no")


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (RequestEnded(SLOW_READER), Outcome.ABORTED, Reason.SLOW_READER),
        (
            NotAdmitted(refusal(Refused.TOKENS_FULL), queued=False),
            Outcome.REJECTED,
            Reason.TOKENS_FULL,
        ),
        (EngineRefused("no"), Outcome.REJECTED, Reason.INVALID),
        (EngineRefused("no", unsupported=True), Outcome.REJECTED, Reason.UNSUPPORTED),
        (EngineTooLarge(need_tok=9, limit_tok=8), Outcome.REJECTED, Reason.TOO_LARGE),
        (EngineUnavailable("away"), Outcome.FAILED, Reason.ENGINE_UNAVAILABLE),
        (EngineBroke("died"), Outcome.FAILED, Reason.ENGINE_UNAVAILABLE),
        (FrameTooLarge("9 bytes, 8 fit"), Outcome.FAILED, Reason.TOO_LARGE),
    ],
)
async def test_what_a_body_raises_is_its_ending(
    trial: Trial, error: Exception, outcome: Outcome, reason: Reason
) -> None:
    await trial.carry_out(error)
    assert trial.accounted == [(outcome, reason)]
    assert (trial.last_word().reason, trial.last_word().id) == (reason, 3)


@pytest.mark.parametrize(
    "error",
    [
        RequestEnded(SLOW_READER),
        NotAdmitted(refusal(Refused.SHUTTING_DOWN), queued=True),
        EngineBroke("died"),
        asyncio.CancelledError(),
    ],
)
async def test_the_first_reason_holds(trial: Trial, error: BaseException) -> None:
    async def body() -> None:
        trial.live.task = None  # so that ending it cancels nothing here
        trial.live.end(CANCELLED)
        raise error

    await carry_out(trial.live, body, trial.account)
    assert trial.accounted == [(Outcome.CANCELLED, Reason.CANCELLED)]
    assert trial.last_word().reason is Reason.CANCELLED


async def test_a_cancellation_that_nobody_ordered_goes_on(trial: Trial) -> None:
    with pytest.raises(asyncio.CancelledError):
        await trial.carry_out(asyncio.CancelledError())
    assert trial.accounted == [(Outcome.DISCONNECTED, None)]
    assert trial.client.heard == []


class Torn(BaseException):
    """Nothing that any code expects."""


@pytest.mark.parametrize("error", [ZeroDivisionError(), Torn(), LocalProtocolError("ours")])
async def test_a_bug_is_told_and_goes_on(trial: Trial, error: BaseException) -> None:
    with pytest.raises(type(error)):
        await trial.carry_out(error)
    assert trial.accounted == [(Outcome.FAILED, Reason.ENGINE_FAILED)]
    assert "internal" in trial.last_word().message


@pytest.mark.parametrize("error", [ZeroDivisionError(), RequestEnded(SLOW_READER)])
async def test_a_client_that_cannot_be_told_is_accounted_all_the_same(
    trial: Trial, error: Exception
) -> None:
    trial.client.deaf = LocalProtocolError("its id is not live")
    with pytest.raises(LocalProtocolError):
        await trial.carry_out(error)
    assert len(trial.accounted) == 1


@pytest.mark.parametrize(
    ("queued", "granted_ns", "phase"),
    [(False, None, Phase.ARRIVAL), (True, None, Phase.QUEUED), (False, 5, Phase.QUEUED)],
)
async def test_who_was_refused_at_the_door_has_not_waited(
    trial: Trial, queued: bool, granted_ns: int | None, phase: Phase
) -> None:
    trial.live.phase, trial.live.granted_ns = Phase.QUEUED, granted_ns
    await trial.carry_out(NotAdmitted(refusal(Refused.SHUTTING_DOWN), queued=queued))
    assert trial.last_word().phase is phase


@pytest.mark.parametrize(
    ("reason", "queued", "started", "outcome"),
    [
        (Refused.TTFT_DEADLINE_EXCEEDED, True, False, Outcome.EXPIRED),
        (Refused.DEADLINE_EXCEEDED, True, False, Outcome.EXPIRED),
        (Refused.DEADLINE_EXCEEDED, True, True, Outcome.EXPIRED),
        (Refused.DEADLINE_EXCEEDED, False, False, Outcome.REJECTED),
        (Refused.SHUTTING_DOWN, True, False, Outcome.REJECTED),
        (Refused.SHUTTING_DOWN, True, True, Outcome.ABORTED),
        (Refused.PAUSED, False, False, Outcome.REJECTED),
    ],
)
def test_no_permit(reason: Refused, queued: bool, started: bool, outcome: Outcome) -> None:
    ending = not_admitted(NotAdmitted(refusal(reason), queued=queued), started=started)
    assert (ending.outcome, ending.reason.value) == (outcome, reason.value)


@pytest.mark.parametrize("reason", list(Refused))
def test_what_the_core_says_has_a_word_on_the_wire(reason: Refused) -> None:
    assert ending_of(refusal(reason), Outcome.REJECTED).reason in set(Reason)


@pytest.mark.parametrize("binding", list(Binding))
def test_a_refusal_keeps_its_figures(binding: Binding) -> None:
    no = Refusal(
        Refused.TOKENS_FULL, "no", limit=8, used=9, retry_after_ns=1_000_001, limited_by=binding
    )
    ending = ending_of(no, Outcome.REJECTED)
    assert (ending.message, ending.limit, ending.used) == ("no", 8, 9)
    assert ending.retry_after_ms == 2  # a moment early is refused again
    assert ending.limited_by is LimitedBy(binding.value)
    assert ending_of(refusal(Refused.PAUSED), Outcome.REJECTED).retry_after_ms is None


def test_the_last_word_says_everything(trial: Trial) -> None:
    trial.live.phase = Phase.PREFILL
    ending = Ending(
        Outcome.FAILED,
        Reason.ENGINE_FAILED,
        "no",
        retryable=False,
        retry_after_ms=5,
        limit=1,
        used=2,
        limited_by=LimitedBy.KV,
        path="prompt",
        models=("tiny",),
    )
    live = trial.live
    said = failed_message(ending, live.phase, id=live.id, rid=live.rid)
    assert (said.id, said.rid, said.phase) == (3, "b-1", Phase.PREFILL)
    assert (said.reason, said.message, said.retryable) == (Reason.ENGINE_FAILED, "no", False)
    assert (said.retry_after_ms, said.limit, said.used) == (5, 1, 2)
    assert (said.limited_by, said.path, said.models) == (LimitedBy.KV, "prompt", ["tiny"])


def test_a_progress_frame(trial: Trial) -> None:
    said = queued_message(
        trial.live,
        Standing(
            3,
            {"loop": 2},
            Binding.SEATS,
            expected_wait_ns=2_000_000,
            opens_in_ns=3_000_000,
        ),
    )
    assert (said.id, said.rid, said.position, said.ahead) == (3, "b-1", 3, {"loop": 2})
    assert (said.expected_wait_ms, said.opens_in_ms) == (2, 3)
    assert said.limited_by is LimitedBy.SEATS
    bare = queued_message(trial.live, Standing(1, {}, None))
    assert (bare.expected_wait_ms, bare.opens_in_ms, bare.limited_by) == (None, None, None)
