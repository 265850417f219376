import pytest

from onegate.engines.base import EngineMalformed
from onegate.engines.http.lines import Lines

TEXT = b"one\ntwo\r\nthree\rfour\n\nsix\r\n\r\nrest"
EXPECTED = [b"one", b"two", b"three", b"four", b"", b"six", b""]


@pytest.mark.parametrize("size", [1, 2, 3, 5, len(TEXT)])
def test_lines_whatever_the_pieces(size):
    lines = Lines(max_total_bytes=1000)
    found = []
    for at in range(0, len(TEXT), size):
        found += lines.feed(TEXT[at : at + size])
    assert found == EXPECTED
    assert lines.rest() == b"rest"


def test_an_empty_piece_between_cr_and_lf_changes_nothing():
    lines = Lines(max_total_bytes=100)
    assert lines.feed(b"a\r") + lines.feed(b"") + lines.feed(b"\nb\n") == [b"a", b"b"]


def test_a_line_has_a_bound_finished_or_not():
    for data in (b"x" * 11, b"x" * 11 + b"\n", b"\n" + b"x" * 11 + b"\nok"):
        with pytest.raises(EngineMalformed, match="line"):
            Lines(max_total_bytes=1000, max_line_bytes=10).feed(data)
    assert Lines(max_total_bytes=1000, max_line_bytes=10).feed(b"x" * 10 + b"\n") == [b"x" * 10]


def test_a_line_in_pieces_is_not_kept_beyond_its_bound():
    lines = Lines(max_total_bytes=1 << 30, max_line_bytes=10)
    for _ in range(10):
        lines.feed(b"x")
    with pytest.raises(EngineMalformed):
        lines.feed(b"x")
    assert len(lines.rest()) <= 11


def test_all_of_it_has_a_bound():
    lines = Lines(max_total_bytes=44)
    lines.feed(b"12345\n")
    with pytest.raises(EngineMalformed, match="44 bytes"):
        lines.feed(b"6789012")


def test_empty_lines_cost_something_too():
    lines = Lines(max_total_bytes=330)
    assert lines.feed(b"\n" * 10) == [b""] * 10
    with pytest.raises(EngineMalformed, match="330 bytes"):
        lines.feed(b"\n")
