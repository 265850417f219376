"""How the OpenAI routes say no."""

import json

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.dialects.openai.refusal import event, refusal
from onegate_ollama_proxy.refused import no


@pytest.mark.parametrize(
    ("reason", "status", "kind", "code"),
    [
        (Reason.TOKENS_FULL, 429, "rate_limit_error", "tokens_full"),
        (Reason.TOO_LARGE, 400, "invalid_request_error", "context_length_exceeded"),
        (Reason.WRONG_MODEL, 404, "not_found_error", "model_not_found"),
        (Reason.UNSUPPORTED, 400, "invalid_request_error", "unsupported_parameter"),
        (Reason.BOUNDARY_REFUSED, 403, "permission_error", "boundary_refused"),
        (Reason.ENGINE_UNAVAILABLE, 503, "server_error", "engine_unavailable"),
    ],
)
def test_an_error_has_a_type_and_a_code(reason, status, kind, code):
    said = refusal(no(reason, "so it is", path="x"))
    assert said.status == status
    assert json.loads(said.body) == {
        "error": {"message": "so it is", "type": kind, "param": "x", "code": code}
    }


def test_an_error_in_a_stream_is_one_event():
    said = event(no(Reason.ENGINE_FAILED, "a\n\nb"))
    assert said.startswith(b"data: ")
    assert said.count(b"\n\n") == 1
