"""From lines to items."""

import json

import pytest

from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineMalformed,
    EngineTooLarge,
    Finished,
)
from onegate.engines.ollama.answer import AnswerReader
from onegate.protocol.content import ChunkKind, FinishReason, Usage


class Ear:
    def __init__(self, refuses=False):
        self.hosts, self.loads_ms, self.refuses = [], [], refuses

    def answered_from(self, host):
        self.hosts.append(host)
        if self.refuses:
            raise EngineBroke("not from there")

    def waited_for_load(self, load_ms):
        self.loads_ms.append(load_ms)


def reader(ear=None, *, context=100, logprobs=False):
    return AnswerReader(7, max_context_tok=context, ear=ear or Ear(), want_logprobs=logprobs)


def chat(content="", done=False, **given):
    message = {"role": "assistant", "content": content} | given.pop("message", {})
    return json.dumps({"model": "m", "message": message, "done": done} | given).encode()


def last(**given):
    given = {"done_reason": "stop", "prompt_eval_count": 9, "eval_count": 2} | given
    return chat(done=True, **given)


def read(answer, *lines):
    return [item for line in lines for item in answer.line(line)]


def test_a_chat_from_acceptance_to_its_end():
    ear = Ear()
    items = read(reader(ear), chat("Hi"), chat(" you"), last(load_duration=30_000_000))
    assert items == [
        Accepted(),
        EngineChunk(n_tok=1, text="Hi"),
        EngineChunk(n_tok=1, text=" you"),
        Finished(finish_reason=FinishReason.STOP, usage=Usage(prompt_tok=9, output_tok=2)),
    ]
    assert ear.loads_ms == [30.0]


def test_generate_has_its_text_elsewhere():
    lines = (
        b'{"response":"a","done":false}',
        b'{"response":"","done":true,"done_reason":"length","eval_count":1,"context":[1,2]}',
    )
    items = read(reader(), *lines)
    assert items[1] == EngineChunk(n_tok=1, text="a")
    assert items[2].finish_reason is FinishReason.LENGTH
    assert items[2].usage == Usage(prompt_tok=0, output_tok=1)


def test_blank_lines_say_nothing():
    answer = reader()
    assert read(answer, b"", b"   ", b"\t") == []
    assert read(answer, chat("a"))[0] == Accepted()


def test_empty_deltas_are_tokens_and_what_is_missing_at_the_end_is_one_chunk():
    items = read(reader(), chat(""), chat("x"), last(eval_count=5))
    assert [item.n_tok for item in items if isinstance(item, EngineChunk)] == [1, 1, 3]
    assert items[-1].usage.output_tok == 5


def test_usage_is_never_less_than_what_was_said():
    items = read(reader(), chat("a"), chat("b"), chat("c"), last(eval_count=1))
    assert sum(item.n_tok for item in items if isinstance(item, EngineChunk)) == 3
    assert items[-1].usage.output_tok == 3


def test_text_of_the_last_line_counts_as_its_tokens():
    line = json.dumps({"response": "all", "done": True, "done_reason": "stop", "eval_count": 3})
    items = read(reader(), line.encode())
    assert items[1].text == "all"
    assert sum(item.n_tok for item in items[1:-1]) == 3


def test_thoughts_are_told_apart_and_a_token_of_both_is_one():
    items = read(
        reader(),
        chat("", message={"thinking": "hm"}),
        chat("so", message={"thinking": "."}),
        last(eval_count=2),
    )
    kinds = [(item.kind, item.text, item.n_tok) for item in items[1:-1]]
    assert kinds == [
        (ChunkKind.THINKING, "hm", 1),
        (ChunkKind.THINKING, ".", 1),
        (ChunkKind.TEXT, "so", 0),
    ]


