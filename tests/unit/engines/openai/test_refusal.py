import pytest

from onegate.engines.base import (
    EngineBroke,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
)
from onegate.engines.http.dialect import Overlong
from onegate.engines.openai.refusal import error_of, refusal_of
from onegate.engines.openai.shapes import ErrorBody


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (503, b'{"error": {"message": "full", "code": 503}}', EngineUnavailable, "full"),
        (429, b"slow down", EngineUnavailable, "slow down"),
        (401, b"", EngineUnavailable, "api_key_file"),
        (404, b'{"message": "no model"}', EngineRefused, "no model"),
        (400, b'{"error": "bad"}', EngineRefused, "bad"),
        (422, b'{"detail": "Unexpected fields"}', EngineRefused, "Unexpected"),
        (422, b'{"detail": [{"loc": 1}]}', EngineRefused, "loc"),
        (501, b'{"error": {"message": "no"}}', EngineRefused, "cannot: no"),
        (500, b"<html>\xff", EngineBroke, "html"),
        (502, b"", EngineBroke, "does not say why"),
    ],
)
def test_statuses(status, body, kind, text):
    error = refusal_of(status, body, None)
    assert type(error) is kind
    assert text in str(error)


def test_what_a_refusal_carries_along():
    assert refusal_of(503, b"", 5000.0).retry_after_ms == 5000.0
    assert refusal_of(501, b"", None).unsupported
    param = refusal_of(400, b'{"error": {"message": "m", "param": "top_p"}}', None)
    assert param.path == "params.top_p"
    odd = refusal_of(400, b'{"error": {"message": "m", "param": "a b"}}', None)
    assert odd.path is None


def test_too_large_in_numbers_and_in_words():
    error = refusal_of(400, b'{"error": {"n_prompt_tokens": 9000, "n_ctx": 2048}}', None)
    assert isinstance(error, EngineTooLarge)
    assert (error.need_tok, error.limit_tok) == (9000, 2048)
    text = (
        b'{"error": {"message": "This model\'s maximum context length is 2048 tokens. However, '
        b'you requested 3000 tokens"}}'
    )
    error = refusal_of(400, text, None)
    assert (error.need_tok, error.limit_tok) == (3000, 2048)


def test_the_prompts_own_count_is_known_where_the_server_says_it():
    text = (
        b'{"error": {"message": "This model\'s maximum context length is 2048 tokens and your '
        b'request has 1500 input tokens (900 > 2048 - 1500)."}}'
    )
    error = refusal_of(400, text, None)
    assert isinstance(error, Overlong)
    assert (error.prompt_tok, error.limit_tok) == (1500, 2048)
    assert error.need_tok > error.limit_tok
    without = b'{"error": {"message": "maximum context length is 5 tokens, requested 9 tokens"}}'
    assert not isinstance(refusal_of(400, without, None), Overlong)


def test_errors_inside_a_stream():
    full = ErrorBody(message="full", code=503)
    assert isinstance(error_of(full, began=False), EngineUnavailable)
    assert isinstance(error_of(full, began=True), EngineBroke)
    assert isinstance(error_of("odd", began=False), EngineBroke)
    assert isinstance(error_of(ErrorBody(code="400"), began=False), EngineRefused)
    assert isinstance(error_of(ErrorBody(code="9" * 5000), began=False), EngineBroke)
    assert isinstance(error_of(ErrorBody(n_prompt_tokens=5, n_ctx=2), began=False), EngineTooLarge)
