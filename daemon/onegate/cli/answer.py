"""Printing one answer as it comes, for the verbs that show one."""

import sys
from dataclasses import dataclass
from typing import Any

from onegate.cli.terminal import Progress, coloured, say, visible
from onegate.client.reply import Reply
from onegate.client.request import Progress as ProgressMessage
from onegate.client.request import RequestOptions
from onegate.client.sync import Client
from onegate.protocol import messages as m
from onegate.protocol.content import ChunkKind, ToolCall

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked; None leaves it to the daemon."""

    messages: list[dict[str, Any]]
    class_: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    schema: dict[str, Any] | None = None
    think: bool | str | None = None
    ttft_timeout: float | None = None
    timeout: float | None = None

    def options(self, progress: Progress) -> RequestOptions:
        """The keywords for the client; waiting is shown on `progress`."""
        given: dict[str, Any] = {
            name: value
            for name in self.__dataclass_fields__
            if (value := getattr(self, name)) is not None
        }
        given["progress"] = lambda message: show_wait(progress, message)
        options: RequestOptions = given  # type: ignore[assignment]
        return options


def show_wait(progress: Progress, message: ProgressMessage) -> None:
    """Tell a person why nothing is happening."""
    match message:
        case m.Queued():
            progress.show(waiting(message))
        case m.Paused():
            progress.show("paused for somebody more urgent; it goes on by itself")
        case _:
            progress.clear()


def waiting(message: m.Queued) -> str:
    """How many come first, and the expected wait, in words."""
    text = f"waiting, {sum(message.ahead.values())} ahead"
    if message.expected_wait_ms is not None:
        text += f", about {message.expected_wait_ms / 1000:.0f} s"
    if message.limited_by is not None:
        text += f" ({message.limited_by})"
    return text


def stream_answer(gate: Client, question: Question) -> Reply:
    """Print the answer on standard output as it comes, and return it whole.

    Thinking is shown on a terminal only, on standard error, so that it never mixes with the text.
    A tool call is a line of its own.
    """
    progress = Progress()
    last = ""
    try:
        with gate.stream(**question.options(progress)) as stream:
            for chunk in stream:
                if chunk.kind == ChunkKind.TEXT and chunk.text:
                    say(chunk.text, end="")
                    last = chunk.text
                elif chunk.tool_call is not None:
                    if last and not last.endswith("\n"):
                        say()
                    say(call_line(chunk.tool_call))
                    last = "\n"
                elif chunk.kind == ChunkKind.THINKING:
                    _think(chunk.text)
    finally:
        progress.clear()
        if last and not last.endswith("\n"):
            say()
    assert stream.reply is not None
    return stream.reply


def call_line(call: ToolCall) -> str:
    """A tool call as one line: the tool's name and its arguments, JSON as the model wrote it."""
    arguments = " ".join(call.function.arguments.split("\n"))
    return f"{call.function.name} {arguments}"


def _think(text: str) -> None:
    if coloured(sys.stderr):
        sys.stderr.write(f"{_DIM}{visible(text)}{_PLAIN}")
        sys.stderr.flush()
