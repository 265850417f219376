"""Reading along with answers under a lease."""

import json
from types import SimpleNamespace

import pytest

from onegate.protocol.content import Usage
from onegate_ollama_proxy.ears import LeasedEar
from onegate_ollama_proxy.leased import MESSAGES, RESPONSES


def ear(kind=RESPONSES, *, status=200, is_stream=True):
    made = LeasedEar(kind.ends)
    made.begin(SimpleNamespace(status=status, close=lambda: None), is_stream=is_stream)
    return made


def event(**said):
    return f"event: {said['type']}\ndata: {json.dumps(said)}\n\n".encode()


def responses(end="response.completed"):
    return (
        event(type="response.created", response={"usage": None})
        + event(type="response.output_text.delta", delta="Hi")
        + event(type=end, response={"usage": {"input_tokens": 7, "output_tokens": 2}})
    )


def messages():
    return (
        event(type="message_start", message={"usage": {"input_tokens": 9, "output_tokens": 0}})
        + event(type="content_block_delta", delta={"text": "Hi"})
        + event(type="message_delta", usage={"output_tokens": 3})
        + event(type="message_stop")
    )


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("kind", "stream", "used"),
    [
        (RESPONSES, responses(), Usage(prompt_tok=7, output_tok=2)),
        (RESPONSES, responses("response.incomplete"), Usage(prompt_tok=7, output_tok=2)),
        (MESSAGES, messages(), Usage(prompt_tok=9, output_tok=3)),
    ],
)
def test_a_stream_that_ends_tells_what_it_used(kind, stream, used, size):
    heard = ear(kind)
    for at in range(0, len(stream), size):
        heard.hear(stream[at : at + size])
    assert heard.end()
    assert heard.usage() == used


@pytest.mark.parametrize(("kind", "stream"), [(RESPONSES, responses()), (MESSAGES, messages())])
def test_a_stream_that_just_stops_did_not_end(kind, stream):
    heard = ear(kind)
    heard.hear(stream[: stream.rindex(b"event:")])
    assert not heard.end()


@pytest.mark.parametrize("kind", [RESPONSES, MESSAGES])
def test_an_error_is_an_end(kind):
    heard = ear(kind)
    heard.hear(event(type="error", error={"message": "no"}))
    assert heard.end()
    assert heard.usage() is None


def test_a_document_tells_what_it_used():
    heard = ear(is_stream=False)
    heard.hear(b'{"id":"x","usage":{"input_tokens":4,')
    heard.hear(b'"output_tokens":5}}')
    assert heard.end()
    assert heard.usage() == Usage(prompt_tok=4, output_tok=5)


def test_what_was_refused_used_nothing():
    heard = ear(status=404, is_stream=False)
    heard.hear(b'{"error":{"message":"usage"}}')
    assert heard.end()
    assert heard.usage() == Usage(prompt_tok=0, output_tok=0)


@pytest.mark.parametrize(
    "line",
    [
        b'data: {"type":"message_delta","usage":{"output_tokens":-1}}\n',
        b'data: {"usage" nonsense\n',
        b'data: {"usage":' + b"[" * 100_000 + b"\n",
        b'data: {"usage":"\xff"}\n',
        b": a comment\n",
    ],
)
def test_what_is_not_understood_is_let_pass(line):
    heard = ear(MESSAGES)
    heard.hear(line + messages())
    assert heard.end()
    assert heard.usage() == Usage(prompt_tok=9, output_tok=3)


def test_a_line_without_end_is_not_kept():
    heard = ear()
    for _ in range(6):
        heard.hear(b"x" * (1 << 20))
    heard.hear(b"\n" + responses())
    assert heard.end(), "nobody knows, so nothing is said"
    assert heard.usage() is None


def test_it_can_be_stopped_once_it_has_begun():
    closed = []
    heard = LeasedEar(RESPONSES.ends)
    assert not heard.stop()
    heard.begin(SimpleNamespace(status=200, close=lambda: closed.append(1)), is_stream=True)
    assert heard.stop()
    assert closed == [1]