def test_a_tool_call_is_passed_on_as_it_was_written():
    calls = (
        b'[{"function":{"name":"f","arguments":{"b": 1, "a": 2}}},'
        b'{"id":"x","function":{"name":"g","arguments":{}}}]'
    )
    line = b'{"message":{"content":"","tool_calls":' + calls + b'},"done":false}'
    items = read(reader(), line, last(eval_count=30))
    one, two, rest = items[1:-1]
    assert (one.tool_call.id, two.tool_call.id) == ("call_7_0", "x")
    assert one.tool_call.function.arguments == '{"b": 1, "a": 2}'
    assert one.kind is ChunkKind.TOOL_CALL
    assert rest.n_tok == 28
    assert items[-1].finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize("arguments", [b'"text"', b"[1]", b"null"])
def test_arguments_that_are_no_object_are_malformed(arguments):
    line = b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":' + arguments + b"}}]}}"
    with pytest.raises(EngineMalformed):
        read(reader(), line)


def test_logprobs_are_told_to_who_asked():
    line = chat(
        "a",
        logprobs=[{"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -2}]}],
    )
    (chunk,) = read(reader(logprobs=True), line)[1:]
    assert (chunk.logprobs[0].token, chunk.logprobs[0].logprob) == ("a", -0.5)
    assert chunk.logprobs[0].top[0].token == "b"
    assert read(reader(), line)[1].logprobs is None


def test_an_error_line_ends_it():
    answer = reader()
    read(answer, chat("a"))
    with pytest.raises(EngineBroke, match="out of paper"):
        read(answer, b'{"error":"out of paper"}')


def test_an_error_line_comes_before_anything_else_too():
    with pytest.raises(EngineBroke):
        read(reader(), b'{"error":""}')


def test_a_clean_end_without_done_is_none():
    answer = reader()
    read(answer, chat("a"))
    with pytest.raises(EngineBroke, match="done"):
        answer.end()


def test_an_answer_that_ollama_gave_up_says_why():
    answer = reader(context=1000)
    read(answer, chat("Hi"), *[chat(" \n" * (n % 2)) for n in range(31)])
    with pytest.raises(EngineBroke, match="over and over"):
        answer.end()
    read(answer, chat("Hi"))
    with pytest.raises(EngineBroke, match=r"that it is done$"):
        answer.end()


@pytest.mark.parametrize(
    "line",
    [
        b"<html>",
        b"[]",
        b'"text"',
        b'{"message": 5}',
        b'{"message":{"content":"\xff"}}',
        b'{"done": "yes"}',
        b'{"done": true, "done_reason": "stop", "eval_count": -1}',
        b'{"done": true, "done_reason": "stop", "eval_count": 1e99}',
        b'{"done": true, "done_reason": "stop", "load_duration": -5}',
        b'{"done": true, "done_reason": "load"}',
        b'{"done": true}',
        b"[" * 100_000,
        b'{"x":' + b"[" * 100_000,
    ],
)
def test_what_is_none_of_ollamas_is_malformed(line):
    with pytest.raises(EngineMalformed):
        read(reader(), line)


def test_a_prompt_that_was_cut_to_fit_is_no_answer():
    with pytest.raises(EngineTooLarge) as error:
        read(reader(context=100), chat("a"), last(prompt_eval_count=100))
    assert (error.value.need_tok, error.value.limit_tok) == (101, 100)
    assert read(reader(context=100), last(prompt_eval_count=99))


def test_the_host_of_an_answer_is_told_and_may_end_it():
    ear = Ear()
    read(reader(ear), chat("a", remote_host="https://ollama.com:443"))
    assert ear.hosts == ["https://ollama.com:443"]
    answer = reader(Ear(refuses=True))
    with pytest.raises(EngineBroke):
        read(answer, chat("a", remote_host="x"))


def test_a_tool_call_that_is_no_utf8_is_malformed():
    line = b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"a":"\xff"}}}]}}'
    with pytest.raises(EngineMalformed, match="UTF-8"):
        read(reader(), line)


def test_more_alternatives_than_anybody_asks_for_are_left_out():
    one = {"token": "a", "logprob": -1.0}
    (_, chunk) = read(
        reader(logprobs=True), chat("a", logprobs=[one | {"top_logprobs": [one] * 50}])
    )
    assert len(chunk.logprobs[0].top) == 20
