"""Endings: what can be retried, and what says otherwise."""

import pytest

from onegate.protocol.errors import REASONS, Reason
from onegate.server import outcome
from onegate.server.outcome import CANCELLED, Ending, Outcome, RequestEnded


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_says_whether_it_can_be_retried(reason: Reason) -> None:
    assert Ending(Outcome.FAILED, reason, "").can_retry is REASONS[reason].retryable


@pytest.mark.parametrize("retryable", [True, False])
def test_an_ending_may_say_otherwise(retryable: bool) -> None:
    for reason in (Reason.ENGINE_FAILED, Reason.INVALID):
        assert Ending(Outcome.FAILED, reason, "", retryable=retryable).can_retry is retryable


def test_an_ending_can_be_raised() -> None:
    error = RequestEnded(CANCELLED)
    assert error.ending is CANCELLED
    assert str(error) == CANCELLED.message


def test_constant_endings_do_not_count_as_finished_or_failed() -> None:
    endings = [value for value in vars(outcome).values() if isinstance(value, Ending)]
    assert len(endings) == 5
    assert all(
        ending.outcome in (Outcome.CANCELLED, Outcome.DISCONNECTED, Outcome.ABORTED)
        for ending in endings
    )
