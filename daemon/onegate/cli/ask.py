"""`onegate ask`: one question, one answer."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from onegate.cli.answer import Question, stream_answer
from onegate.cli.attachments import question_with, schema_of, tools_of
from onegate.cli.exits import UsageError
from onegate.cli.options import (
    SECONDS,
    Class,
    Json,
    MaxTokens,
    Model,
    Seed,
    Socket,
    System,
    Temperature,
)
from onegate.cli.streams import not_utf8
from onegate.cli.terminal import Progress, complain, say_json
from onegate.client.errors import invalid
from onegate.client.request import Retry
from onegate.client.sync import Client

_THINK: dict[str, bool | str] = {"on": True, "off": False}


def ask(
    prompt: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="What to ask; `-` reads it from standard input."),
    ],
    /,
    *,
    class_: Class = None,
    max_tokens: MaxTokens = None,
    system: System = None,
    model: Model = None,
    temperature: Temperature = None,
    seed: Seed = None,
    image: Annotated[
        list[Path] | None,
        Parameter(
            negative="", help="An image to look at: PNG, JPEG, GIF or WebP. May be repeated."
        ),
    ] = None,
    tools: Annotated[
        Path | None,
        Parameter(help="A JSON file of tools that may be called, in the form of the OpenAI API."),
    ] = None,
    schema: Annotated[
        Path | None, Parameter(help="A JSON schema that the answer must satisfy, in a file.")
    ] = None,
    think: Annotated[
        Literal["on", "off", "low", "medium", "high", "max"] | None,
        Parameter(help="Whether to think first, or how much, where the model can."),
    ] = None,
    ttft_timeout: Annotated[
        float | None, Parameter(help="Seconds until the first word, waiting included."), SECONDS
    ] = None,
    timeout: Annotated[
        float | None, Parameter(help="Seconds for the whole answer."), SECONDS
    ] = None,
    wait: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="If refused for now, wait as long as the daemon says and ask again.",
        ),
    ] = False,
    json: Json = False,
    socket: Socket = None,
) -> None:
    """Ask one question and print the answer as it comes.

    The answer goes to standard output, everything else to standard error. Ctrl-C cancels the
    request on the daemon; so does closing the pipe, as in `onegate ask ... | head -1`.

    A call of a tool is one line of the answer, `NAME ARGUMENTS`; with `--json` calls are in
    `tool_calls`. Thinking is shown to a person only, on standard error. What the model's engine
    cannot do is refused, naming it.

    **Examples**

    ```
    onegate ask "Why is the sky blue?" --max-tokens 64
    onegate ask - --class batch --json < prompt.txt > answer.json
    onegate ask "What is on it?" --image photo.jpg
    onegate ask "Three colours, please." --schema colours.json
    ```
    """
    text = question_of(prompt)
    turns: list[dict[str, Any]] = [{"role": "user", "content": question_with(text, image or [])}]
    if system is not None:
        turns.insert(0, {"role": "system", "content": system})
    question = Question(
        messages=turns,
        class_=class_,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        tools=None if tools is None else tools_of(tools),
        schema=None if schema is None else schema_of(schema),
        think=_THINK.get(think or "", think),
        ttft_timeout=ttft_timeout,
        timeout=timeout,
    )
    retry: Retry = "honour" if wait else "restart"
    with Client(socket, model=model, app="onegate ask", retry=retry) as gate:
        if json:
            progress = Progress()
            try:
                reply = gate.generate(**question.options(progress))
            finally:
                progress.clear()
            say_json(reply)
        else:
            reply = stream_answer(gate, question)
    for notice in reply.notices:
        complain(f"{notice.code}: {notice.detail}")


def question_of(prompt: str) -> str:
    """The prompt, or what it says where to read. Raises UsageError, InvalidRequest."""
    piped = prompt == "-"
    text = sys.stdin.read() if piped else prompt
    if not_utf8(text):
        raise invalid(f"{'standard input' if piped else 'the prompt'} is not UTF-8")
    if not text.strip():
        raise UsageError("standard input holds no question" if piped else "the question is empty")
    return text
