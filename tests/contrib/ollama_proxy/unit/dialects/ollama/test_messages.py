"""Messages and images of Ollama's routes."""

import base64
from typing import Any

import pytest

from onegate.protocol.content import ImagePart, Message, TextPart
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects.ollama.messages import messages_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_conversation() -> None:
    said = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "Hi", "strange": 1},
        {"role": "assistant", "content": "Well", "thinking": "hm"},
        {"role": "user"},
    ]
    assert messages_of(said) == (
        Message(role="system", content="be kind"),
        Message(role="user", content="Hi"),
        Message(role="assistant", content="Well", thinking="hm"),
        Message(role="user", content=""),
    )


def test_calls_and_what_answers_them() -> None:
    call = {"function": {"name": "f", "arguments": {"city": "Köln", "n": 1}, "index": 0}}
    other = {"id": "c2", "function": {"name": "g"}}
    said: list[Any] = [
        {"role": "assistant", "content": "", "tool_calls": [call, other]},
        {"role": "tool", "content": "9", "tool_name": "g"},
        {"role": "tool", "content": "7"},
        {"role": "tool", "content": "5", "tool_call_id": "c9"},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "1", "name": "h"},
    ]
    first, *rest = messages_of(said)
    assert first.tool_calls is not None
    assert [c.function.name for c in first.tool_calls] == ["f", "g"]
    assert first.tool_calls[0].function.arguments == '{"city":"Köln","n":1}'
    assert [c.id for c in first.tool_calls] == ["", "c2"]
    assert first.tool_calls[1].function.arguments == "{}"
    # By its own word, else the next that was called, else by the call's id, else some name.
    assert [(turn.name, turn.tool_call_id) for turn in rest] == [
        ("g", None),
        ("f", None),
        (None, "c9"),
        ("tool", None),
        ("h", None),
    ]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"BM..", "image/bmp"),
        (b"RIFF0000WEBPVP8 ", "image/webp"),
    ],
)
def test_images_say_themselves_what_they_are(data: bytes, kind: str) -> None:
    (turn,) = messages_of([{"role": "user", "content": "look", "images": [encoded(data)]}])
    assert turn.content == [TextPart(text="look"), ImagePart(data=data, media_type=kind)]


def test_an_image_without_words() -> None:
    (turn,) = messages_of([{"role": "user", "images": [encoded(PNG)]}])
    assert turn.content == [ImagePart(data=PNG, media_type="image/png")]


@pytest.mark.parametrize(
    ("turn", "path"),
    [
        (5, "messages[0]"),
        ({}, "messages[0]"),
        ({"role": "robot"}, "messages[0].role"),
        ({"role": "user", "content": ["x"]}, "messages[0].content"),
        ({"role": "user", "images": ["%%"]}, "messages[0].images[0]"),
        ({"role": "user", "images": [encoded(b"what")]}, "messages[0].images[0]"),
        ({"role": "user", "images": [encoded(b"RIFF0000WAVE")]}, "messages[0].images[0]"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": ""}}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_what_is_wrong_is_named(turn: Any, path: str) -> None:
    with pytest.raises(BadAsk) as error:
        messages_of([turn])
    assert error.value.path == path
