"""Flags that several verbs share, spelled once."""

from typing import Annotated

from cyclopts import Parameter

from onegate.client.request import MAX_S


def _seconds(_kind: object, value: float | None) -> None:
    """Raises ValueError, which names the option, for what is no length of time."""
    if value is not None and not 0 <= value <= MAX_S:
        raise ValueError(f"Must be a number of seconds from 0 to {MAX_S} (2^40 ms).")


SECONDS = Parameter(validator=_seconds)  # beside the help of an option that is a time

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
MaxTokens = Annotated[
    int | None,
    Parameter(name="--max-tokens", help="Longest answer, in tokens. Default: that of the class."),
]
System = Annotated[
    str | None, Parameter(name="--system", help="Instructions that precede the conversation.")
]
Temperature = Annotated[
    float | None, Parameter(name="--temperature", help="0 always takes the likeliest token.")
]
Seed = Annotated[
    int | None, Parameter(name="--seed", help="Same seed, same answer, where the engine can.")
]
