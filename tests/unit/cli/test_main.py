"""The frame around every verb: errors, exit codes, help."""

import errno
import json
import os
import sys
from typing import Any

import pytest

from onegate import __version__
from onegate.cli import main as command
from onegate.cli.main import VERBS, run
from onegate.cli.streams import OutputError
from onegate.client.errors import Unavailable, error_of
from onegate.protocol.errors import Reason


def test_help_lists_every_verb_and_the_exit_codes(capsys: Any) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert [verb for verb in VERBS if f"│ {verb} " not in text] == []
    assert "75 refused" in text
    assert "ONEGATE_SOCKET" in text


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_shows_usage_examples_and_exit_codes(verb: str, capsys: Any) -> None:
    assert run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Usage: onegate {verb}" in text
    assert f"\n onegate {verb}" in text
    assert "Exit codes" in text


def test_no_arguments_are_a_usage_error_with_help(capsys: Any) -> None:
    assert run([]) == 64
    assert "Usage: onegate COMMAND" in capsys.readouterr().out


def test_version(capsys: Any) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize(
    "arguments",
    [
        ["aks", "hi"],
        ["ask"],
        ["ask", "hi", "--max-tokens", "many"],
        ["ask", "hi", "--no-such-flag"],
        ["pause"],
        ["check-config"],
        ["demo", "--engine", "steam"],
        ["demo", "--jobs", "0"],
    ],
)
def test_usage_errors_are_one_sentence_on_standard_error(arguments: list[str], capsys: Any) -> None:
    assert run(arguments) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("onegate: ")
    assert captured.err.count("\n") == 1
    verb = f"{arguments[0]} " if arguments[0] in VERBS else ""
    assert captured.err.endswith(f"; `onegate {verb}--help` shows how\n")


def test_a_verb_that_is_none_is_said_beside_all_there_are(capsys: Any) -> None:
    assert run(["aks"]) == 64
    assert f"no verb 'aks'; there are {', '.join(VERBS)};" in capsys.readouterr().err


def test_an_error_is_a_sentence_and_its_code(gate: Any, given: Any, capsys: Any) -> None:
    gate.answers["open"] = error_of(given.failed(Reason.PERMISSION), started=False)
    assert run(["status"]) == 77
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "onegate: permission: a sentence; `onegate whoami` shows what you may do, and why\n"
    )


def test_json_is_a_document_also_for_an_error(gate: Any, capsys: Any) -> None:
    gate.answers["open"] = Unavailable("nobody")
    assert run(["ask", "hi", "--json"]) == 69
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["message"] == "nobody"
    assert captured.err.startswith("onegate: nobody")


def test_a_prompt_that_looks_like_the_flag_is_none(gate: Any, capsys: Any) -> None:
    gate.answers["open"] = Unavailable("nobody")
    assert run(["ask", "--", "--json"]) == 69
    assert capsys.readouterr().out == ""


def test_an_interrupt_is_130(gate: Any, given: Any, capsys: Any) -> None:
    gate.chunks = [given.chunk("bl"), KeyboardInterrupt()]
    assert run(["ask", "hi"]) == 130
    assert capsys.readouterr().err == ""


def test_a_bug_is_70_with_a_traceback(gate: Any, capsys: Any) -> None:
    gate.answers["open"] = ZeroDivisionError("oops")
    assert run(["status"]) == 70
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "this is a bug in onegate" in text


def test_a_reader_that_went_away_is_quiet(
    gate: Any, given: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned: list[int] = []
    monkeypatch.setattr(os, "dup2", lambda source, target: turned.append(target))
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1, raising=False)
    gate.chunks = [given.chunk("bl"), OutputError(BrokenPipeError())]
    assert run(["ask", "hi"]) == 141
    assert gate.streams[0].cancelled
    assert turned == [1]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_output_that_cannot_be_written_is_a_sentence(
    gate: Any, given: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    def full(text: str) -> int:
        raise OutputError(OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(os, "dup2", lambda source, target: None)
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1, raising=False)
    monkeypatch.setattr(sys.stdout, "write", full)
    gate.answers["generate"] = given.reply()
    assert run(["ask", "hi", *flags]) == 74
    gate.answers["open"] = Unavailable("nobody")
    assert run(["ask", "hi", "--json"]) == 74
    assert capsys.readouterr().err == "onegate: cannot write: No space left on device\n" * 2


def test_without_its_packages_the_command_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    monkeypatch.setattr(command, "prepare", lambda: None)
    with pytest.raises(SystemExit) as caught:
        command.main()
    assert caught.value.code == 69
    assert "pip install 'onegate[cli]'" in capsys.readouterr().err
