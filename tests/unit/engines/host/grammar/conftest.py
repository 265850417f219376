"""Whether a grammar allows a text, and texts that it allows."""

import random

from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, OneOf, Ref, Seq, Text
from onegate.engines.host.grammar.rest import rest_of

END = Text("\0")  # in no text of these tests


def allows(grammar, text):
    closed = Grammar(Seq((grammar.start, END)), grammar.rules)
    return rest_of(closed, text + END.text) is not None


def begins(grammar, text):
    return rest_of(grammar, text) is not None


def drawn(grammar, seed, most=600):
    """A text that the grammar allows, at random; None where it became too long."""
    dice = random.Random(seed)
    said, todo = "", [grammar.start]
    while todo:
        if len(said) > most or len(todo) > most:
            return None
        match todo.pop():
            case Text(text):
                said += text
            case OneOf(ranges, negated) as one:
                low, high = dice.choice(ranges)
                chars = "aé\u20ac\U0001f600" if negated else [low, high]
                said += dice.choice([char for char in chars if one.has(char)])
            case Seq(parts):
                todo += reversed(parts)
            case Alt(options):
                todo.append(dice.choice(options))
            case Ref(name):
                todo.append(grammar.rules[name])
            case Many(node, least, most_times):
                few = least + 3 if most_times is None else min(most_times, least + 3)
                todo += [node] * dice.randint(least, few)
    return said
