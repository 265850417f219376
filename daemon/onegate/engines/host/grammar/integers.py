"""Whole numbers between two bounds, as a grammar of their digits."""

from onegate.engines.host.grammar.nodes import Alt, Many, Node, OneOf, Seq, Text

# The largest of fifteen digits, below 2^53: every reader of JSON holds it exactly.
MOST = 10**15 - 1

DIGIT = OneOf((("0", "9"),))


def between(low: int, high: int) -> Node:
    """Every whole number from `low` to `high`, both within ±`MOST`, without leading zeros."""
    options: list[Node] = []
    if high >= 0:
        options.append(_counted(max(0, low), high))
    if low < 0:
        options.append(Seq((Text("-"), _counted(max(1, -high), -low))))
    return _any(options)


def _counted(low: int, high: int) -> Node:
    """From `low` to `high`, neither below zero: by their numbers of digits."""
    options: list[Node] = []
    whole: list[int] = []
    for n_digits in range(len(str(low)), len(str(high)) + 1):
        smallest, largest = 10 ** (n_digits - 1), 10**n_digits - 1
        if low <= smallest and largest <= high and (low or n_digits > 1):
            whole.append(n_digits)
        else:
            first = max(low, smallest if n_digits > 1 else 0)
            options.append(_span(str(first), str(min(high, largest))))
    if whole:
        further = Many(DIGIT, whole[0] - 1, whole[-1] - 1)
        options.append(Seq((OneOf((("1", "9"),)), further)))
    return _any(options)


def _span(low: str, high: str) -> Node:
    """Between two numbers of as many digits."""
    n_rest = len(low) - 1
    if low == high:
        return Text(low)
    if low[1:] == "0" * n_rest and high[1:] == "9" * n_rest:
        first = OneOf(((low[0], high[0]),))
        return Seq((first, Many(DIGIT, n_rest, n_rest))) if n_rest else first
    if low[0] == high[0]:
        return Seq((Text(low[0]), _span(low[1:], high[1:])))
    options: list[Node] = [Seq((Text(low[0]), _span(low[1:], "9" * n_rest)))]
    if ord(high[0]) - ord(low[0]) > 1:
        inner = OneOf(((chr(ord(low[0]) + 1), chr(ord(high[0]) - 1)),))
        options.append(Seq((inner, Many(DIGIT, n_rest, n_rest))))
    options.append(Seq((Text(high[0]), _span("0" * n_rest, high[1:]))))
    return Alt(tuple(options))


def _any(options: list[Node]) -> Node:
    return options[0] if len(options) == 1 else Alt(tuple(options))
