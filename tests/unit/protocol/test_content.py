"""The shapes that cross both wires."""

import msgspec
import pytest
from msgspec import UNSET, msgpack

from onegate.protocol import content as c


@pytest.mark.parametrize("field", msgspec.structs.fields(c.Params), ids=lambda f: f.name)
def test_unset_is_not_nil(field: msgspec.structs.FieldInfo) -> None:
    assert getattr(c.Params(), field.name) is UNSET
    with pytest.raises(msgspec.ValidationError):
        msgpack.decode(msgpack.encode({field.name: None}), type=c.Params)


@pytest.mark.parametrize(
    ("media_type", "taken"),
    [
        ("image/png", True),
        ("image/svg+xml", True),
        ("image/png\n", False),
        ("image/", False),
        ("text/html", False),
        ("image/PNG", False),
        (" image/png", False),
    ],
)
def test_images_are_images(media_type: str, taken: bool) -> None:
    part = msgpack.encode({"type": "image", "data": b"x", "media_type": media_type})
    if taken:
        assert msgpack.decode(part, type=c.ImagePart).media_type == media_type
    else:
        with pytest.raises(msgspec.ValidationError):
            msgpack.decode(part, type=c.ImagePart)


@pytest.mark.parametrize("field", ["content", "tool_calls"])
def test_a_message_has_a_bounded_number_of_parts(field: str) -> None:
    part = {
        "content": {"type": "text", "text": ""},
        "tool_calls": {"id": "", "function": {"name": "f", "arguments": ""}},
    }[field]
    for n in (256, 257):
        message = msgpack.encode({"role": "assistant", field: [part] * n})
        if n == 256:
            assert msgpack.decode(message, type=c.Message)
        else:
            with pytest.raises(msgspec.ValidationError, match="256"):
                msgpack.decode(message, type=c.Message)


@pytest.mark.parametrize(
    "shape", [c.Params, c.Message, c.Tool, c.ResponseFormat, c.ToolCall, c.ForcedTool]
)
def test_what_a_caller_writes_is_read_strictly(shape: type) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `x`"):
        msgspec.convert({"x": 1}, shape)


@pytest.mark.parametrize("shape", [c.Usage, c.Identity, c.TokenLogprob, c.TopLogprob])
def test_what_an_engine_says_may_grow(shape: type) -> None:
    assert not shape.__struct_config__.forbid_unknown_fields  # type: ignore[attr-defined]
