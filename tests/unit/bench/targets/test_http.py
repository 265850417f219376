"""What statuses and documents mean."""

import pytest

pytest.importorskip("aiohttp", reason="absent aiohttp: pip install 'onegate[bench]'")

from onegate.bench.targets.base import Broke, Facts, Refused, TargetError
from onegate.bench.targets.http import chosen, document, event_of, failure, number


@pytest.mark.parametrize(
    ("status", "after", "kind", "ms"),
    [
        (429, "2", Refused, 2000.0),
        (503, None, Refused, None),
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
    for data in (b"[]", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError, match=r".*"):
            document(data)
        with pytest.raises(Broke, match="malformed"):
            event_of(data)


def test_a_count_is_a_whole_number_or_not_known() -> None:
    assert [number({"n": value}, "n") for value in (3, True, "3", None)] == [3, None, None, None]


def test_a_model_is_the_one_asked_for_else_the_first() -> None:
    assert chosen(None, ["a", "b"], "u") == Facts(model="a")
    assert chosen("b", ["a", "b"], "u") == Facts(model="b")
    with pytest.raises(TargetError, match="has no model c; it has a, b"):
        chosen("c", ["a", "b"], "u")
