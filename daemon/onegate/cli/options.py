"""Flags that several verbs share, spelled once."""

from typing import Annotated

from cyclopts import Parameter

Socket = Annotated[
    str | None,
    Parameter(
        name="--socket",
        help="Where the daemon listens. Default: ONEGATE_SOCKET, else your own daemon's socket, "
        "else /run/onegate/onegate.sock.",
    ),
]
Json = Annotated[
    bool,
    Parameter(
        name="--json",
        negative="",
        show_default=False,
        help="Print one JSON document on standard output and nothing else there.",
    ),
]
Class = Annotated[
    str | None,
    Parameter(name="--class", help="Class to ask for, at or below your ceiling."),
]
Model = Annotated[
    str | None, Parameter(name="--model", help="Model to use, if the daemon has several.")
]
MaxTokens = Annotated[int | None, Parameter(name="--max-tokens", help="Longest answer, in tokens.")]
System = Annotated[
    str | None, Parameter(name="--system", help="Instructions that precede the conversation.")
]
Temperature = Annotated[
    float | None, Parameter(name="--temperature", help="0 always takes the likeliest token.")
]
Seed = Annotated[
    int | None, Parameter(name="--seed", help="Same seed, same answer, where the engine can.")
]
