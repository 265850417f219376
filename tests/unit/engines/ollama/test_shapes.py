"""What is read of Ollama's answers is bounded, and nothing else is needed."""

import pytest

from onegate.engines.base import EngineMalformed
from onegate.engines.http.documents import document
from onegate.engines.ollama.shapes import (
    Line,
    Loaded,
    PsAnswer,
    ShowAnswer,
    TagsAnswer,
    VersionAnswer,
)


def test_unknown_fields_are_skipped():
    found = document(b'{"models":[{"name":"a","later":{"x":[1]}}],"more":1}', TagsAnswer)
    assert found.models[0].name == "a"


def test_no_models_is_null_there():
    assert document(b'{"models":null}', PsAnswer).models is None


def test_what_is_zero_is_left_out():
    line = document(b'{"done":true}', Line)
    assert (line.load_duration, line.eval_count, line.done_reason) == (0, None, "")


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (b'{"name":"a","size":-1}', Loaded),
        (b'{"name":"a","size_vram":1e30}', Loaded),
        (b'{"name":"' + b"x" * 5000 + b'"}', Loaded),
        (b'{"name":"a\\nb"}', Loaded),
        (b'{"models":[{"name":"a\\u001b[2J"}]}', TagsAnswer),
        (b'{"models":[{"name":"a","digest":"d\\u009b"}]}', TagsAnswer),
        (b'{"version":"1.2.3\\n"}', VersionAnswer),
        (b'{"eval_count":4294967296}', Line),
        (b'{"message":{"tool_calls":[{"function":{"name":""}}]}}', Line),
        (b'{"capabilities":"all"}', ShowAnswer),
    ],
)
def test_what_is_out_of_bounds_is_malformed(data, shape):
    with pytest.raises(EngineMalformed):
        document(data, shape)
