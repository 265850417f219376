"""Finding the text that is not UTF-8."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw, msgpack

from onegate.protocol.content import Message
from onegate.protocol.locate import MAX_FIELDS, bad_text, decoder, n_fields, not_utf8

MESSAGES = list[Message]


def raw(value: object) -> Raw:
    return Raw(msgpack.encode(value).replace(b"@@", b"\xff\xff"))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([{"role": "user", "content": "@@"}], "[0].content"),
        ([{"role": "user"}, {"role": "user", "name": "@@"}], "[1].name"),
        ([{"role": "user", "content": [{"type": "text", "text": "@@"}]}], "[0].content[0].text"),
        ([{"@@": 1}], "[0]"),
        ("@@", ""),
        ([{"role": "user", "content": "good"}], ""),
    ],
)
def test_the_first_bad_text_is_found(value: Any, path: str) -> None:
    assert bad_text(MESSAGES, raw(value)) == path


def test_another_mistake_before_it_is_not_taken_for_it() -> None:
    assert (
        bad_text(MESSAGES, raw([{"role": 5}, {"role": "user", "content": "@@"}])) == "[1].content"
    )


def test_a_map_of_many_names_is_not_taken_apart() -> None:
    names = {f"f{i}": i for i in range(MAX_FIELDS)}
    assert bad_text(MESSAGES, raw([{"role": "@@"} | names])) == "[0]"


@pytest.mark.parametrize("size", [0, 15, 16, 65_535, 65_536])
def test_the_size_of_a_map_is_read_from_its_head(size: int) -> None:
    payload = msgpack.encode(dict.fromkeys(range(size)))
    assert n_fields(payload) == n_fields(memoryview(payload)) == size


@pytest.mark.parametrize("value", [[], "a", 5, None, b"x"])
def test_what_is_no_map_has_no_size(value: Any) -> None:
    assert n_fields(msgpack.encode(value)) is None


@pytest.mark.parametrize("hint", [str, dict[str, int]])
def test_the_codec_still_says_so_in_these_words(hint: type) -> None:
    data = {"@@": 1} if hint is not str else "@@"
    with pytest.raises((msgspec.MsgspecError, ValueError)) as error:
        decoder(hint).decode(raw(data))
    assert not_utf8(error.value)
