"""What Ollama's errors mean."""

import json

import pytest

from onegate.engines.base import (
    EngineBroke,
    EngineMalformed,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
)
from onegate.engines.ollama.refusal import refusal


def body(text: str) -> bytes:
    return json.dumps({"error": text}).encode()


@pytest.mark.parametrize(
    ("status", "text", "kind", "says"),
    [
        (404, "model 'x:1b' not found", EngineUnavailable, "ollama pull x:1b"),
        (404, 'model "x" not found, try pulling it first', EngineUnavailable, "ollama pull x"),
        (400, "invalid model name", EngineRefused, "invalid model name"),
        (400, "registry/x does not support tools", EngineRefused, "does not support tools"),
        (413, "too long", EngineRefused, "too long"),
        (401, "unauthorized", EngineUnavailable, "unauthorized"),
        (403, "ollama cloud is disabled: x", EngineUnavailable, "cloud is disabled"),
        (
            503,
            "server busy, please try again.  maximum pending requests exceeded",
            EngineUnavailable,
            "busy",
        ),
        (429, "slow down", EngineUnavailable, "busy"),
        (
            500,
            "model requires more system memory (9 GiB) than is available (8 GiB)",
            EngineUnavailable,
            "cannot load",
        ),
        (500, "llama runner process has terminated: exit 2", EngineBroke, "terminated"),
        (502, "bad gateway", EngineBroke, "502"),
    ],
)
def test_an_error_has_one_meaning(status, text, kind, says):
    error = refusal(status, body(text))
    assert type(error) is kind
    assert says in str(error)


def test_only_what_is_never_possible_is_unsupported():
    assert refusal(400, body("x does not support thinking")).unsupported
    assert not refusal(400, body("invalid options")).unsupported


def test_a_prompt_over_the_context_has_both_numbers():
    text = "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing"
    error = refusal(400, body(text))
    assert isinstance(error, EngineTooLarge)
    assert (error.need_tok, error.limit_tok) == (5001, 4096)


def test_a_prompt_over_the_context_without_numbers_is_refused():
    error = refusal(500, body("the input length exceeds the context length"))
    assert isinstance(error, EngineRefused)
    assert error.path == "messages"


@pytest.mark.parametrize(
    "junk", [b"", b"404 page not found", b"<html>\x00no", b'{"error": {"a": 1}}', b"\xff\xfe"]
)
def test_a_body_that_is_none_of_ollamas_is_quoted_and_not_trusted(junk):
    assert isinstance(refusal(404, junk), EngineMalformed)
    assert isinstance(refusal(500, junk), EngineBroke)
    assert str(refusal(500, junk)).isprintable()
