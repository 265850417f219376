"""How /v1/messages says no."""

import json

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.dialects.anthropic.refusal import event, refusal
from onegate_ollama_proxy.refused import no


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        (Reason.TOKENS_FULL, 429, "rate_limit_error"),
        (Reason.PAUSED, 503, "overloaded_error"),
        (Reason.TOO_LARGE, 400, "invalid_request_error"),
        (Reason.WRONG_MODEL, 404, "not_found_error"),
        (Reason.UNSUPPORTED, 400, "invalid_request_error"),
        (Reason.PERMISSION, 403, "permission_error"),
        (Reason.ENGINE_FAILED, 502, "api_error"),
    ],
)
def test_an_error_has_the_apis_type(reason, status, kind):
    said = refusal(no(reason, "so it is"))
    assert said.status == status
    document = json.loads(said.body)
    assert document["type"] == "error"
    assert document["error"] == {"type": kind, "message": "so it is"}


def test_an_error_in_a_stream_is_one_named_event():
    said = event(no(Reason.ENGINE_FAILED, "a\n\nb"))
    assert said.startswith(b"event: error\ndata: ")
    assert said.count(b"\n\n") == 1
