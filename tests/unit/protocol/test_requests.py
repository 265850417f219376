"""What a client may send."""

from typing import get_args

import msgspec
import pytest
from msgspec import msgpack

from onegate.protocol.messages import ClientMessage, Generate, Hello, OnBehalf

REQUESTS = [kind for kind in get_args(ClientMessage) if kind is not Hello]


@pytest.mark.parametrize("kind", [*REQUESTS, Hello, OnBehalf], ids=lambda kind: kind.__name__)
def test_unknown_fields_are_refused(kind: type) -> None:
    assert kind.__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_every_request_has_an_id_of_32_bits(kind: type) -> None:
    for request_id, taken in ((0, True), (2**32 - 1, True), (2**32, False), (-1, False)):
        try:
            msgspec.convert({"id": request_id}, kind)
        except msgspec.ValidationError as error:
            complaint = str(error)
        else:
            complaint = ""
        assert ("$.id" not in complaint) is taken
    with pytest.raises(msgspec.ValidationError, match="`id`"):
        msgspec.convert({}, kind)


def test_what_has_its_default_is_not_written() -> None:
    assert msgpack.decode(msgpack.encode(Generate(id=1, prompt="a"))) == {
        "t": "generate",
        "id": 1,
        "prompt": "a",
    }


@pytest.mark.parametrize("n", [2**20, 2**20 + 1])
def test_token_ids_are_bounded_by_their_count(n: int) -> None:
    payload = msgpack.encode({"t": "generate", "id": 1, "prompt_token_ids": [1] * n})
    if n <= 2**20:
        assert msgpack.decode(payload, type=Generate)
    else:
        with pytest.raises(msgspec.ValidationError, match="1048576"):
            msgpack.decode(payload, type=Generate)
