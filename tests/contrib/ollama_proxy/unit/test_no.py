"""From what is raised to what a person reads."""

from typing import Any

import pytest

from onegate.client.errors import ProtocolError, Unavailable, error_of
from onegate.protocol.errors import Phase, Reason
from onegate.protocol.messages import Failed
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.no import no_of, retry_headers, whole_seconds
from onegate_ollama_proxy.refused import Refused, no


def refused(reason: Reason, **fields: Any) -> Any:
    message = Failed(
        **(
            {"reason": reason, "message": "no room", "retryable": True, "phase": Phase.ARRIVAL}
            | fields
        )
    )
    return error_of(message, started=False)


def test_backpressure_says_class_reason_and_when() -> None:
    said = no_of(refused(Reason.TOKENS_FULL, retry_after_ms=2500), "batch")
    assert said.sentence == "not now for class batch (tokens_full): no room; come back in 3 s"
    assert (said.status, said.retry_after_ms, said.retryable) == (429, 2500, True)
    assert retry_headers(said) == {"Retry-After": "3", "retry-after-ms": "2500"}


def test_backpressure_without_a_class_or_a_time() -> None:
    said = no_of(refused(Reason.PAUSED))
    assert said.sentence == "not now (paused): no room"
    assert (said.status, retry_headers(said)) == (503, {})


def test_what_does_not_get_better_is_not_tried_again() -> None:
    said = no_of(refused(Reason.INVALID, retryable=False, path="params.top_p"))
    assert (said.status, said.sentence, said.path) == (400, "no room", "params.top_p")
    assert retry_headers(said) == {"x-should-retry": "false"}


def test_a_daemon_that_is_not_there() -> None:
    said = no_of(Unavailable("nobody listens"))
    assert (said.status, said.reason) == (503, Reason.ENGINE_UNAVAILABLE)
    assert "nobody listens" in said.sentence
    assert retry_headers(said)["Retry-After"] == "2"


def test_two_versions_that_do_not_fit() -> None:
    assert no_of(ProtocolError("what?")).status == 502


def test_what_the_proxy_itself_refuses() -> None:
    assert no_of(BadAsk("x", path="a", reason=Reason.UNSUPPORTED)).status == 501
    mine = no(Reason.PERMISSION, "no")
    assert no_of(Refused(mine)) is mine


@pytest.mark.parametrize(("ms", "seconds"), [(0, 1), (1, 1), (1000, 1), (1001, 2)])
def test_seconds_are_rounded_up(ms: int, seconds: int) -> None:
    assert whole_seconds(ms) == seconds
