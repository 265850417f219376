"""Answers in the OpenAI API's shapes."""

import json

import pytest

from onegate.client.reply import Reply
from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    FunctionCall,
    Identity,
    TokenLogprob,
    ToolCall,
    TopLogprob,
    Usage,
)
from onegate.protocol.errors import Reason
from onegate.protocol.messages import Chunk, Timings
from onegate_ollama_proxy.dialects.openai.answer import ChatWriter, CompletionWriter
from onegate_ollama_proxy.refused import no

CALL = ToolCall(id="c1", function=FunctionCall(name="f", arguments='{"a":1}'))
LOGPROB = TokenLogprob(token="é", logprob=-0.5, top=[TopLogprob(token="e", logprob=-1.0)])


def reply(**given) -> Reply:
    fixed = dict(
        text="Hi",
        thinking="",
        tool_calls=[],
        finish_reason=FinishReason.STOP,
        usage=Usage(prompt_tok=7, output_tok=2),
        timings=Timings(queue_ms=1.0, e2e_ms=9.0),
        notices=[],
        identity=Identity(engine="x", model="m"),
        rid="r-1",
        token_ids=[],
        logprobs=[],
    )
    return Reply(**(fixed | given))


def writer(kind=ChatWriter, *, stream=True, include_usage=False):
    return kind("m", stream=stream, include_usage=include_usage)


def events(data: bytes) -> list:
    """What a stream says: one JSON document an event, and the word at its end as it is."""
    assert data.endswith(b"\n\n")
    said = [event.removeprefix("data: ") for event in data.decode().split("\n\n")[:-1]]
    return [one if one == "[DONE]" else json.loads(one) for one in said]


def chunk(text="", kind=ChunkKind.TEXT, **given) -> Chunk:
    return Chunk(id=1, n_tok=1, text=text, kind=kind, **given)


def test_a_stream():
    made = writer()
    said = events(made.chunk(chunk("H")) + made.chunk(chunk("i")) + made.end(reply()))
    assert said.pop() == "[DONE]"
    deltas = [one["choices"][0]["delta"] for one in said]
    assert deltas == [{"role": "assistant", "content": "H"}, {"content": "i"}, {}]
    assert [one["choices"][0]["finish_reason"] for one in said] == [None, None, "stop"]
    assert {one["object"] for one in said} == {"chat.completion.chunk"}
    assert len({one["id"] for one in said}) == 1
    assert not any("usage" in one for one in said)


def test_usage_comes_last_and_only_if_it_was_asked_for():
    made = writer(include_usage=True)
    first, finish, usage, end = events(made.chunk(chunk("H")) + made.end(reply()))
    assert first["usage"] is None
    assert finish["usage"] is None
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert end == "[DONE]"


def test_what_a_model_thinks_and_calls():
    made = writer()
    data = made.chunk(chunk("hm", ChunkKind.THINKING))
    data += made.chunk(chunk(kind=ChunkKind.TOOL_CALL, tool_call=CALL))
    data += made.chunk(chunk(kind=ChunkKind.TOOL_CALL, tool_call=CALL))
    thought, call, other = (one["choices"][0]["delta"] for one in events(data))
    assert thought == {"role": "assistant", "content": "", "reasoning": "hm"}
    assert call["tool_calls"][0]["index"] == 0
    assert other["tool_calls"][0]["index"] == 1
    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}


@pytest.mark.parametrize("kind", [ChatWriter, CompletionWriter])
def test_a_piece_that_says_nothing_is_nothing(kind):
    assert writer(kind).chunk(chunk()) == b""
    assert writer(kind).chunk(chunk("x", "odd")) == b""


@pytest.mark.parametrize("kind", [ChatWriter, CompletionWriter])
def test_a_stream_that_breaks_does_not_end_cleanly(kind):
    (event,) = events(writer(kind).broken(no(Reason.ENGINE_FAILED, "it broke")))
    assert event["error"]["message"] == "it broke"


@pytest.mark.parametrize("kind", [ChatWriter, CompletionWriter])
def test_padding_is_skipped_by_every_reader(kind):
    assert writer(kind).padding.startswith(b":")
    assert writer(kind).padding.endswith(b"\n\n")
    made = writer(kind, stream=False)
    assert json.loads(made.padding * 3 + made.whole(reply()))
    assert json.loads(made.padding + made.broken(no(Reason.ENGINE_FAILED, "x")))["error"]


def test_a_document():
    said = json.loads(writer(stream=False).whole(reply(finish_reason=FinishReason.LENGTH)))
    assert said["object"] == "chat.completion"
    assert said["id"].startswith("chatcmpl-")
    (choice,) = said["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hi"}
    assert choice["finish_reason"] == "length"
    assert said["usage"]["total_tokens"] == 9


def test_a_document_with_all_there_is():
    whole = reply(
        thinking="hm",
        tool_calls=[CALL],
        finish_reason=FinishReason.TOOL_CALLS,
        timings=Timings(queue_ms=1.0, e2e_ms=9.0, cached_tok=3),
        logprobs=[LOGPROB],
    )
    said = json.loads(writer(stream=False).whole(whole))
    (choice,) = said["choices"]
    assert choice["message"]["reasoning"] == "hm"
    assert choice["message"]["tool_calls"][0]["type"] == "function"
    assert choice["finish_reason"] == "tool_calls"
    assert choice["logprobs"]["content"] == [
        {
            "token": "é",
            "logprob": -0.5,
            "bytes": [195, 169],
            "top_logprobs": [{"token": "e", "logprob": -1.0, "bytes": [101]}],
        }
    ]
    assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


def test_logprobs_go_with_their_piece():
    (event,) = events(writer().chunk(chunk("é", logprobs=[LOGPROB])))
    assert event["choices"][0]["logprobs"]["content"][0]["token"] == "é"
    (event,) = events(writer(CompletionWriter).chunk(chunk("é", logprobs=[LOGPROB])))
    assert event["choices"][0]["logprobs"]["tokens"] == ["é"]
    assert event["choices"][0]["logprobs"]["top_logprobs"] == [{"e": -1.0}]


def test_an_end_that_the_api_does_not_know_is_the_natural_one():
    said = json.loads(writer(stream=False).whole(reply(finish_reason="tired")))
    assert said["choices"][0]["finish_reason"] == "stop"


def test_completions():
    made = writer(CompletionWriter)
    piece, end, _ = events(made.chunk(chunk("H")) + made.end(reply()))
    assert (piece["object"], piece["choices"][0]["text"]) == ("text_completion", "H")
    assert end["choices"][0]["finish_reason"] == "stop"
    assert made.chunk(chunk("hm", ChunkKind.THINKING)) == b""
    said = json.loads(writer(CompletionWriter, stream=False).whole(reply()))
    assert said["choices"][0]["text"] == "Hi"
    assert said["id"].startswith("cmpl-")
