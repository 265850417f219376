"""`onegate chat`: a conversation in the terminal."""

import sys
from typing import Any

from onegate.cli.answer import Question, stream_answer
from onegate.cli.exits import Exit, exit_of, sentence
from onegate.cli.options import Class, MaxTokens, Model, Seed, Socket, System, Temperature
from onegate.cli.streams import not_utf8
from onegate.cli.terminal import complain, on_terminal, say
from onegate.client.errors import RequestError, invalid
from onegate.client.sync import Client


def chat(
    *,
    class_: Class = None,
    max_tokens: MaxTokens = None,
    system: System = None,
    model: Model = None,
    temperature: Temperature = None,
    seed: Seed = None,
    socket: Socket = None,
) -> int:
    """Talk with the model; the whole conversation is sent with every turn.

    Ctrl-C stops an answer and keeps what was said before; at the prompt it leaves, as Ctrl-D does.
    Without a terminal each line of standard input is one turn.

    **Examples**

    ```
    onegate chat --system "You are a patient teacher."
    printf 'Hello!\\nAnd in French?\\n' | onegate chat --max-tokens 40
    ```
    """
    turns: list[dict[str, Any]] = []
    if system is not None:
        turns.append({"role": "system", "content": system})
    with Client(socket, model=model, app="onegate chat") as gate:
        while (line := _read_turn()) is not None:
            if not line.strip():
                continue
            if not_utf8(line):
                raise invalid("standard input is not UTF-8")
            question = Question(
                messages=[*turns, {"role": "user", "content": line}],
                class_=class_,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
            )
            try:
                reply = stream_answer(gate, question)
            except KeyboardInterrupt:
                if not on_terminal(sys.stdin):
                    raise
                say("(stopped)")
                continue
            except RequestError as error:
                complain(sentence(error))
                if not on_terminal(sys.stdin):
                    return exit_of(error)
                continue
            turns += [question.messages[-1], {"role": "assistant", "content": reply.text}]
    return Exit.DONE


def _read_turn() -> str | None:
    """The next line that somebody typed; None at the end of input."""
    if not on_terminal(sys.stdin):
        return sys.stdin.readline() or None
    import readline  # noqa: F401  input() edits lines and keeps a history once it is there

    try:
        return input("> ")
    except EOFError:
        say()
        return None
