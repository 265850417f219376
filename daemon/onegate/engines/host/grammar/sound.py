"""Whether a grammar can be followed at all: it ends somewhere, and every rule begins with text."""

from collections.abc import Iterator, Mapping

from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, Node, OneOf, Ref, Seq, Text


def never_ends(grammar: Grammar) -> str | None:
    """The name of a rule whose texts all go on for ever; None where there is none."""
    rules = grammar.rules
    waiting: dict[str, list[str]] = {}
    for name, node in rules.items():
        for below in set(_refs(node)):
            waiting.setdefault(below, []).append(name)
    ending: set[str] = set()
    todo = list(rules)
    while todo:
        name = todo.pop()
        if name not in ending and _ends(rules[name], ending):
            ending.add(name)
            # What had to wait for this one may end now.
            todo += waiting.get(name, ())
    return next((name for name in rules if name not in ending), None)


def _refs(node: Node) -> Iterator[str]:
    match node:
        case Ref(name):
            yield name
        case Seq(several) | Alt(several):
            for one in several:
                yield from _refs(one)
        case Many(inner, _, _):
            yield from _refs(inner)
        case Text() | OneOf():
            return


def _ends(node: Node, ending: set[str]) -> bool:
    match node:
        case Text() | OneOf():
            return True
        case Seq(parts):
            return all(_ends(part, ending) for part in parts)
        case Alt(options):
            return any(_ends(option, ending) for option in options)
        case Many(inner, least, _):
            return least == 0 or _ends(inner, ending)
        case Ref(name):
            return name in ending


def begins_with_itself(grammar: Grammar) -> str | None:
    """The name of a rule that can be entered again before any text; None where there is none."""
    rules = grammar.rules
    done: set[str] = set()
    for top in rules:
        if top in done:
            continue
        path = [(top, _first_refs(rules[top], rules))]
        on_path = {top}
        while path:
            name, below = path[-1]
            reached = next(below, None)
            if reached is None:
                path.pop()
                on_path.discard(name)
                done.add(name)
            elif reached in on_path:
                return reached
            elif reached not in done:
                on_path.add(reached)
                path.append((reached, _first_refs(rules[reached], rules)))
    return None


def _first_refs(node: Node, rules: Mapping[str, Node]) -> Iterator[str]:
    """Rules that can be entered before any text. No rule here can be empty."""
    match node:
        case Ref(name):
            yield name
        case Seq(parts):
            for part in parts:
                yield from _first_refs(part, rules)
                if not _may_be_empty(part):
                    return
        case Alt(options):
            for option in options:
                yield from _first_refs(option, rules)
        case Many(inner, _, _):
            yield from _first_refs(inner, rules)
        case Text() | OneOf():
            return


def _may_be_empty(node: Node) -> bool:
    match node:
        case Text(text):
            return not text
        case Seq(parts):
            return all(map(_may_be_empty, parts))
        case Alt(options):
            return any(map(_may_be_empty, options))
        case Many(_, least, _):
            return least == 0
        case OneOf() | Ref():
            return False
