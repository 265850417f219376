"""The fields of a body, one by one."""

from typing import Any

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.fields import (
    MAX_NOTICES,
    Fields,
    convert,
    notices_of,
    unsupported,
)


def test_a_field_is_taken_once_and_null_is_absence() -> None:
    fields = Fields(b'{"a": 1, "b": null, "c": "x", "d": [1]}')
    assert (fields.take("a", int), fields.take("a", int), fields.take("b", int)) == (1, None, None)
    assert fields.need("c", str) == "x"
    assert fields.raw("d") == [1]
    assert fields.left() == {}
    assert Fields(b'{"e": 1, "f": null}').left() == {"e": 1}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "missing request body"),
        (b" \n", "missing request body"),
        (b"{", "not understood"),
        (b"5", "not understood"),
        (b'{"a":"\xff"}', "not understood"),
        (b'{"a":' * 50_000, "nested too deeply"),
    ],
)
def test_what_is_no_object(body: bytes, sentence: str) -> None:
    with pytest.raises(BadAsk, match=sentence):
        Fields(body)


def test_what_is_missing_or_wrong_is_named() -> None:
    with pytest.raises(BadAsk) as error:
        Fields(b"{}").need("model", str)
    assert (str(error.value), error.value.path) == ("model is required", "model")
    with pytest.raises(BadAsk) as error:
        Fields(b'{"a": {"b": ["x"]}}').take("a", dict[str, list[int]])
    assert (error.value.path or "").startswith("a")
    value: Any = convert(["x"], list[str], "p")
    assert value == ["x"]


def test_sentences() -> None:
    assert unsupported("a", "no").reason is Reason.UNSUPPORTED


def test_what_is_left_out_is_said_and_not_without_end() -> None:
    found = notices_of(["num_gpu", "top_a", "\x1b[2J", "\x1b[3J"], {"o.num_gpu"}, "o.")
    assert found == [
        "o.num_gpu is accepted and left out",
        "o.top_a is not known here and was left out",
        "a field with a strange name is not known here and was left out",
    ]
    many = notices_of((f"x{i}" for i in range(10**5)), ())
    assert len(many) == MAX_NOTICES + 1
    assert many[-1] == f"{10**5 - MAX_NOTICES} more were left out"
