"""Exit codes and the sentence that goes with them."""

import pytest

from onegate.cli.exits import Exit, error_document, exit_of, exit_of_reason, sentence
from onegate.client.errors import ProtocolError, Unavailable, error_of, invalid
from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason

EXPECTED = {
    Reason.CLASS_FULL: 75,
    Reason.TOKENS_FULL: 75,
    Reason.BYTES_FULL: 75,
    Reason.PEER_QUOTA: 75,
    Reason.WONT_MEET_DEADLINE: 75,
    Reason.TTFT_DEADLINE_EXCEEDED: 75,
    Reason.DEADLINE_EXCEEDED: 75,
    Reason.DISPLACED: 75,
    Reason.PAUSED: 75,
    Reason.WRONG_MODEL: 65,
    Reason.CLASS_NOT_ALLOWED: 77,
    Reason.TOO_LARGE: 65,
    Reason.INVALID: 65,
    Reason.UNSUPPORTED: 65,
    Reason.ENGINE_UNAVAILABLE: 69,
    Reason.ENGINE_FAILED: 69,
    Reason.BOUNDARY_REFUSED: 77,
    Reason.DEGRADED_REFUSED: 75,
    Reason.SHUTTING_DOWN: 75,
    Reason.CANCELLED: 75,
    Reason.SLOW_READER: 75,
    Reason.ENGINE_TIMEOUT: 69,
    Reason.RELEASED: 75,
    Reason.PROTOCOL: 70,
    Reason.PERMISSION: 77,
}


def failed(reason: Reason, **more: object) -> m.Failed:
    fields: dict[str, object] = {"message": "No room.", "retryable": True, "phase": Phase.ARRIVAL}
    return m.Failed(reason=reason, **(fields | more))


def test_every_reason_has_a_code() -> None:
    assert {reason: int(exit_of_reason(reason)) for reason in Reason} == EXPECTED


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("reason", list(Reason))
def test_the_code_is_that_of_the_reason_before_and_after_the_start(
    reason: Reason, started: bool
) -> None:
    assert exit_of(error_of(failed(reason), started=started)) == EXPECTED[reason]


def test_a_reason_of_a_newer_daemon_is_a_refusal() -> None:
    assert exit_of_reason(Reason("full_moon")) is Exit.REFUSED


def test_no_daemon_and_bugs() -> None:
    assert exit_of(Unavailable("gone")) is Exit.UNAVAILABLE
    assert exit_of(ProtocolError("odd")) is Exit.BUG


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (Unavailable("no daemon: there is no socket at /s"), "`onegated` starts a daemon"),
        (ProtocolError("odd"), "same version"),
        (error_of(failed(Reason.PERMISSION), started=False), "`onegate whoami`"),
        (error_of(failed(Reason.TOKENS_FULL, retry_after_ms=1500), started=False), "in 1.5 s"),
        (
            error_of(failed(Reason.TOKENS_FULL, retry_after_ms=1500, ticket="t"), started=False),
            "in 1.5 s; with `onegate ask --wait` a place is kept",
        ),
        (error_of(failed(Reason.TOKENS_FULL), started=False), "try again later"),
        (error_of(failed(Reason.ENGINE_UNAVAILABLE), started=False), "`onegate status` says why"),
        (error_of(failed(Reason.ENGINE_FAILED), started=True), "at most a beginning"),
    ],
)
def test_the_sentence_says_what_to_do(error: Exception, advice: str) -> None:
    text = sentence(error)  # type: ignore[arg-type]
    assert advice in text
    assert ".;" not in text
    assert "\n" not in text


def test_no_place_is_promised_where_none_is_kept() -> None:
    error = error_of(failed(Reason.TOKENS_FULL, retry_after_ms=1500), started=False)
    assert "--wait" not in sentence(error)


def test_nothing_is_advised_where_nothing_helps() -> None:
    assert sentence(invalid("Expected `int` >= 1", "params.max_tokens")) == (
        "invalid: Expected `int` >= 1 (at params.max_tokens)"
    )


def test_the_document_of_a_refusal_has_seconds_and_nulls() -> None:
    error = error_of(failed(Reason.TOKENS_FULL, retry_after_ms=1500, ticket="t"), started=False)
    document = error_document(error)["error"]
    assert isinstance(document, dict)
    assert document["reason"] == "tokens_full"
    assert (document["retry_after_s"], document["ticket"]) == (1.5, "t")
    assert (document["limit"], document["started"]) == (None, False)


def test_the_document_without_a_daemon_has_no_reason() -> None:
    assert error_document(Unavailable("gone")) == {"error": {"reason": None, "message": "gone"}}
