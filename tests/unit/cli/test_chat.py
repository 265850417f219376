"""A conversation."""

import builtins
import io
from collections.abc import Iterable
from typing import Any

import pytest

from onegate.cli.main import run
from onegate.client.errors import error_of
from onegate.protocol.errors import Reason


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, terminal: Any) -> Any:
    """Lines that a person types; an exception is what the keyboard does instead."""

    def lines(items: Iterable[str | BaseException]) -> None:
        rest = list(items)

        def read(prompt: str) -> str:
            item = rest.pop(0) if rest else EOFError()
            if isinstance(item, BaseException):
                raise item
            return item

        monkeypatch.setattr("sys.stdin", io.StringIO())
        terminal.attach("stdin")
        monkeypatch.setattr(builtins, "input", read)

    return lines


def sent(gate: Any) -> list[list[tuple[str, str]]]:
    return [
        [(turn["role"], turn["content"]) for turn in options["messages"]]
        for name, _, options in gate.calls
        if name == "stream"
    ]


def test_each_turn_carries_the_conversation(gate: Any, typed: Any, capsys: Any) -> None:
    typed(["hi", "", "and?"])
    assert run(["chat", "--system", "brief"]) == 0
    assert sent(gate) == [
        [("system", "brief"), ("user", "hi")],
        [("system", "brief"), ("user", "hi"), ("assistant", "blue"), ("user", "and?")],
    ]
    assert capsys.readouterr().out.count("blue\n") == 2


def test_flags_arrive(gate: Any, typed: Any) -> None:
    typed(["hi"])
    flags = "--class loop --max-tokens 5 --temperature 0.5 --seed 7 --model tiny --socket /s"
    assert run(["chat", *flags.split()]) == 0
    options = gate.calls[0][2]
    assert (options["class_"], options["max_tokens"]) == ("loop", 5)
    assert (options["temperature"], options["seed"]) == (0.5, 7)
    assert (gate.opened[0]["model"], gate.opened[0]["socket"]) == ("tiny", "/s")


def test_a_stopped_answer_is_forgotten_and_the_talk_goes_on(
    gate: Any, given: Any, typed: Any, capsys: Any
) -> None:
    gate.chunks = [given.chunk("bl"), KeyboardInterrupt()]
    typed(["hi", "again"])
    assert run(["chat"]) == 0
    assert sent(gate) == [[("user", "hi")], [("user", "again")]]
    assert gate.streams[0].cancelled
    assert "(stopped)" in capsys.readouterr().out


def test_ctrl_c_at_the_prompt_leaves(gate: Any, typed: Any) -> None:
    typed([KeyboardInterrupt()])
    assert run(["chat"]) == 130


def test_a_refusal_does_not_end_the_talk(gate: Any, given: Any, typed: Any, capsys: Any) -> None:
    gate.chunks = [error_of(given.failed(Reason.TOKENS_FULL), started=False)]
    typed(["hi", "again"])
    assert run(["chat"]) == 0
    assert len(sent(gate)) == 2
    assert "tokens_full" in capsys.readouterr().err


def test_without_a_terminal_lines_are_turns(
    gate: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\nand?"))
    assert run(["chat"]) == 0
    assert [turns[-1] for turns in sent(gate)] == [("user", "hi\n"), ("user", "and?")]
    assert capsys.readouterr().out == "blue\nblue\n"


@pytest.mark.parametrize(("what", "code"), [(KeyboardInterrupt(), 130), (Reason.TOKENS_FULL, 75)])
def test_without_a_terminal_nothing_is_asked_after_an_error(
    gate: Any, given: Any, monkeypatch: pytest.MonkeyPatch, what: Any, code: int
) -> None:
    error = what if isinstance(what, BaseException) else error_of(given.failed(what), started=False)
    gate.chunks = [error]
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nand?\n"))
    assert run(["chat"]) == code
    assert len(sent(gate)) == 1


def test_a_line_that_is_not_utf8_is_said(
    gate: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a\udcff\n"))
    assert run(["chat"]) == 65
    assert "standard input is not UTF-8" in capsys.readouterr().err
    assert gate.calls == []
