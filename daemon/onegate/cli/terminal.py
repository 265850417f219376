"""What a verb prints, and how it looks on a terminal and elsewhere.

On a terminal, control characters are made visible instead of being carried out: a model may be
talked into writing escape sequences, and a terminal obeys those. Elsewhere bytes pass unchanged.
"""

import os
import sys
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import east_asian_width

import msgspec

from onegate.cli.streams import silence

if TYPE_CHECKING:
    from rich.console import Console

_PICTURES = 0x2400  # the block in which U+2400 + c is a picture of the control character c
_SHOWN = (
    {c: _PICTURES + c for c in range(0x20) if chr(c) not in "\t\n"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)  # C1: eight-bit forms of the same sequences
)
_WIDTH_UNKNOWN = 80
# Tables are as wide as they need to be where nobody has to read them.
_WIDTH_ELSEWHERE = 200


def visible(text: str) -> str:
    """`text` without any control character but tab and newline."""
    return text.translate(_SHOWN)


def on_terminal(stream: TextIO) -> bool:
    """Whether a person sees what is written there."""
    return stream.isatty()


def coloured(stream: TextIO) -> bool:
    """Whether colour may be used there; NO_COLOR as on no-color.org."""
    return on_terminal(stream) and not os.environ.get("NO_COLOR")


def say(text: str = "", *, end: str = "\n") -> None:
    """Write to standard output at once."""
    sys.stdout.write((visible(text) if on_terminal(sys.stdout) else text) + end)
    sys.stdout.flush()


def complain(text: str) -> None:
    """One line on standard error, under this command's name."""
    text = " ".join(text.split())
    shown = visible(text) if on_terminal(sys.stderr) else text
    try:
        sys.stderr.write(f"onegate: {shown}\n")
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)  # nobody is left to be told; the exit code still says it


def say_json(document: Any) -> None:
    """Write one JSON document to standard output, and make sure that it is all of it."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write((visible(text) if on_terminal(sys.stdout) else text) + "\n")
    sys.stdout.flush()


def console() -> "Console":
    """Where tables go: standard output."""
    from rich.console import Console

    width = None if on_terminal(sys.stdout) else _WIDTH_ELSEWHERE
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH_UNKNOWN
    except (OSError, ValueError):
        return _WIDTH_UNKNOWN


def fitted(text: str, columns: int) -> str:
    """`text`, with an ellipsis for what does not fit. Wide characters take two columns."""
    places = list(accumulate(2 if east_asian_width(ch) in "WF" else 1 for ch in text))
    if not places or places[-1] <= columns:
        return text
    return text[: bisect_right(places, columns - 1)] + "…"


class Progress:
    """One line on standard error that the next one replaces, cut to the terminal's width.

    Nothing unless it is a terminal, and one on which a line can be replaced.
    """

    def __init__(self) -> None:
        self._active = on_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        if self._active:
            line = fitted(visible(" ".join(text.split())), _columns() - 1)
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False
