"""The codec's complaints in words of this project."""

import msgspec
import pytest

from onegate.protocol.explain import MAX_QUOTED, explain, quoted
from onegate.protocol.messages import Generate


@pytest.mark.parametrize(
    ("field", "complaint", "path", "sentence"),
    [
        (
            "params",
            "Expected `float` <= 2.0 - at `$.temperature`",
            "params.temperature",
            "is wrong: expected `float` <= 2.0",
        ),
        ("raw", "Expected `bool`, got `None`", "raw", "is wrong: expected `bool`, got `nil`"),
        (
            "tool_choice",
            "Invalid enum value 'secret'",
            "tool_choice",
            "must be one of: auto, none, required",
        ),
        (
            "messages",
            "Invalid value 'secret' - at `$[2].content[0].type`",
            "messages[2].content[0].type",
            "must be one of: text, image",
        ),
        (
            "tool_choice",
            "Object contains unknown field `x\x1b` - at `$.function`",
            r"tool_choice.function.'x\x1b'",
            "is no field of tool_choice.function: it has name",
        ),
        (
            "tool_choice",
            "Object contains unknown field `nom` - at `$.function`",
            "tool_choice.function.nom",
            "is no field of tool_choice.function: it has name",
        ),
        (
            "prompt",
            "Expected `str | null`, got `ext`",
            "prompt",
            "is wrong: expected `str | nil`, got `ext`",
        ),
        (
            "tool_choice",
            "Object missing required field `function`",
            "tool_choice.function",
            "is missing",
        ),
        ("tools", "MessagePack data is malformed: secret", "tools", "cannot be read"),
        ("tools", "Expected `str` - at `key` in `$[0]`", "tools[0]", "is wrong: expected `str`"),
    ],
)
def test_complaints(field: str, complaint: str, path: str, sentence: str) -> None:
    assert explain(Generate, field, complaint) == (path, sentence)


def test_the_codec_still_complains_in_these_words() -> None:
    for given, said in (
        ({"id": 1, "tool_choice": {}}, "Object missing required field `function`"),
        ({"id": 1, "params": {"x": 1}}, "Object contains unknown field `x` - at `$.params`"),
        ({"id": 1, "tool_choice": "x"}, "Invalid enum value 'x' - at `$.tool_choice`"),
    ):
        with pytest.raises(msgspec.ValidationError) as error:
            msgspec.msgpack.decode(msgspec.msgpack.encode(given | {"t": "generate"}), type=Generate)
        assert str(error.value).startswith(said)


def test_quoted_names_are_ascii_and_short() -> None:
    assert quoted("ü\n") == r"'\xfc\n'"
    assert len(quoted("x" * 1000)) == MAX_QUOTED + len("'...'")
