"""What reaches a terminal, and what reaches a pipe."""

import json
from typing import Any

import msgspec
import pytest

from onegate.cli.terminal import (
    Progress,
    coloured,
    complain,
    console,
    fitted,
    on_terminal,
    say,
    say_json,
    visible,
)

HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b31m\x7f\r\x00b\tc\n"


def test_no_control_character_survives_but_tab_and_newline() -> None:
    shown = visible(HOSTILE)
    assert shown == "a␛]0;title␇␛[2J�31m␡␍␀b\tc\n"
    assert all(ch.isprintable() or ch in "\t\n" for ch in visible("".join(map(chr, range(0xA0)))))


@pytest.mark.parametrize("text", ["schön", "日本", "👩‍👩‍👧", "שלום", "a b"])
def test_text_is_left_alone(text: str) -> None:
    assert visible(text) == text


def test_a_sequence_cut_between_two_chunks_is_disarmed_too(capsys: Any, terminal: Any) -> None:
    terminal.attach("stdout")
    for piece in ("\x1b", "[2J"):
        say(piece, end="")
    assert capsys.readouterr().out == "␛[2J"


def test_elsewhere_bytes_pass_unchanged(capsys: Any) -> None:
    say(HOSTILE, end="")
    assert capsys.readouterr().out == HOSTILE


def test_a_complaint_is_one_line_on_standard_error(capsys: Any, terminal: Any) -> None:
    terminal.attach("stderr")
    complain("two\nlines \x1b[2J")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "onegate: two lines ␛[2J\n")


def test_json_is_one_document(capsys: Any) -> None:
    class Row(msgspec.Struct):
        name: str
        value: float | None = None

    say_json([Row(name="ä")])
    assert json.loads(capsys.readouterr().out) == [{"name": "ä", "value": None}]


def test_json_carries_no_raw_control_character(capsys: Any) -> None:
    say_json({"text": "\x1b[2J"})
    assert "\x1b" not in capsys.readouterr().out


def test_colour_is_for_terminals_and_not_where_it_is_unwanted(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    assert not coloured(sys.stdout)
    terminal.attach("stdout")
    assert on_terminal(sys.stdout)
    assert coloured(sys.stdout)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured(sys.stdout)


def test_progress_is_for_terminals(capsys: Any) -> None:
    progress = Progress()
    progress.show("waiting")
    progress.clear()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_progress_replaces_itself_and_leaves_no_trace(capsys: Any, terminal: Any) -> None:
    terminal.attach("stderr")
    progress = Progress()
    progress.show("one\x1b")
    progress.show("two")
    progress.clear()
    progress.clear()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "\r\x1b[2Kone␛\r\x1b[2Ktwo\r\x1b[2K"


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("", 4, ""),
    ],
)
def test_a_line_is_cut_to_the_width(text: str, columns: int, shown: str) -> None:
    assert fitted(text, columns) == shown


def test_progress_is_one_line_of_the_terminals_width(capsys: Any, terminal: Any) -> None:
    terminal.attach("stderr")
    Progress().show("a\nb" + "x" * 200)
    (line,) = capsys.readouterr().err.splitlines()[1:]
    assert line == "\x1b[2Ka b" + "x" * 75 + "…"


def test_a_terminal_that_cannot_replace_a_line_is_spared(
    capsys: Any, terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.attach("stderr")
    monkeypatch.setenv("TERM", "dumb")
    progress = Progress()
    progress.show("waiting")
    progress.clear()
    assert capsys.readouterr().err == ""


def test_tables_elsewhere_are_not_cut_to_eighty_columns() -> None:
    assert console().width > 150


def test_a_complaint_that_nobody_can_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stderr", full)
        complain("nobody reads this")
