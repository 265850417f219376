import pytest

from onegate.engines.lines import LineSplitter


@pytest.fixture
def lines():
    return []


@pytest.fixture
def splitter(lines):
    return LineSplitter(lines.append)


def test_lines_however_they_arrive(splitter, lines):
    for piece in (b"on", b"e\ntw", b"o\n\nthree"):
        splitter.data_received(piece)
    assert lines == ["one", "two"]
    splitter.connection_lost(None)
    assert lines == ["one", "two", "three"]
    assert splitter.last == "three"


def test_nothing_of_a_terminal_gets_through(splitter, lines):
    splitter.data_received(b"\x1b[31mred\x00\r\n\xff\xfe\n \n")
    assert lines == ["[31mred", "��"]
    assert splitter.last == "��"


def test_a_line_without_end_is_cut(splitter, lines):
    splitter.data_received(b"x" * 10_000)
    assert [len(line) for line in lines] == [4096, 4096]
    splitter.data_received(b"y" * 5000 + b"\n")
    assert all(len(line) <= 4096 for line in lines)
    assert sum(map(len, lines)) == 15_000
