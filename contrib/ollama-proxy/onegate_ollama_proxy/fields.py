"""The fields of a request's body, taken one by one."""

import re
from collections.abc import Container, Iterable
from typing import Any, TypeVar

import msgspec

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk

T = TypeVar("T")

MAX_NOTICES = 16
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")


class Fields:
    """A JSON object whose fields are taken by name; null is the same as absence.

    Raises BadAsk for a body that is none, and for a field of another type, with its path.
    """

    def __init__(self, body: bytes) -> None:
        if not body.strip():
            raise BadAsk("missing request body")
        try:
            self._left = msgspec.json.decode(body, type=dict[str, Any])
        except RecursionError:
            raise BadAsk("the body is nested too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadAsk(f"the body is not understood: {error}") from error

    def raw(self, name: str) -> Any:
        """The value of a field as it is, which counts as looked at from now on."""
        return self._left.pop(name, None)

    def take(self, name: str, type: type[T]) -> T | None:
        """The same as `type`."""
        value: T | None = convert(self.raw(name), type | None, name)
        return value

    def need(self, name: str, type: type[T]) -> T:
        """The value of a field that must be there."""
        value = self.take(name, type)
        if value is None:
            raise BadAsk(f"{name} is required", path=name)
        return value

    def left(self) -> dict[str, Any]:
        """What nobody has taken, without what is null."""
        return {name: value for name, value in self._left.items() if value is not None}


def convert(value: Any, type: Any, path: str) -> Any:
    """`value` as `type`, a shape of msgspec's. Raises BadAsk with the path of what is wrong."""
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        at = path + where.rstrip("`")
        raise BadAsk(f"{at} is wrong: {what[:1].lower()}{what[1:]}", path=at) from error


def unsupported(path: str, sentence: str) -> BadAsk:
    """The error for what would change the meaning if it were left out."""
    return BadAsk(sentence, path=path, reason=Reason.UNSUPPORTED)


def notices_of(left: Iterable[str], harmless: Container[str], prefix: str = "") -> list[str]:
    """A sentence for each name that is left out, but not for a million of them. Those in `harmless`
    are known; a name that is no plain word is not repeated."""
    said: dict[str, None] = {}
    more = 0
    for name in left:
        if len(said) == MAX_NOTICES:
            more += 1
        elif prefix + name in harmless:
            said[f"{prefix}{name} is accepted and left out"] = None
        else:
            shown = prefix + name if _WORD.match(prefix + name) else "a field with a strange name"
            said[f"{shown} is not known here and was left out"] = None
    return [*said, *([f"{more} more were left out"] if more else [])]
