"""What a prompt of the scripted engine asks for. See `scripted`, which lists the words."""

import re
from dataclasses import dataclass

# Bounded, because a prompt may be megabytes of brackets.
_DIRECTIVE = re.compile(r"\[\[([a-z0-9-]{1,32})(?::([^\[\]]{0,4096}))?\]\]")

# Words of the table that take a number, with the number they have when none is given.
_NUMBERS = {
    "tokens": 64,
    "stall": 60_000,
    "step-ms": 0,
    "die": 3,
    "garbage": 3,
    "half-utf8": 3,
    "huge-frame": 3,
    "wrong-id": 3,
    "close": 3,
    "hang": 3,
    "freeze": 3,
    "hold-seat": 1_000,
    "cached": 10_000_000,
}
_TEXTS = {"say", "error", "refuse"}
_FLAGS = {"die-before-first"}
# Longer than anybody waits; keeps absurd numbers out of the arithmetic of clocks.
_MOST = 10_000_000


@dataclass(frozen=True)
class Script:
    """The directives of one prompt by name; a number, a text, or True for those without either."""

    numbers: dict[str, int]
    texts: dict[str, str]
    flags: frozenset[str]

    def number(self, name: str) -> int | None:
        """The number of a directive, None where the prompt does not have it."""
        return self.numbers.get(name)


def read_script(prompt: str) -> Script:
    """The directives in a prompt, the last of each name. Everything else is ordinary text."""
    numbers: dict[str, int] = {}
    texts: dict[str, str] = {}
    flags: set[str] = set()
    for name, value in _DIRECTIVE.findall(prompt):
        if name in _NUMBERS:
            digits = value.isascii() and value.isdigit() and len(value) < 16
            numbers[name] = min(int(value), _MOST) if digits else _NUMBERS[name]
        elif name in _TEXTS:
            texts[name] = value
        elif name in _FLAGS:
            flags.add(name)
    return Script(numbers, texts, frozenset(flags))
