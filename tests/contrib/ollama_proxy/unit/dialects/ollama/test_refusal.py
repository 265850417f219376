"""How Ollama's API says no."""

import json

import pytest

from onegate.protocol.errors import REASONS, Reason
from onegate_ollama_proxy.dialects.ollama.refusal import error_line, refusal
from onegate_ollama_proxy.refused import no


@pytest.mark.parametrize("reason", list(Reason))
def test_it_is_one_line_with_a_text(reason: Reason) -> None:
    found = refusal(no(reason, "two\nlines"))
    assert json.loads(found.body) == {"error": "two\nlines"}
    assert b"\n" not in found.body
    expected = 400 if reason is Reason.UNSUPPORTED else REASONS[reason].http_status
    assert found.status == expected
    assert found.content_type.startswith("application/json")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tools", "the model does not support tools: no"),
        ("think", "the model does not support thinking: no"),
        ("suffix", "the model does not support insert: no"),
        ("params.top_k", "no"),
        (None, "no"),
    ],
)
def test_the_words_that_clients_look_for(path: str | None, words: str) -> None:
    assert json.loads(error_line(no(Reason.UNSUPPORTED, "no", path=path)))["error"] == words
    assert json.loads(error_line(no(Reason.INVALID, "no", path=path)))["error"] == "no"
