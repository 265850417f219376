import msgspec
import pytest

from onegate.engines.base import EngineMalformed
from onegate.engines.http.documents import check_sparse, document, encode, short


class Shape(msgspec.Struct):
    n: int


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"n": "x"}', b'{"n": 1}x', b"\xff", b"<html>", b"[" * 100_000]
)
def test_what_is_no_such_document_is_malformed(data):
    with pytest.raises(EngineMalformed):
        document(data, Shape)


def test_there_and_back():
    assert document(encode(Shape(n=5)), Shape) == Shape(n=5)


def test_somebody_elses_text_is_one_short_line():
    assert short("a\n\x1b[31mb\tc  d") == "a [31mb c d"
    assert short(b"\xff ok") == "\ufffd ok"
    assert len(short("x" * 10_000)) == 300


def test_a_document_of_more_parts_than_it_may_have():
    check_sparse(b'{"a": [[1], [2]]}', 4)
    with pytest.raises(EngineMalformed, match="more parts"):
        check_sparse(b'{"a": [[1], [2]]}', 3)
