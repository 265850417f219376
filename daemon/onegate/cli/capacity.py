"""`onegate capacity`: would it be taken, and when would it start?"""

from typing import Annotated

from cyclopts import Parameter

from onegate.cli.exits import Exit, exit_of_reason
from onegate.cli.options import Class, Json, MaxTokens, Model, Socket
from onegate.cli.terminal import say, say_json
from onegate.client.sync import Client
from onegate.protocol import messages as m


def capacity(
    *,
    class_: Class = None,
    prompt_tok: Annotated[int, Parameter(help="Size of the prompt, in tokens.")] = 256,
    max_tokens: MaxTokens = None,
    model: Model = None,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Say whether a request of this size would be taken now, and when it would start.

    This is advice about this moment, not a promise. Exit code 0 means that it would start or
    wait, 75 that it would be refused for now, 65 or 77 that it would always be.

    **Examples**

    ```
    onegate capacity --class batch --prompt-tok 2000 --max-tokens 500
    onegate capacity --json
    ```
    """
    with Client(socket, app="onegate capacity") as gate:
        report = gate.capacity(prompt_tok, max_tokens, model=model, class_=class_)
    if json:
        say_json(report)
    else:
        say(verdict(report))
    if report.verdict != "refuse":
        return Exit.DONE
    return Exit.REFUSED if report.reason is None else exit_of_reason(report.reason)


def verdict(report: m.CapacityReport) -> str:
    """The report as one sentence."""
    limited = f"; limited by {report.limited_by}" if report.limited_by is not None else ""
    match report.verdict:
        case "start":
            return "would start now"
        case "queue":
            wait = (
                "for an unknown time"
                if report.expected_wait_ms is None
                else f"about {report.expected_wait_ms / 1000:.1f} s"
            )
            return f"would wait {wait}, at place {report.position}{limited}"
        case _:
            figures = (
                f" ({report.used} of {report.limit} used)"
                if report.used is not None and report.limit is not None
                else ""
            )
            hint = (
                f"; try again in {report.retry_after_ms / 1000:.1f} s"
                if report.retry_after_ms is not None
                else ""
            )
            return f"would be refused: {report.reason or 'no reason given'}{figures}{limited}{hint}"
