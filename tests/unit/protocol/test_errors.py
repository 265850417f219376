"""The table of reasons."""

import pytest

from onegate.protocol.errors import (
    REASONS,
    UNKNOWN_REASON,
    FrameTooLarge,
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    WireError,
    reason_info,
)


def test_every_reason_has_its_row() -> None:
    assert set(REASONS) == set(Reason)


def test_backpressure_can_be_retried_and_says_not_now() -> None:
    for reason, info in REASONS.items():
        if info.backpressure:
            assert info.retryable, reason
            assert info.http_status in (429, 503), reason


def test_what_is_the_callers_mistake_cannot_be_retried() -> None:
    assert not any(info.retryable for info in REASONS.values() if info.http_status in (400, 403))


@pytest.mark.parametrize("reason", Reason)
def test_reason_info_is_the_table(reason: Reason) -> None:
    assert reason_info(reason) is REASONS[reason]


def test_a_reason_of_a_newer_daemon_has_a_meaning_too() -> None:
    assert reason_info(Reason("reason_of_tomorrow")) is UNKNOWN_REASON


def test_our_bugs_and_theirs_are_told_apart() -> None:
    assert issubclass(RemoteProtocolError, WireError)
    assert issubclass(FrameTooLarge, LocalProtocolError)
    assert not issubclass(LocalProtocolError, RemoteProtocolError)
