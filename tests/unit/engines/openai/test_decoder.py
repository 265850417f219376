import msgspec
import pytest

from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineMalformed,
    EngineTooLarge,
    EngineUnavailable,
    Finished,
    Progress,
)
from onegate.engines.openai.decoder import StreamDecoder
from onegate.protocol.content import ChunkKind, FinishReason


def decode(*events, end=True, **given):
    given = {"prompt_bytes": 40, "max_tokens": 10, "limit_tok": 100} | given
    decoder, items = StreamDecoder(**given), []
    for event in events:
        data = event if isinstance(event, bytes) else msgspec.json.encode(event)
        items += decoder.line(b"data: " + data)
        items += decoder.line(b"")
    if end and not (items and isinstance(items[-1], Finished)):
        items += decoder.end()
    return items


def delta(finish=None, **given):
    return {"choices": [{"index": 0, "delta": given, "finish_reason": finish}]}


def usage(prompt, output, **given):
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output, **given}}


def test_an_answer():
    items = decode(
        delta(role="assistant", content=None),
        delta(content="a"),
        delta(reasoning_content="hm"),
        delta("stop"),
        usage(7, 3, prompt_tokens_details={"cached_tokens": 5}),
    )
    assert items[0] == Accepted()
    assert [(i.text, i.kind) for i in items if isinstance(i, EngineChunk) and i.text] == [
        ("a", ChunkKind.TEXT),
        ("hm", ChunkKind.THINKING),
    ]
    assert sum(i.n_tok for i in items if isinstance(i, EngineChunk)) == 3
    end = items[-1]
    assert (end.finish_reason, end.usage.prompt_tok, end.cached_tok) == (FinishReason.STOP, 7, 5)


def test_a_running_count_says_what_a_piece_stands_for():
    piece = delta(content="abc") | {"usage": {"prompt_tokens": 1, "completion_tokens": 3}}
    items = decode(piece, delta("length"), usage(1, 3))
    assert [i.n_tok for i in items if isinstance(i, EngineChunk)] == [3]


@pytest.mark.parametrize("said", [None, 987_654, 0])
def test_a_count_that_cannot_be_is_not_taken(said):
    items = decode(*[delta(content="a")] * 4, delta("stop"), usage(None, said))
    assert items[-1].usage.output_tok == 4
    assert items[-1].usage.prompt_tok == 11


def test_the_end_may_come_without_its_last_word():
    assert decode(delta(content="a"), delta("length"))[-1].finish_reason is FinishReason.LENGTH
    assert decode(delta(content="a"), delta("length"), b"[DONE]")[-1].usage.output_tok == 1


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([delta(content="a")], EngineBroke),
        ([delta(content="a"), b"[DONE]"], EngineBroke),
        ([delta("abort")], EngineBroke),
        ([delta("stop"), delta(content="more")], EngineMalformed),
        ([delta("stop"), delta(reasoning="more")], EngineMalformed),
        ([{"choices": [{"index": 1}]}], EngineMalformed),
        ([b"{"], EngineMalformed),
        ([b'{"choices": [{"delta": {"content": "\xe6"}}]}'], EngineMalformed),
        ([b'{"x": ' + b"[" * 100_000], EngineMalformed),
        ([{"error": {"message": "full", "code": 503}}], EngineUnavailable),
        ([delta(content="a"), {"error": "broken"}], EngineBroke),
    ],
)
def test_what_is_no_answer(events, kind):
    with pytest.raises(kind):
        decode(*events)


def test_progress_and_a_prompt_that_leaves_no_room():
    def progress(total, done, cache=0):
        return {
            "choices": [],
            "prompt_progress": {"total": total, "cache": cache, "processed": done},
        }

    items = decode(
        progress(50, 0, 4), progress(50, 20), progress(50, 50), delta(content="a"), delta("stop")
    )
    assert items[:2] == [Accepted(prompt_tok=50, cached_tok=4), Progress(prefilled_tok=20)]
    assert items[-1].cached_tok == 4
    with pytest.raises(EngineTooLarge) as error:
        decode(progress(95, 0))
    assert error.value.need_tok == 105
    assert decode(progress(95, 0), end=False, fits=True)


def test_logprobs_of_both_routes():
    token = {"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "b", "logprob": -2.0}]}
    chat = delta(content="a")
    chat["choices"][0]["logprobs"] = {"content": [token]}
    old = {"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-1.0]}}]}
    items = decode(chat, old, delta("stop"), top_logprobs=1)
    first, second = [i.logprobs[0] for i in items if isinstance(i, EngineChunk)]
    assert (first.logprob, first.top[0].token) == (-1.0, "b")
    assert (second.logprob, second.top) == (-1.0, None)


def test_log_probabilities_that_nobody_asked_for_are_left_out():
    top = [{"token": str(i), "logprob": -1.0} for i in range(9)]
    chat = delta(content="a")
    chat["choices"][0]["logprobs"] = {
        "content": [{"token": "a", "logprob": -1.0, "top_logprobs": top}] * 7
    }
    old = {
        "tokens": ["a"],
        "token_logprobs": [-1.0],
        "top_logprobs": [{str(i): -1.0 for i in range(9)}],
    }
    for asked, n_top in ((None, None), (0, 0), (2, 2)):
        chunk = decode(chat, end=False, top_logprobs=asked)[1]
        if asked is None:
            assert (chunk.logprobs, chunk.n_tok) == (None, 1)
        else:
            assert len(chunk.logprobs[0].top or ()) == n_top
    (_, chunk) = decode({"choices": [{"text": "a", "logprobs": old}]}, end=False, top_logprobs=3)
    assert len(chunk.logprobs[0].top) == 3


def test_a_prompt_is_no_longer_than_the_context():
    assert decode(delta(content="a"), delta("stop"), usage(900, 1))[-1].usage.prompt_tok == 100
    items = decode(delta(content="a"), delta("stop"), prompt_bytes=4000)
    assert items[-1].usage.prompt_tok == 100


def test_tool_calls():
    def calls(index, **function):
        return delta(tool_calls=[{"index": index, "id": "c", "function": function}])

    items = decode(calls(0, name="f", arguments="{"), calls(0, arguments="}"), delta("tool_calls"))
    (call,) = [i.tool_call for i in items if isinstance(i, EngineChunk) and i.tool_call]
    assert (call.function.name, call.function.arguments) == ("f", "{}")
    assert items[-1].finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{}] * 65},
        delta(tool_calls=[{"index": 0, "function": {"name": "f"}}] * 257),
    ],
)
def test_an_event_that_is_many_is_none(event):
    with pytest.raises(EngineMalformed, match="event"):
        decode(event)
