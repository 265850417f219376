"""What HTTP servers may send: whatever it is, it becomes items in their order, or a typed error."""

import contextlib

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from onegate.engines.base import (
    Accepted,
    EngineChunk,
    EngineError,
    Finished,
    Progress,
)
from onegate.engines.http.allowance import Allowance
from onegate.engines.http.boundary import Address, is_local, parse_address
from onegate.engines.http.lines import Lines
from onegate.engines.http.link import retry_after_ms
from onegate.engines.ollama.answer import AnswerReader
from onegate.engines.ollama.refusal import refusal
from onegate.engines.openai.decoder import StreamDecoder
from onegate.engines.openai.exposition import gauges
from onegate.engines.openai.refusal import refusal_of

MAX_TOK = 8
WORDS = {
    "openai": (
        *("choices", "delta", "content", "reasoning", "reasoning_content", "tool_calls", "index"),
        *("id", "function", "name", "arguments", "finish_reason", "usage", "prompt_tokens", "text"),
        *("completion_tokens", "prompt_tokens_details", "cached_tokens", "error", "message"),
        *("code", "prompt_progress", "total", "cache", "processed", "logprobs", "token"),
        *("logprob", "top_logprobs", "tokens", "token_logprobs", "n_prompt_tokens", "n_ctx"),
    ),
    "ollama": (
        *("message", "content", "thinking", "response", "tool_calls", "function", "name", "id"),
        *("arguments", "done", "done_reason", "error", "remote_host", "load_duration", "logprobs"),
        *("prompt_eval_count", "eval_count", "token", "logprob", "top_logprobs"),
    ),
}
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["stop", "length", "load", "a", "", "503", "w0 ", "²"])
    | st.text(max_size=5)
)


