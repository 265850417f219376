"""What an answer is made of, over one run of the engine or several."""

from typing import Any

import pytest

from onegate.engines.base import EngineChunk, Finished
from onegate.protocol import messages as m
from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    FunctionCall,
    Identity,
    TokenLogprob,
    ToolCall,
    Usage,
)
from onegate.server.answer import Answer, merged, timings
from onegate.server.live import LiveRequest

IDENTITY = Identity(engine="played", model="tiny")
CALL = ToolCall(id="c", function=FunctionCall(name="add", arguments="{}"))
END = Finished(finish_reason=FinishReason.LENGTH, usage=Usage(prompt_tok=12, output_tok=99))
MS = 1_000_000


class Listener:
    principal = "uid:1"
    uid = 1
    overflowing = False

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send(self, message: Any) -> None:
        self.heard.append(message)


@pytest.fixture
def client() -> Listener:
    return Listener()


@pytest.fixture
def live(client: Listener) -> LiveRequest:
    made = LiveRequest(client=client, id=3, serial=1, rid="b-1", verb="generate", arrived_ns=0)
    made.granted_ns = 10 * MS
    return made


def answer(live: LiveRequest, *, stream: bool = True, ids: bool = False) -> Answer:
    made = Answer(live, stream=stream, want_tok_ids=ids)
    made.runs = 1
    return made


def test_a_stream_goes_on_at_once(client: Listener, live: LiveRequest) -> None:
    made = answer(live)
    assert not made.seen
    made.add(EngineChunk(n_tok=2, text="ab", token_ids=[1, 2]), 30 * MS)
    assert client.heard == [m.Chunk(id=3, n_tok=2, text="ab")]
    assert made.seen
    assert (live.output_tok, live.first_text_ns) == (2, 30 * MS)
    assert (made.tok_ids, made.shown_chars) == ([1, 2], 2)


def test_token_ids_are_for_those_who_sent_some(client: Listener, live: LiveRequest) -> None:
    answer(live, ids=True).add(EngineChunk(n_tok=1, text="a", token_ids=[1]), 0)
    assert client.heard[0].token_ids == [1]


def test_the_first_token_is_the_first_that_shows(live: LiveRequest) -> None:
    made = answer(live)
    made.add(EngineChunk(n_tok=1), 20 * MS)
    assert live.first_text_ns is None
    made.add(EngineChunk(n_tok=1, tool_call=CALL, kind=ChunkKind.TOOL_CALL), 30 * MS)
    made.add(EngineChunk(n_tok=1, text="a"), 40 * MS)
    assert live.first_text_ns == 30 * MS
    assert live.output_tok == 3


def test_without_a_stream_all_comes_at_the_end(client: Listener, live: LiveRequest) -> None:
    made = answer(live, stream=False)
    made.add(EngineChunk(n_tok=1, text="a"), 20 * MS)
    made.add(EngineChunk(n_tok=1, text="b"), 21 * MS)
    assert client.heard == []
    assert not made.seen
    made.finish(END, IDENTITY, 30 * MS)
    chunk, done = client.heard
    assert chunk == m.Chunk(id=3, n_tok=2, text="ab")
    assert done.usage == Usage(prompt_tok=12, output_tok=2)


def test_the_end(client: Listener, live: LiveRequest) -> None:
    made = answer(live)
    made.add(EngineChunk(n_tok=1, text="a"), 20 * MS)
    live.work.cached_tok = 4
    made.notices.append(m.Notice(code="engine_restarted", detail="it was"))
    made.runs = 3
    made.finish(END, IDENTITY, 30 * MS)
    done = client.heard[-1]
    assert (done.id, done.rid, done.finish_reason) == (3, "b-1", FinishReason.LENGTH)
    assert done.identity is IDENTITY
    assert [notice.code for notice in done.notices] == ["engine_restarted"]
    assert (done.timings.cached_tok, done.timings.preempted) == (4, 2)


