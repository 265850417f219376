"""Tables from a file into structs, collecting every problem instead of stopping at the first."""

from difflib import get_close_matches
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from onegate.config.model import ConfigProblem
from onegate.config.shape import NONE_WORD, Shape, shapes

S = TypeVar("S", bound=Struct)

# Keys and values are quoted back to a person; a hostile file may hold a megabyte of either.
_MAX_SHOWN = 60


def show(value: object) -> str:
    """A value as the file wrote it, near enough, and short."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 128:
        return "an integer far out of range"  # printing it may be refused, and helps nobody
    text = ascii(value) if isinstance(value, str) else str(value)
    if isinstance(value, str):
        text = '"' + text[1:-1] + '"'
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def nearest(word: str, known: list[str]) -> str:
    """` (did you mean "x"?)`, or nothing."""
    close = get_close_matches(word[:_MAX_SHOWN], known, n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


class Reader:
    """Reads tables and keeps what was wrong. `bad` holds the paths whose value is unusable."""

    def __init__(self) -> None:
        self.problems: list[ConfigProblem] = []
        self.bad: set[str] = set()

    def say(self, path: str, message: str) -> None:
        self.problems.append(ConfigProblem(path, message))
        self.bad.add(path)

    def table(self, kind: type[S], value: object, path: str, base: S | None = None) -> S | None:
        """`value` over `base`, or over the defaults; None where a required key has no value.

        A key with a problem keeps its default, so that everything else is still checked.
        """
        if not isinstance(value, dict):
            self.say(path, f"expected a table, got {show(value)}")
            return base
        known = shapes(kind)
        for key in value:
            if key not in known:
                text = f"unknown key; known are {', '.join(known)}{nearest(key, list(known))}"
                self.say(f"{path}.{show(key)[1:-1]}", text)
        given: dict[str, Any] = {}
        for key, (field, shape) in known.items():
            where = f"{path}.{key}"
            if key in value:
                before = len(self.problems)
                found = self._value(field.type, shape, value[key], where)
                if len(self.problems) == before:
                    given[field.name] = found
            elif field.required and base is None:
                self.say(where, f"missing; expected {shape.allowed()}")
        if base is not None:
            return structs.replace(base, **given)
        if any(field.required and field.name not in given for field, _ in known.values()):
            return None
        return kind(**given)

    def _value(self, annotation: Any, shape: Shape, value: object, path: str) -> object:
        if shape.optional and value == NONE_WORD:
            return None
        if shape.table is not None:
            return self.table(shape.table, value, path)
        if shape.tables is not None:
            return tuple(
                entry
                for i, item in enumerate(self.array(value, path))
                if (entry := self.table(shape.tables, item, f"{path}[{i}]")) is not None
            )
        try:
            return cast(object, msgspec.convert(value, annotation, strict=True))
        except msgspec.ValidationError:
            self.say(path, f"expected {shape.allowed()}, got {show(value)}")
            return None

    def array(self, value: object, path: str, at_most: int = 64) -> list[object]:
        """The entries of an array of tables, bounded."""
        if not isinstance(value, list):
            self.say(path, f"expected [[{path}]] entries, got {show(value)}")
            return []
        if len(value) > at_most:
            self.say(path, f"at most {at_most} entries, got {len(value)}")
            return []
        return value
