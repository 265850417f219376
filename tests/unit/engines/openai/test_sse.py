import pytest

from onegate.engines.base import EngineMalformed
from onegate.engines.openai.sse import Events


def read(*lines):
    events = Events()
    return [data for line in lines if (data := events.line(line)) is not None]


def test_events_and_what_is_skipped():
    assert read(b": hi", b"event: x", b"id: 1", b"retry: 5", b"data: a", b"", b"data:b", b"") == [
        b"a",
        b"b",
    ]
    assert read(b"data: a", b"data:  b", b"", b"", b"") == [b"a\n b"]


def test_an_event_that_the_end_cuts_off():
    events = Events()
    events.line(b"data: [DONE]")
    assert events.rest() == b"[DONE]"
    assert events.rest() is None


@pytest.mark.parametrize("line", [b"<html>", b'{"error": "x"}', b"dat: x", b"\x00"])
def test_what_is_no_event_stream(line):
    with pytest.raises(EngineMalformed, match="no event stream"):
        read(line)


def test_an_event_of_many_lines_has_a_bound():
    events = Events()
    events.line(b"data: " + b"x" * ((1 << 20) - 1))
    with pytest.raises(EngineMalformed, match="longer"):
        events.line(b"data: x")


def test_empty_lines_of_an_event_count_as_well(monkeypatch):
    monkeypatch.setattr("onegate.engines.openai.sse.MAX_LINE_BYTES", 3)
    events = Events()
    for _ in range(3):
        events.line(b"data:")
    with pytest.raises(EngineMalformed, match="longer"):
        events.line(b"data:")
