"""`POST /api/chat`."""

import json
from typing import Any

import pytest

from onegate.protocol.content import Message
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk, LoadExchange, TextAsk, TextExchange
from onegate_ollama_proxy.dialects.ollama.answer import ChatWriter
from onegate_ollama_proxy.dialects.ollama.chat import parse_chat

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def parse(**body: Any) -> Any:
    return parse_chat(json.dumps({"model": "tiny", "messages": HI} | body).encode())


def test_what_is_not_said() -> None:
    ask, writer = parse()
    assert ask == TextAsk(
        model="tiny", stream=True, messages=(Message(role="user", content="Hi"),), truncate=True
    )
    assert isinstance(writer, ChatWriter)


def test_what_is() -> None:
    body = {"stream": False, "truncate": False, "think": "low", "tools": [TOOL]}
    ask, _ = parse(**body, options={"num_ctx": 512, "seed": 1}, keep_alive=-1)
    assert (ask.stream, ask.truncate, ask.think, ask.context_tok) == (False, False, "low", 512)
    assert [tool.function.name for tool in ask.tools] == ["f"]
    assert ask.params.seed == 1
    assert ask.notices == ("keep_alive is accepted and left out",)


@pytest.mark.parametrize("messages", [[], None])
def test_without_messages_it_only_loads(messages: Any) -> None:
    found = parse(messages=messages, stream=True)
    assert isinstance(found, LoadExchange)
    said = json.loads(found.document(1))
    assert said["message"] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "missing request body"),
        (b"{", "not understood"),
        (b"[]", "not understood"),
        (b"{}", "model is required"),
        (b'{"model": 5}', "model"),
        (b'{"model":"m","messages":"x"}', "messages"),
        (b'{"model":"m","messages":' + b"[" * 100_000, "nested too deeply"),
        (b'{"model":"m\xff"}', "not understood"),
    ],
)
def test_what_is_no_request(body: bytes, sentence: str) -> None:
    with pytest.raises(BadAsk) as error:
        parse_chat(body)
    assert sentence in str(error.value)


def test_a_tool_that_would_leave_the_machine() -> None:
    with pytest.raises(BadAsk) as error:
        parse(tools=[{"type": "web_search"}])
    assert error.value.reason is Reason.BOUNDARY_REFUSED


def test_it_is_an_exchange_for_text() -> None:
    assert isinstance(parse(), TextExchange)
