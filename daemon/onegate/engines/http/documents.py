"""JSON that a server sent, read into a shape or refused."""

from typing import Any, TypeVar

import msgspec

from onegate.engines.base import EngineMalformed

T = TypeVar("T")

# Lists and objects beside the vectors that were asked for.
SPARE_PARTS = 64
_MAX_TEXT = 300


def document(data: bytes, type: type[T]) -> T:
    """`data` as `type`. Raises EngineMalformed for what is no JSON, no UTF-8, or another shape."""
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError:
        raise EngineMalformed("the server's JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineMalformed(f"the server's answer cannot be read: {short(str(error))}") from error


def check_sparse(data: bytes, most: int) -> None:
    """Raises EngineMalformed where JSON has more than `most` lists and objects.

    What is long because of its numbers is read quickly; as many empty lists would take seconds.
    """
    if data.count(b"[") + data.count(b"{") > most:
        raise EngineMalformed("the server's answer has more parts than were asked for")


def encode(value: Any) -> bytes:
    """`value` as JSON."""
    return msgspec.json.encode(value)


def short(text: str | bytes) -> str:
    """Somebody else's text for a sentence of ours: one printable line of bounded length."""
    if isinstance(text, bytes):
        text = text[: 4 * _MAX_TEXT].decode("utf-8", "replace")
    line = "".join(char if char.isprintable() else " " for char in text[: 2 * _MAX_TEXT])
    line = " ".join(line.split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"
