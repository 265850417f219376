"""Answers in Ollama's shapes."""

import json
from datetime import datetime
from typing import Any

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
from onegate_ollama_proxy.dialects.ollama.answer import (
    ChatWriter,
    EmbeddingWriter,
    EmbedWriter,
    GenerateWriter,
    loaded,
    now,
)
from onegate_ollama_proxy.dialects.ollama.context import unpack
from onegate_ollama_proxy.refused import Refused, no

CALL = ToolCall(id="c1", function=FunctionCall(name="f", arguments='{"a": 1}'))
LOGPROB = TokenLogprob(token="é", logprob=-0.5, top=[TopLogprob(token="a", logprob=-1.0)])


def reply(**fields: Any) -> Reply:
    given: dict[str, Any] = {
        "text": "Hi",
        "thinking": "",
        "tool_calls": [],
        "finish_reason": FinishReason.STOP,
        "usage": Usage(prompt_tok=7, output_tok=2),
        "timings": Timings(queue_ms=1.5, e2e_ms=10.0, prefill_ms=2.0, decode_ms=6.0),
        "notices": [],
        "identity": Identity(engine="e", model="m"),
        "rid": "r",
        "token_ids": [],
        "logprobs": [],
    }
    return Reply(**(given | fields))


def chunk(text: str = "", **fields: Any) -> Chunk:
    return Chunk(id=1, n_tok=1, text=text, **fields)


def line(data: bytes) -> dict[str, Any]:
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    found: dict[str, Any] = json.loads(data)
    datetime.fromisoformat(found.pop("created_at"))
    return found


FIGURES = {
    "total_duration": 10_000_000,
    "load_duration": 1_500_000,
    "prompt_eval_count": 7,
    "prompt_eval_duration": 2_000_000,
    "eval_count": 2,
    "eval_duration": 6_000_000,
}


def test_a_chat_in_pieces() -> None:
    writer = ChatWriter("tiny:latest")
    assert line(writer.chunk(chunk("Hi"))) == {
        "model": "tiny:latest",
        "message": {"role": "assistant", "content": "Hi"},
        "done": False,
    }
    assert line(writer.chunk(chunk("hm", kind=ChunkKind.THINKING)))["message"] == {
        "role": "assistant",
        "content": "",
        "thinking": "hm",
    }
    assert line(writer.end(reply())) == {
        "model": "tiny:latest",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        **FIGURES,
    }


def test_tool_calls_are_whole_and_counted() -> None:
    writer = ChatWriter("m")
    for index in range(2):
        said = line(writer.chunk(chunk(kind=ChunkKind.TOOL_CALL, tool_call=CALL)))
        assert said["message"]["tool_calls"] == [
            {"id": "c1", "function": {"index": index, "name": "f", "arguments": {"a": 1}}}
        ]
        assert said["done"] is False
    last = line(writer.end(reply(finish_reason=FinishReason.TOOL_CALLS)))
    assert last["done_reason"] == "stop"


@pytest.mark.parametrize("arguments", ["[1]", "{", "x", "5"])
def test_a_call_whose_arguments_are_no_object_is_a_failure(arguments: str) -> None:
    call = ToolCall(id="", function=FunctionCall(name="f", arguments=arguments))
    with pytest.raises(Refused) as error:
        ChatWriter("m").chunk(chunk(kind=ChunkKind.TOOL_CALL, tool_call=call))
    assert error.value.no.reason is Reason.ENGINE_FAILED
    with pytest.raises(Refused):
        ChatWriter("m").whole(reply(tool_calls=[call]))


def test_a_call_without_arguments_has_none() -> None:
    call = ToolCall(id="", function=FunctionCall(name="f", arguments=""))
    said = json.loads(ChatWriter("m").whole(reply(tool_calls=[call])))
    assert said["message"]["tool_calls"] == [
        {"function": {"index": 0, "name": "f", "arguments": {}}}
    ]


