import pytest

from onegate.engines.host.directives import read_script


def test_numbers_texts_and_flags():
    script = read_script("a [[tokens:5]] b [[say:x|y]] [[die-before-first]] [[error:no: it is]]")
    assert script.number("tokens") == 5
    assert script.texts == {"say": "x|y", "error": "no: it is"}
    assert script.flags == {"die-before-first"}
    assert script.number("stall") is None


def test_a_number_has_a_default():
    assert read_script("[[die]]").number("die") == 3
    assert read_script("[[tokens]]").number("tokens") == 64


def test_the_last_of_a_name_holds():
    assert read_script("[[tokens:1]][[tokens:2]]").number("tokens") == 2


@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", "٣", "9" * 400])
def test_what_is_no_number_is_the_default(value):
    assert read_script(f"[[tokens:{value}]]").number("tokens") == 64


def test_numbers_are_bounded():
    assert read_script("[[stall:999999999999]]").number("stall") == 10_000_000


@pytest.mark.parametrize("text", ["[[unknown]]", "[tokens:1]", "[[Tokens:1]]", "[[tokens 1]]", ""])
def test_everything_else_is_text(text):
    script = read_script(text)
    assert (script.numbers, script.texts, script.flags) == ({}, {}, frozenset())


def test_a_megabyte_of_brackets_is_read_in_one_pass():
    assert read_script("[[" * 500_000).numbers == {}
    assert read_script("[[a:" * 250_000).numbers == {}
