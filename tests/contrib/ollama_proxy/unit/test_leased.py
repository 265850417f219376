"""What a request under a lease asks for."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from onegate.client.errors import Unavailable
from onegate.protocol.errors import Reason
from onegate.tasks import Tasks
from onegate_ollama_proxy.answering import Answering
from onegate_ollama_proxy.config import Config
from onegate_ollama_proxy.leased import (
    MESSAGES,
    RESPONSES,
    Leased,
    LeasedFrame,
    Work,
    estimate_tok,
    read,
    tool_types,
)
from onegate_ollama_proxy.refused import Refused, no


def refused(body, kind=RESPONSES):
    with pytest.raises(Refused) as error:
        read(body if isinstance(body, bytes) else json.dumps(body).encode(), kind)
    assert error.value.no.status == 400
    return error.value.no


def test_the_fields_are_those_that_were_sent():
    body = {"model": "m", "input": "Hi", "stream": True, "tools": [{"type": "function"}]}
    assert read(json.dumps(body).encode(), RESPONSES) == body


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"model":' + b"[" * 100_000])
def test_what_is_no_object(body):
    assert "body" in refused(body).sentence


@pytest.mark.parametrize("body", [{}, {"model": ""}, {"model": 3}, {"model": None}])
def test_a_model_is_named(body):
    assert refused(body).path == "model"


@pytest.mark.parametrize(
    "body",
    [
        {"model": "local", "MODEL": "x:cloud"},
        {"model": "local", "Tools": [{"type": "web_search"}]},
        {"model": "local", "Tool\u017f": [{"type": "web_search"}]},
        {"model": "local", "Max_Output_Tokens": 10**6},
        {"model": "local", "tools": [{"type": "function", "Type": "web_search"}]},
    ],
)
def test_nothing_is_read_otherwise_by_ollama_than_here(body):
    assert "small letters" in refused(body).sentence


def test_of_several_fields_of_one_name_the_last_goes_on():
    fields = read(b'{"model":"x:cloud","model":"local"}', RESPONSES)
    assert fields == {"model": "local"}


@pytest.mark.parametrize("tools", ["x", [1], [{"type": 2}]])
def test_tools_of_another_shape(tools):
    assert (refused({"model": "m", "tools": tools}).path or "").startswith("tools")


def test_the_types_of_tools():
    body = {"model": "m", "tools": [{"type": "web_search_20250305"}, {"name": "f"}]}
    assert tool_types(read(json.dumps(body).encode(), MESSAGES)) == ["web_search_20250305"]
    assert tool_types({"model": "m"}) == []


def test_tokens_are_estimated_from_the_text():
    assert estimate_tok({"a": "x" * 400, "b": [{"text": "y" * 400}, 7, None, True]}) == 200
    assert estimate_tok({}) == 1


def test_an_image_is_not_counted_by_its_bytes():
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    assert estimate_tok({"content": [{"type": "image", "source": source}]}) < 2000
    url = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 1_000_000}
    assert estimate_tok({"content": [url]}) < 2000


def test_what_is_nested_without_end_is_refused():
    value: object = "x"
    for _ in range(100):
        value = [value]
    with pytest.raises(Refused):
        estimate_tok(value)


@pytest.mark.parametrize("kind", [RESPONSES, MESSAGES])
def test_what_goes_around_an_answer(kind):
    why = no(Reason.INVALID, "sorry")
    stream = LeasedFrame(kind, stream=True)
    # A line that begins with a colon is a comment, and an empty one alone is no event.
    assert stream.padding.startswith(b":")
    assert stream.padding.endswith(b"\n\n")
    event, _, data = stream.broken(why).rpartition(b"data: ")
    assert event in (b"", b"event: error\n")
    assert data.endswith(b"\n\n")
    whole = LeasedFrame(kind, stream=False)
    document = json.loads(whole.padding * 3 + whole.broken(why))
    assert document == json.loads(data)
    assert document["error"]["message"] == "sorry"


class Held:
    """A lease of a gate that goes away at the end."""

    async def ended(self) -> None:
        await asyncio.Event().wait()

    async def settle(self, usage: Any) -> None:
        raise Unavailable("gone")


class Whole:
    """An Ollama whose answer is all there."""

    @asynccontextmanager
    async def open(self, *request: Any):
        async def iter_any():
            yield b"{}"

        yield SimpleNamespace(
            status=200,
            headers={"Content-Type": "application/json"},
            content_length=2,
            content=SimpleNamespace(iter_any=iter_any),
        )


async def test_an_answer_is_whole_although_its_use_cannot_be_told(asked, caplog):
    tasks = Tasks(lambda name, error: None)
    leased = Leased(RESPONSES, None, boundary=None, config=Config(), tasks=tasks)
    one = asked(path="/v1/responses")
    frame = LeasedFrame(RESPONSES, stream=False)
    answering = Answering(one.request, frame, stream=False, pad_after_s=None, tasks=tasks)
    work = Work("m", 1, 1, b"{}")
    with caplog.at_level(logging.WARNING):
        said = await leased._carry(one.request, Whole(), Held(), work, answering)
    assert (said.status, one.written.body, one.written.ended) == (200, b"{}", True)
    assert "could not be told" in caplog.text