def documents(words):
    """JSON that is about the right things."""
    keys = st.sampled_from(words)
    inner = st.recursive(
        VALUES,
        lambda v: st.lists(v, max_size=3) | st.dictionaries(keys, v, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(keys, inner, max_size=5)


OPENAI = st.sampled_from(
    [
        {"choices": [{"delta": {"role": "assistant", "content": None}}]},
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"reasoning": "hm"}}]},
        {"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-1.0]}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 70_000}},
        {"choices": [], "prompt_progress": {"total": 5, "cache": 1, "processed": 2}},
        {"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}}]},
        {"error": {"message": "no", "code": 503}},
    ]
)
OLLAMA = st.sampled_from(
    [
        {"message": {"content": "a"}, "done": False},
        {"message": {"thinking": "hm", "content": "a"}, "done": False},
        {"response": "a", "done": False},
        {"message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}},
        {"done": True, "done_reason": "stop", "eval_count": 70_000, "prompt_eval_count": 3},
        {"done": True, "done_reason": "length"},
        {"error": "no"},
    ]
)


def as_json(document):
    return msgspec.json.encode(document) if not isinstance(document, bytes) else document


def pieces_of(data, cuts):
    at = 0
    for cut in cuts:
        yield data[at : at + cut]
        at += cut
    yield data[at:]


def read(decoder, data, cuts):
    """As the exchange reads it; the items, and whether it was to the end."""
    items, lines, allowance = [], Lines(max_total_bytes=1 << 20), Allowance(MAX_TOK)

    def take(found):
        for item in found:
            if items and isinstance(items[-1], Finished):
                return
            if isinstance(item, EngineChunk):
                item = allowance.spent(item)
            elif isinstance(item, Finished):
                item = allowance.ended(item)
            items.append(item)

    with contextlib.suppress(EngineError):
        for piece in pieces_of(data, cuts):
            for line in lines.feed(piece):
                take(decoder.line(line))
        if rest := lines.rest():
            take(decoder.line(rest))
        if not (items and isinstance(items[-1], Finished)):
            take(decoder.end())
    return items


def check(items):
    kinds = [type(item) for item in items]
    assert kinds[:1] in ([], [Accepted])
    assert kinds.count(Accepted) <= 1
    assert kinds.count(Finished) <= 1
    if EngineChunk in kinds:
        assert Progress not in kinds[kinds.index(EngineChunk) :]
    n_tok = sum(item.n_tok for item in items if isinstance(item, EngineChunk))
    assert 0 <= n_tok <= MAX_TOK
    if kinds[-1:] == [Finished]:
        assert items[-1].usage.output_tok == n_tok
        assert 0 <= items[-1].usage.prompt_tok <= 100
    for item in items:
        msgspec.msgpack.encode(item)  # what goes on to clients is text that can be encoded


CUTS = st.lists(st.integers(0, 40), max_size=8)


@given(
    events=st.lists(OPENAI | documents(WORDS["openai"]) | st.binary(max_size=20), max_size=14),
    cuts=CUTS,
    top=st.none() | st.integers(0, 3),
)
@settings(deadline=None)
def test_whatever_a_server_of_the_openai_api_says(events, cuts, top):
    data = b"".join(b"data: " + as_json(event) + b"\n\n" for event in events)
    decoder = StreamDecoder(
        prompt_bytes=9, max_tokens=MAX_TOK, limit_tok=100, fits=True, top_logprobs=top
    )
    check(read(decoder, data + b"data: [DONE]\n\n", cuts))


class Ear:
    def answered_from(self, host):
        assert host.isprintable()

    def waited_for_load(self, load_ms):
        assert load_ms >= 0


@given(
    lines=st.lists(OLLAMA | documents(WORDS["ollama"]) | st.binary(max_size=20), max_size=14),
    cuts=CUTS,
)
@settings(deadline=None)
def test_whatever_an_ollama_says(lines, cuts):
    data = b"".join(as_json(line) + b"\n" for line in lines)
    check(read(AnswerReader(1, max_context_tok=100, ear=Ear()), data, cuts))


@given(status=st.integers(201, 599), body=st.binary(max_size=200), after=st.none() | st.floats(0))
@settings(deadline=None)
def test_whatever_an_error_is_it_means_something(status, body, after):
    for error in (refusal_of(status, body, after), refusal(status, body)):
        assert isinstance(error, EngineError)
        assert str(error).isprintable()


@given(document=documents(WORDS["openai"]), status=st.integers(400, 599))
@settings(deadline=None)
def test_whatever_is_in_an_error(document, status):
    body = msgspec.json.encode({"error": document})
    for error in (refusal_of(status, body, None), refusal(status, body)):
        assert isinstance(error, EngineError)
        assert str(error).isprintable()


@given(data=st.binary(max_size=200), cuts=CUTS)
def test_lines_are_the_same_whatever_the_pieces(data, cuts):
    whole, cut = (Lines(max_total_bytes=1 << 20) for _ in range(2))
    expected = whole.feed(data)
    found = [line for piece in pieces_of(data, cuts) for line in cut.feed(piece)]
    assert (found, cut.rest()) == (expected, whole.rest())


@given(text=st.text(max_size=80) | st.from_regex(r"[A-Z][a-z]{2}, [0-9 ]{1,4}[A-Za-z]{3}.{0,30}"))
def test_a_time_to_come_back_is_a_time_or_none(text):
    found = retry_after_ms(text, 0)
    assert found is None or 0 <= found <= 86_400_000


@given(data=st.binary(max_size=200) | st.from_regex(rb'a(\{b="[^\n]*"\})? [-+0-9.eE]{1,50}\n'))
def test_figures_are_numbers_or_left_out(data):
    for rows in gauges(data, {"a"}).values():
        assert all(0 <= value <= 1e12 for _, value in rows)


URLS = st.from_regex(r"(https?|unix)://?[^\x00]{0,30}") | st.text(max_size=30)


@given(url=URLS)
def test_an_address_is_one_or_a_sentence(url):
    with contextlib.suppress(ValueError):
        found = parse_address(url)
        assert isinstance(found, Address)
        assert found.host
        is_local(found.host)
