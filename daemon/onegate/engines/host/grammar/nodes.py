"""Grammars of texts, in the few forms that JSON needs, and as the text that the library reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import hexdigits


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text; it may be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of these ranges, or with `negated` one of none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def has(self, char: str) -> bool:
        """Whether this is such a character."""
        return self.negated is not any(low <= char <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Alt:
    """Any of these."""

    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Many:
    """The same again and again, `least` to `most` times; None is without end."""

    node: "Node"
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """The rule of this name: letters, digits and underscores."""

    name: str


Node = Text | OneOf | Seq | Alt | Many | Ref


@dataclass(frozen=True, slots=True)
class Grammar:
    """All texts that `start` allows. No rule is called `root`."""

    start: Node
    rules: Mapping[str, Node]

    def ebnf(self) -> str:
        """As the library reads it."""
        lines = [f"{name} ::= {_written(node)}" for name, node in self.rules.items()]
        return "\n".join([f"root ::= {_written(self.start)}", *lines]) + "\n"


def _written(node: Node) -> str:
    match node:
        case Text(text):
            return _quoted(text)
        case OneOf(ranges, negated):
            # Numbers last, for the same reason as in a text.
            spans = sorted((_span(low, high) for low, high in ranges), key=_is_numbered)
            return f"[{'^' if negated else ''}{''.join(spans)}]"
        case Seq(parts):
            return f"({' '.join(map(_written, parts))})"
        case Alt(options):
            return f"({' | '.join(map(_written, options))})"
        case Many(inner, least, most):
            return f"({_written(inner)}){_times(least, most)}"
        case Ref(name):
            return name


def _times(least: int, most: int | None) -> str:
    if most is None:
        return "*" if least == 0 else f"{{{least},}}"
    return f"{{{least},{most}}}"


def _quoted(text: str) -> str:
    """In quotes. The library writes a grammar anew and reads it again, some characters by a number
    that takes every digit behind it for its own: there the quotes end and begin."""
    written = '"'
    numbered = False
    for char in text:
        if numbered and char in hexdigits:
            written += '" "'
        numbered = not " " <= char <= "~"
        written += _by_number(char) if numbered else f"\\{char}" if char in '"\\' else char
    return f'{written}"'


def _span(low: str, high: str) -> str:
    return _in_class(low) if low == high else f"{_in_class(low)}-{_in_class(high)}"


def _is_numbered(span: str) -> bool:
    return "\\" in span


def _in_class(char: str) -> str:
    return char if char.isascii() and char.isalnum() else _by_number(char)


def _by_number(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"
