"""Tokens that are produced a second time."""

import pytest

from onegate.engines.host.again import Again, whole_text
from onegate.engines.host.pipeline import ReadTokens

EURO = list("\u20ac".encode())
FACE = list("\U0001f600".encode())


def of_bytes(ids):
    return bytes(ids)


def test_a_text_is_taken_up_to_its_last_whole_character():
    assert whole_text([], of_bytes) == ("", 0)
    assert whole_text([97, 98], of_bytes) == ("ab", 2)
    assert whole_text([97, *EURO], of_bytes) == ("a\u20ac", 4)
    for cut in (1, 2):
        assert whole_text([97, *EURO[:cut]], of_bytes) == ("a", 1)
    for cut in (1, 2, 3):
        assert whole_text(FACE[:cut], of_bytes) == ("", 0)


def test_a_token_may_end_one_character_and_begin_another():
    pieces = {0: bytes(EURO[:2]), 1: bytes(EURO[2:] + FACE[:1]), 2: bytes(FACE[1:])}

    def bytes_of(ids):
        return b"".join(pieces[id] for id in ids)

    assert whole_text([0, 1, 2], bytes_of) == ("\u20ac\U0001f600", 3)
    assert whole_text([0, 1], bytes_of) == ("", 0)
    assert whole_text([0], bytes_of) == ("", 0)


def test_what_is_no_text_is_said():
    for ids in ([97, 128, 97, 97, 97, 97], [255, 255, 255, 255, 255]):
        with pytest.raises(UnicodeDecodeError):
            whole_text(ids, of_bytes)


class Said:
    """Reads as they are given."""

    def __init__(self, *reads):
        self.reads = list(reads)
        self.cancelled = False

    def read(self):
        return self.reads.pop(0)

    def cancel(self):
        self.cancelled = True


def read(ids, finish=None):
    return ReadTokens(ids, [-0.5 * id for id in ids], finish)


def test_what_was_told_before_is_left_out_once():
    handle = Again(Said(read([]), read([1]), read([2, 3]), read([1], "stop")), [1, 2])
    assert handle.read() == read([])
    assert handle.read() == read([])
    assert handle.read() == read([3])
    assert handle.read() == read([1], "stop")


@pytest.mark.parametrize("reads", [[read([2])], [read([1, 3])], [read([1], "stop")]])
def test_another_answer_than_before_is_an_end(reads):
    said = Said(*reads)
    ended = Again(said, [1, 2]).read()
    assert ended.ids == []
    assert "differently" in ended.finish
    assert said.cancelled


def test_it_is_cancelled_like_any_other():
    said = Said()
    Again(said, [1]).cancel()
    assert said.cancelled
