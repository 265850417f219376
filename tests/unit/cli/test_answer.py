"""Printing an answer as it comes."""

from typing import Any

import pytest

from onegate.cli.answer import Question, show_wait, stream_answer, waiting
from onegate.cli.terminal import Progress
from onegate.protocol import messages as m
from onegate.protocol.content import ChunkKind, FunctionCall, ToolCall
from onegate.protocol.errors import LimitedBy

TURNS = [{"role": "user", "content": "hi"}]


def queued(**more: Any) -> m.Queued:
    return m.Queued(id=1, rid="r1", position=2, ahead={"batch": 2}, **more)


def test_only_what_was_given_is_asked_for() -> None:
    options = Question(messages=TURNS, max_tokens=5, temperature=0.0).options(Progress())
    options.pop("progress")
    assert options == {"messages": TURNS, "max_tokens": 5, "temperature": 0.0}


def test_text_comes_out_as_it_is_and_ends_with_a_newline(gate: Any, capsys: Any) -> None:
    assert stream_answer(gate, Question(messages=TURNS)).text == "blue"
    assert capsys.readouterr().out == "blue\n"


def test_a_newline_is_not_added_twice(gate: Any, given: Any, capsys: Any) -> None:
    gate.chunks = [given.chunk("blue\n")]
    stream_answer(gate, Question(messages=TURNS))
    assert capsys.readouterr().out == "blue\n"


def test_an_empty_answer_prints_nothing(gate: Any, capsys: Any) -> None:
    gate.chunks = []
    stream_answer(gate, Question(messages=TURNS))
    assert capsys.readouterr().out == ""


def test_thinking_never_mixes_with_the_text(gate: Any, given: Any, capsys: Any) -> None:
    gate.chunks = [given.chunk("hm", "thinking"), given.chunk("blue")]
    stream_answer(gate, Question(messages=TURNS))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("blue\n", "")


def call(name: str, arguments: str) -> m.Chunk:
    made = ToolCall(id="c1", function=FunctionCall(name=name, arguments=arguments))
    return m.Chunk(id=1, n_tok=1, kind=ChunkKind.TOOL_CALL, tool_call=made)


def test_a_tool_call_is_a_line_of_its_own(gate: Any, given: Any, capsys: Any) -> None:
    gate.chunks = [given.chunk("I ask"), call("f", '{"a":\n1}'), call("g", "{}"), given.chunk("so")]
    stream_answer(gate, Question(messages=TURNS))
    assert capsys.readouterr().out == 'I ask\nf {"a": 1}\ng {}\nso\n'


def test_a_tool_call_does_nothing_to_a_terminal(gate: Any, capsys: Any, terminal: Any) -> None:
    terminal.attach("stdout")
    gate.chunks = [call("f\x1b", '"\x1b[2J"')]
    stream_answer(gate, Question(messages=TURNS))
    assert capsys.readouterr().out == 'f␛ "␛[2J"\n'


def test_thinking_is_shown_to_a_person_and_disarmed(
    gate: Any, given: Any, capsys: Any, terminal: Any
) -> None:
    terminal.attach("stderr")
    gate.chunks = [given.chunk("h\x1bm", "thinking"), given.chunk("blue")]
    stream_answer(gate, Question(messages=TURNS))
    captured = capsys.readouterr()
    assert captured.out == "blue\n"
    assert "h␛m" in captured.err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError()])
def test_whatever_ends_it_early_cancels(gate: Any, given: Any, error: BaseException) -> None:
    gate.chunks = [given.chunk("bl"), error]
    with pytest.raises(type(error)):
        stream_answer(gate, Question(messages=TURNS))
    assert gate.streams[0].cancelled


def test_a_wait_is_told_in_words() -> None:
    assert waiting(queued()) == "waiting, 2 ahead"
    assert waiting(queued(expected_wait_ms=4200, limited_by=LimitedBy.SEATS)) == (
        "waiting, 2 ahead, about 4 s (seats)"
    )


def test_waiting_is_shown_to_a_person_and_then_gone(capsys: Any, terminal: Any) -> None:
    terminal.attach("stderr")
    progress = Progress()
    show_wait(progress, queued())
    show_wait(progress, m.Paused(id=1))
    show_wait(progress, m.Resumed(id=1))
    shown = capsys.readouterr().err
    assert "waiting, 2 ahead" in shown
    assert "more urgent" in shown
    assert shown.endswith("\r\x1b[2K")