def test_beginning_again_forgets_what_nobody_saw(client: Listener, live: LiveRequest) -> None:
    made = answer(live, stream=False)
    made.add(EngineChunk(n_tok=1, text="a", token_ids=[1]), 20 * MS)
    made.restart()
    assert (live.output_tok, live.first_text_ns) == (0, None)
    assert (made.tok_ids, made.shown_chars) == ([], 0)
    made.add(EngineChunk(n_tok=1, text="b"), 25 * MS)
    made.finish(END, IDENTITY, 30 * MS)
    assert [chunk.text for chunk in client.heard[:-1]] == ["b"]
    assert client.heard[-1].usage.output_tok == 1


def test_held_until_it_begins_anew(client: Listener, live: LiveRequest) -> None:
    made = answer(live)
    made.hold()
    made.add(EngineChunk(n_tok=1, text="a", token_ids=[1]), 20 * MS)
    assert (client.heard, made.seen) == ([], False)
    made.restart()
    made.add(EngineChunk(n_tok=1, text="b", token_ids=[2]), 25 * MS)
    assert [chunk.text for chunk in client.heard] == ["b"]
    assert (made.seen, made.tok_ids, live.output_tok) == (True, [2], 1)


def test_held_until_the_end(client: Listener, live: LiveRequest) -> None:
    made = answer(live)
    made.hold()
    made.add(EngineChunk(n_tok=1, text="a"), 20 * MS)
    made.finish(END, IDENTITY, 30 * MS)
    chunk, done = client.heard
    assert chunk == m.Chunk(id=3, n_tok=1, text="a")
    assert done.usage.output_tok == 1


def test_without_a_stream_it_stays_so_when_it_begins_anew(
    client: Listener, live: LiveRequest
) -> None:
    made = answer(live, stream=False)
    made.restart()
    made.add(EngineChunk(n_tok=1, text="a"), 20 * MS)
    assert client.heard == []


def test_one_chunk_for_each_kind_and_each_tool_call() -> None:
    def chunk(**fields: Any) -> m.Chunk:
        return m.Chunk(id=3, n_tok=1, **fields)

    prob = TokenLogprob(token="a", logprob=-1.0)
    call = chunk(kind=ChunkKind.TOOL_CALL, tool_call=CALL)
    made = merged(
        [
            chunk(kind=ChunkKind.THINKING, text="h"),
            chunk(text="a", token_ids=[1], logprobs=[prob]),
            call,
            chunk(kind=ChunkKind.THINKING, text="m"),
            chunk(text="b", token_ids=[2]),
            call,
        ]
    )
    assert made == [
        m.Chunk(id=3, n_tok=2, kind=ChunkKind.THINKING, text="hm"),
        m.Chunk(id=3, n_tok=2, text="ab", token_ids=[1, 2], logprobs=[prob]),
        call,
        call,
    ]
    assert merged([]) == []


def test_where_the_time_went(live: LiveRequest) -> None:
    live.first_text_ns = 30 * MS
    live.output_tok = 5
    spent = timings(live, 70 * MS, preempted=0)
    assert (spent.queue_ms, spent.ttft_ms, spent.prefill_ms) == (10, 30, 20)
    assert (spent.decode_ms, spent.e2e_ms) == (40, 70)
    assert spent.tok_per_s == 100
    assert spent.cached_tok is None
    assert spent.predicted_wait_ms is None
    live.predicted_ns = 25 * MS
    assert timings(live, 70 * MS, preempted=0).predicted_wait_ms == 25


def test_what_did_not_happen_took_no_time(live: LiveRequest) -> None:
    live.granted_ns = None
    spent = timings(live, 70 * MS, preempted=0)
    assert (spent.queue_ms, spent.e2e_ms) == (70, 70)
    assert (spent.ttft_ms, spent.prefill_ms, spent.decode_ms, spent.tok_per_s) == (None,) * 4


def test_one_token_has_no_rate(live: LiveRequest) -> None:
    live.first_text_ns, live.output_tok = 30 * MS, 1
    assert timings(live, 70 * MS, preempted=0).tok_per_s is None
    live.output_tok = 2
    assert timings(live, 30 * MS, preempted=0).tok_per_s is None
