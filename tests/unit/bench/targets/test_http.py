"""What statuses and documents mean."""

import pytest

pytest.importorskip("aiohttp", reason="absent aiohttp: pip install 'onegate[http]'")

from onegate.bench.targets.base import Broke, Facts, Refused, TargetError
from onegate.bench.targets.http import (
    chosen,
    counted,
    document,
    event_of,
    failure,
    named,
    number,
    usage,
    word,
)


@pytest.mark.parametrize(
    ("status", "after", "kind", "ms"),
    [
        (429, "2", Refused, 2000.0),
        (503, None, Refused, None),
        (429, "9" * 20, Refused, 86_400_000.0),
        (429, "9" * 400, Refused, None),
        (429, "\u00b2", Refused, None),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", Refused, None),
        (400, None, Refused, None),
        (500, None, Broke, None),
        (302, None, Broke, None),
    ],
)
def test_statuses(status: int, after: str | None, kind: type, ms: float | None) -> None:
    found = failure(status, after)
    assert isinstance(found, kind)
    assert str(found) == f"http_{status}"
    assert getattr(found, "retry_after_ms", None) == ms


def test_documents_are_objects() -> None:
    assert document(b'{"a": 1}') == {"a": 1}
    surrogate = b'{"a": "\\ud800", "b": "long enough"}'
    for data in (b"[]", b"{", b"\xff", b"[" * 100_000, surrogate):
        with pytest.raises(ValueError, match=r".*"):
            document(data)
        with pytest.raises(Broke, match="malformed"):
            event_of(data)


def test_a_count_is_one_or_not_known() -> None:
    assert [number({"n": value}, "n") for value in (3, 0, None)] == [3, 0, None]
    assert number({}, "n") is None
    for value in (True, "3", -1, 10**23, 1.5):
        with pytest.raises(ValueError, match="n is no number of tokens"):
            number({"n": value}, "n")
        with pytest.raises(Broke, match="malformed"):
            usage({"n": value}, "n", "m")
        with pytest.raises(TargetError, match="u cannot be reckoned with"):
            counted({"n": value}, "n", "u")


def test_names_are_texts_of_some_length() -> None:
    rows = [{"id": "a"}, {"id": 5}, {}, 7]
    assert named(rows, "id") == [{"id": "a"}]
    assert named(None, "id") == []
    assert word({"v": "x" * 1000}, "v") == "x" * 200
    assert word({"v": 5}, "v") == ""
    with pytest.raises(TargetError) as caught:
        chosen("none", ["n" * 5000] * 1000, "u")
    assert len(str(caught.value)) < 5000
    assert "and 980 more" in str(caught.value)


def test_a_model_is_the_one_asked_for_else_the_first() -> None:
    assert chosen(None, ["a", "b"], "u") == Facts(model="a")
    assert chosen("b", ["a", "b"], "u") == Facts(model="b")
    with pytest.raises(TargetError, match="has no model c; it has a, b"):
        chosen("c", ["a", "b"], "u")
