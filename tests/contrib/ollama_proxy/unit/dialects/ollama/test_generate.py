"""`POST /api/generate`."""

import base64
import json
from typing import Any

import pytest

from onegate.protocol.content import ImagePart, Message, TextPart
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk, LoadExchange, TextAsk
from onegate_ollama_proxy.dialects.ollama.context import pack
from onegate_ollama_proxy.dialects.ollama.generate import parse_generate

GIF = b"GIF89a"
PICTURE = base64.b64encode(GIF).decode()
BEFORE = pack([("user", "a"), ("assistant", "b")])


def parse(**body: Any) -> Any:
    return parse_generate(json.dumps({"model": "tiny", "prompt": "Hi"} | body).encode())


def turns_of(found: Any) -> Any:
    return found.writer._turns


def test_a_prompt_is_a_prompt() -> None:
    found = parse()
    assert found.ask == TextAsk(model="tiny", stream=True, prompt="Hi", truncate=True)
    assert turns_of(found) == [("user", "Hi")]


def test_a_system_message_goes_before_it() -> None:
    found = parse(system="be kind")
    assert found.ask.prompt is None
    assert found.ask.messages == (
        Message(role="system", content="be kind"),
        Message(role="user", content="Hi"),
    )
    assert turns_of(found) == [("system", "be kind"), ("user", "Hi")]


def test_a_conversation_goes_on() -> None:
    found = parse(context=BEFORE, system="left out: the conversation has begun")
    assert [(turn.role, turn.content) for turn in found.ask.messages] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "Hi"),
    ]
    assert turns_of(found)[-1] == ("user", "Hi")


def test_images_go_with_it() -> None:
    picture = ImagePart(data=GIF, media_type="image/gif")
    assert parse(images=[PICTURE]).ask.messages == (
        Message(role="user", content=[TextPart(text="Hi"), picture]),
    )
    assert parse(images=[PICTURE], prompt="").ask.messages == (
        Message(role="user", content=[picture]),
    )


def test_raw_and_suffix_have_no_conversation() -> None:
    raw, suffix = parse(raw=True), parse(suffix="end")
    assert (raw.ask.raw, raw.ask.prompt, turns_of(raw)) == (True, "Hi", None)
    assert (suffix.ask.suffix, suffix.ask.prompt, turns_of(suffix)) == ("end", "Hi", None)


@pytest.mark.parametrize("body", [{"prompt": ""}, {"prompt": None}])
def test_without_a_prompt_it_only_loads(body: dict[str, Any]) -> None:
    found = parse(**body)
    assert isinstance(found, LoadExchange)
    assert json.loads(found.document(1))["response"] == ""
    assert parse(**body, keep_alive=0).ask.unload is True


@pytest.mark.parametrize(
    ("body", "path", "reason"),
    [
        ({"raw": True, "system": "x"}, "raw", Reason.INVALID),
        ({"raw": True, "template": "x"}, "raw", Reason.INVALID),
        ({"raw": True, "context": BEFORE}, "raw", Reason.INVALID),
        ({"raw": True, "images": [PICTURE]}, "images", Reason.UNSUPPORTED),
        ({"template": "{{ .Prompt }}"}, "template", Reason.UNSUPPORTED),
        ({"suffix": "x", "system": "y"}, "suffix", Reason.UNSUPPORTED),
        ({"suffix": "x", "images": [PICTURE]}, "suffix", Reason.UNSUPPORTED),
        ({"context": [1, 2, 3]}, "context", Reason.UNSUPPORTED),
        ({"context": ["x"]}, "context[0]", Reason.INVALID),
        ({"images": ["%"]}, "images[0]", Reason.INVALID),
        ({"prompt": 5}, "prompt", Reason.INVALID),
    ],
)
def test_what_is_refused(body: dict[str, Any], path: str, reason: Reason) -> None:
    with pytest.raises(BadAsk) as error:
        parse(**body)
    assert (error.value.path, error.value.reason) == (path, reason)


def test_an_empty_template_is_none() -> None:
    assert parse(template="", system="").ask.prompt == "Hi"
