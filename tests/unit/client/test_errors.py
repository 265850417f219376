"""Which exception a reason becomes, and what it carries."""

import pytest

from onegate.client.errors import (
    Failed,
    InvalidRequest,
    NotPermitted,
    OnegateError,
    ProtocolError,
    Rejected,
    RequestError,
    Unavailable,
    Unsupported,
    WrongModel,
    error_of,
    invalid,
)
from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason


def failed(reason: Reason, **more: object) -> m.Failed:
    fields: dict[str, object] = {"message": "a sentence", "retryable": True, "phase": Phase.QUEUED}
    return m.Failed(reason=reason, **(fields | more))


EXPECTED = dict.fromkeys(Reason, Rejected) | {
    Reason.WRONG_MODEL: WrongModel,
    Reason.INVALID: InvalidRequest,
    Reason.TOO_LARGE: InvalidRequest,
    Reason.UNSUPPORTED: Unsupported,
    Reason.PERMISSION: NotPermitted,
    Reason.CLASS_NOT_ALLOWED: NotPermitted,
    Reason.BOUNDARY_REFUSED: NotPermitted,
    Reason.PROTOCOL: ProtocolError,
}


@pytest.mark.parametrize("reason", list(Reason))
def test_a_refusal_before_the_start_has_its_own_class(reason: Reason) -> None:
    assert type(error_of(failed(reason), started=False)) is EXPECTED[reason]


@pytest.mark.parametrize("reason", [r for r in Reason if r is not Reason.PROTOCOL])
def test_an_end_after_the_start_is_failed_whatever_the_reason(reason: Reason) -> None:
    error = error_of(failed(reason), started=True)
    assert type(error) is Failed
    assert error.reason is reason


def test_a_reason_of_a_newer_daemon_is_still_a_refusal() -> None:
    error = error_of(failed(Reason("full_moon")), started=False)
    assert isinstance(error, Rejected)
    assert str(error) == "full_moon: a sentence"


def test_seconds_here_milliseconds_on_the_wire() -> None:
    error = error_of(failed(Reason.TOKENS_FULL, retry_after_ms=1500), started=False)
    assert isinstance(error, Rejected)
    assert error.retry_after == 1.5


def test_no_hint_is_none_and_not_zero() -> None:
    error = error_of(failed(Reason.TOKENS_FULL), started=False)
    assert isinstance(error, Rejected)
    assert error.retry_after is None


def test_a_hint_of_zero_is_a_hint() -> None:
    error = error_of(failed(Reason.TOKENS_FULL, retry_after_ms=0), started=False)
    assert isinstance(error, Rejected)
    assert error.retry_after == 0.0


def test_everything_of_the_answer_is_there() -> None:
    answer = failed(
        Reason.TOKENS_FULL, ticket="t1", limit=10, used=9, models=["a"], path="params.x", rid="r1"
    )
    error = error_of(answer, started=False)
    assert isinstance(error, RequestError)
    got = (error.ticket, error.limit, error.used, error.models, error.path, error.rid, error.phase)
    assert got == ("t1", 10, 9, ["a"], "params.x", "r1", Phase.QUEUED)
    assert str(error) == "tokens_full: a sentence (at params.x)"


def test_a_place_that_the_message_names_is_not_repeated() -> None:
    answer = failed(Reason.INVALID, message="params.x is 0", path="params.x")
    assert str(error_of(answer, started=False)) == "invalid: params.x is 0"


def test_one_except_clause_catches_all() -> None:
    kinds = [Failed, InvalidRequest, NotPermitted, ProtocolError, Unavailable, Unsupported]
    assert all(issubclass(kind, OnegateError) for kind in [*kinds, WrongModel, Rejected])
    assert not issubclass(Failed, Rejected)


def test_what_is_seen_here_looks_like_what_the_daemon_would_say() -> None:
    error = invalid("no such thing", "params.x")
    assert (error.reason, error.path, error.retryable) == (Reason.INVALID, "params.x", False)
