"""One question."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from onegate.cli.main import run
from onegate.protocol import messages as m


def test_the_answer_and_nothing_else_is_on_standard_output(gate: Any, capsys: Any) -> None:
    assert run(["ask", "why?"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("blue\n", "")
    assert gate.calls[0][2]["messages"] == [{"role": "user", "content": "why?"}]


def test_every_flag_arrives(gate: Any) -> None:
    line = "ask why? --class batch --max-tokens 5 --system brief --temperature 0 --seed 7"
    more = "--ttft-timeout 2 --timeout 9 --model tiny --socket /s --wait"
    assert run([*line.split(), *more.split()]) == 0
    opened = gate.opened[0]
    assert (opened["socket"], opened["model"], opened["retry"]) == ("/s", "tiny", "honour")
    options = gate.calls[0][2]
    options.pop("progress")
    assert options == {
        "messages": [
            {"role": "system", "content": "brief"},
            {"role": "user", "content": "why?"},
        ],
        "class_": "batch",
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": 7,
        "ttft_timeout": 2.0,
        "timeout": 9.0,
    }


def test_files_go_with_the_question(gate: Any, tmp_path: Path) -> None:
    image, tools, schema = (tmp_path / name for name in ("i", "t", "s"))
    image.write_bytes(b"GIF89a")
    tools.write_text('[{"function": {"name": "f"}}]')
    schema.write_text('{"type": "integer"}')
    line = ["ask", "why?", "--image", image, "--image", image, "--tools", tools, "--schema", schema]
    assert run([str(word) for word in line]) == 0
    options = gate.calls[0][2]
    content = options["messages"][0]["content"]
    assert [part["type"] for part in content] == ["image", "image", "text"]
    assert options["tools"] == [{"function": {"name": "f"}}]
    assert options["schema"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("word", "think"), [("on", True), ("off", False), ("low", "low"), ("max", "max")]
)
def test_thinking_is_asked_for_in_one_word(gate: Any, word: str, think: bool | str) -> None:
    assert run(["ask", "why?", "--think", word]) == 0
    assert gate.calls[0][2]["think"] == think


def test_another_word_for_thinking_is_a_usage_error(gate: Any, capsys: Any) -> None:
    assert run(["ask", "why?", "--think", "much"]) == 64
    assert "--think" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--image", "--tools", "--schema"])
def test_a_file_that_is_not_there_is_a_usage_error(gate: Any, capsys: Any, option: str) -> None:
    assert run(["ask", "why?", option, "/nowhere/at-all"]) == 64
    assert f"{option}: /nowhere/at-all cannot be read" in capsys.readouterr().err
    assert gate.opened == []


def test_without_wait_refusals_are_not_waited_out(gate: Any) -> None:
    run(["ask", "why?"])
    assert gate.opened[0]["retry"] == "restart"


def test_a_dash_reads_standard_input(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("long\nquestion\n"))
    assert run(["ask", "-"]) == 0
    assert gate.calls[0][2]["messages"][0]["content"] == "long\nquestion\n"


def test_a_prompt_may_begin_with_a_dash(gate: Any) -> None:
    assert run(["ask", "-5 + 3?"]) == 0
    assert gate.calls[0][2]["messages"][0]["content"] == "-5 + 3?"


def test_json_is_the_whole_reply(gate: Any, given: Any, capsys: Any) -> None:
    gate.answers["generate"] = given.reply()
    assert run(["ask", "why?", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["text"], document["rid"], document["finish_reason"]) == ("blue", "r1", "stop")
    assert document["usage"] == {"prompt_tok": 3, "output_tok": 1}


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_notices_go_to_standard_error(gate: Any, given: Any, capsys: Any, flags: list[str]) -> None:
    reply = given.reply(notices=(m.Notice(code="cold_cache", detail="it was cold"),))
    gate.answers |= {"reply": reply, "generate": reply}
    assert run(["ask", "why?", *flags]) == 0
    assert capsys.readouterr().err == "onegate: cold_cache: it was cold\n"


def test_an_unquoted_prompt_is_a_usage_error(gate: Any, capsys: Any) -> None:
    assert run(["ask", "why", "is"]) == 64
    assert "is" in capsys.readouterr().err
    assert gate.opened == []


@pytest.mark.parametrize("flag", ["--timeout", "--ttft-timeout"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
def test_what_is_no_time_is_a_usage_error(gate: Any, capsys: Any, flag: str, seconds: str) -> None:
    assert run(["ask", "why?", flag, seconds]) == 64
    assert flag in capsys.readouterr().err
    assert gate.opened == []


@pytest.mark.parametrize(
    ("prompt", "text", "sentence"),
    [("", "", "the question is empty"), ("-", " \n", "standard input holds no question")],
)
def test_an_empty_question_is_not_asked(
    gate: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch, prompt: str, text: str, sentence: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run(["ask", prompt]) == 64
    assert sentence in capsys.readouterr().err
    assert gate.opened == []


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [("a\udcff", "the prompt is not UTF-8"), ("-", "standard input is not UTF-8")],
)
def test_what_is_not_utf8_is_said(
    gate: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch, prompt: str, sentence: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a\udcff"))
    assert run(["ask", prompt]) == 65
    assert sentence in capsys.readouterr().err
    assert gate.opened == []