def test_a_chat_as_a_whole() -> None:
    said = json.loads(ChatWriter("m").whole(reply(thinking="hm", tool_calls=[CALL])))
    assert said["message"]["content"] == "Hi"
    assert said["message"]["thinking"] == "hm"
    assert said["message"]["tool_calls"][0]["function"]["name"] == "f"
    assert (said["done"], said["done_reason"]) == (True, "stop")
    assert FIGURES.items() <= said.items()


def test_a_piece_that_says_nothing_is_no_line() -> None:
    assert ChatWriter("m").chunk(chunk()) == b""
    assert GenerateWriter("m", None).chunk(chunk()) == b""


def test_log_probabilities() -> None:
    for writer in (ChatWriter("m"), GenerateWriter("m", None)):
        said = line(writer.chunk(chunk("é", logprobs=[LOGPROB])))
        assert said["logprobs"] == [
            {
                "token": "é",
                "logprob": -0.5,
                "bytes": [195, 169],
                "top_logprobs": [{"token": "a", "logprob": -1.0, "bytes": [97]}],
            }
        ]
        assert json.loads(writer.whole(reply(logprobs=[LOGPROB])))["logprobs"] == said["logprobs"]


def test_what_is_zero_or_not_known_is_left_out() -> None:
    timings = Timings(queue_ms=0.0, e2e_ms=10.0)
    said = line(
        ChatWriter("m").end(reply(timings=timings, usage=Usage(prompt_tok=0, output_tok=1)))
    )
    assert said.keys() & FIGURES.keys() == {"total_duration", "eval_count"}


def test_an_answer_that_was_cut() -> None:
    said = line(ChatWriter("m").end(reply(finish_reason=FinishReason.LENGTH)))
    assert said["done_reason"] == "length"


def test_generate_in_pieces_gives_the_conversation_back() -> None:
    writer = GenerateWriter("m", [("user", "Hello")])
    assert line(writer.chunk(chunk("Hi"))) == {"model": "m", "response": "Hi", "done": False}
    thought = line(writer.chunk(chunk("hm", kind=ChunkKind.THINKING)))
    assert (thought["response"], thought["thinking"]) == ("", "hm")
    last = line(writer.end(reply()))
    assert (last["response"], last["done"]) == ("", True)
    assert unpack(last["context"]) == [("user", "Hello"), ("assistant", "Hi")]


def test_generate_as_a_whole() -> None:
    said = json.loads(GenerateWriter("m", None).whole(reply(thinking="hm")))
    assert (said["response"], said["thinking"], said["done"]) == ("Hi", "hm", True)
    assert "context" not in said


def test_a_stream_that_breaks_ends_with_an_error_line() -> None:
    broken = ChatWriter("m").broken(no(Reason.ENGINE_FAILED, 'it "broke"\nin two'))
    assert json.loads(broken) == {"error": 'it "broke"\nin two'}
    assert broken.count(b"\n") == 1
    assert broken.endswith(b"\n")


def test_blanks_may_stand_before_a_line_and_no_line_is_empty() -> None:
    assert b"\n" not in ChatWriter.padding
    assert json.loads(ChatWriter.padding * 3 + ChatWriter("m").whole(reply()))["done"] is True


def test_vectors() -> None:
    usage = Usage(prompt_tok=4, output_tok=0)
    assert json.loads(EmbedWriter("m").whole([[1.0], [2.0]], usage, 9)) == {
        "model": "m",
        "embeddings": [[1.0], [2.0]],
        "total_duration": 9,
        "prompt_eval_count": 4,
    }
    assert json.loads(EmbeddingWriter().whole([[1.0]], usage, 9)) == {"embedding": [1.0]}


def test_what_was_only_loaded() -> None:
    said = json.loads(loaded("m", "load", {"response": ""}, 5))
    assert (said["response"], said["done"], said["done_reason"]) == ("", True, "load")
    assert (said["total_duration"], said["load_duration"]) == (5, 5)


def test_the_time_is_in_utc_to_the_millisecond() -> None:
    assert now().endswith("Z")
    assert datetime.fromisoformat(now()).tzinfo is not None
