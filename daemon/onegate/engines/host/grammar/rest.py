"""What is left of a grammar behind the beginning of a text.

An answer that was cut goes on inside its grammar only if the grammar begins where the answer ended,
and the library's begin at their root. So the text is read here first, and every way to go on from
its end becomes the start of a grammar with the same rules.
"""

from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, Node, OneOf, Ref, Seq, Text


class _Stack:
    """What has still to come, the next of it on top. Equal ones are the same object."""

    __slots__ = ("below", "node")

    def __init__(self, node: Node, below: "_Stack | None") -> None:
        self.node = node
        self.below = below


_Ways = list[_Stack | None]


def rest_of(grammar: Grammar, text: str) -> Grammar | None:
    """The grammar of everything that completes `text`; None where nothing does."""
    reader = _Reader(grammar)
    ways: _Ways = [reader.stack(grammar.start, None)]
    for char in text:
        ways = reader.behind(ways, char)
        if not ways:
            return None
    return Grammar(Alt(tuple(map(_unstacked, ways))), grammar.rules)


def _unstacked(way: _Stack | None) -> Node:
    parts = []
    while way is not None:
        parts.append(way.node)
        way = way.below
    return Seq(tuple(parts)) if parts else Text("")


class _Reader:
    """Follows every way through a grammar at once. Within a string the ways do not change from one
    character to the next, so opening them is remembered."""

    def __init__(self, grammar: Grammar) -> None:
        self._rules = grammar.rules
        self._stacks: dict[tuple[int, int], _Stack] = {}
        self._opened: dict[int, _Ways] = {}
        self._fewer: dict[tuple[int, int, int | None], Many] = {}
        self._shorter: dict[str, Text] = {}

    def stack(self, node: Node, below: _Stack | None) -> _Stack:
        """`node` before everything of `below`."""
        key = id(node), id(below)
        if (found := self._stacks.get(key)) is None:
            found = self._stacks[key] = _Stack(node, below)
        return found

    def behind(self, ways: _Ways, char: str) -> _Ways:
        """The ways to go on behind one more character."""
        found: dict[int, _Stack | None] = {}
        for way in ways:
            for opened in self._open(way):
                if opened is None:
                    continue
                match opened.node:
                    case OneOf() as one if one.has(char):
                        after = opened.below
                    case Text(text) if text[0] == char:
                        after = self._push_text(text[1:], opened.below)
                    case _:
                        continue
                found[id(after)] = after
        return list(found.values())

    def _open(self, way: _Stack | None) -> _Ways:
        """The same, with a character on top of each; None where nothing has to come."""
        if (known := self._opened.get(id(way))) is not None:
            return known
        found: dict[int, _Stack | None] = {}
        seen: set[int] = set()
        todo = [way]
        while todo:
            top = todo.pop()
            if id(top) in seen:
                continue
            seen.add(id(top))
            if top is None:
                found[id(top)] = top
                continue
            match top.node:
                case OneOf():
                    found[id(top)] = top
                case Text(text) if text:
                    found[id(top)] = top
                case Text():
                    todo.append(top.below)
                case Ref(name):
                    todo.append(self.stack(self._rules[name], top.below))
                case Alt(options):
                    todo += [self.stack(option, top.below) for option in options]
                case Seq(parts):
                    below = top.below
                    for part in reversed(parts):
                        below = self.stack(part, below)
                    todo.append(below)
                case Many() as many:
                    todo += self._repeated(many, top.below)
        self._opened[id(way)] = ways = list(found.values())
        return ways

    def _repeated(self, many: Many, below: _Stack | None) -> _Ways:
        ways: _Ways = [] if many.least else [below]
        if many.most != 0:
            ways.append(self.stack(many.node, self.stack(self._once_less(many), below)))
        return ways

    def _once_less(self, many: Many) -> Many:
        if many.least == 0 and many.most is None:
            return many
        least, most = max(0, many.least - 1), None if many.most is None else many.most - 1
        key = id(many.node), least, most
        if (found := self._fewer.get(key)) is None:
            found = self._fewer[key] = Many(many.node, least, most)
        return found

    def _push_text(self, text: str, below: _Stack | None) -> _Stack | None:
        if not text:
            return below
        return self.stack(self._shorter.setdefault(text, Text(text)), below)
