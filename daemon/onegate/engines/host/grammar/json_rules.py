"""JSON itself: what a part of an answer is that its schema does not say more about.

Written on one line, with one space behind each comma and colon: a model that may choose spaces and
line breaks freely can go on choosing them until its tokens run out.
"""

from collections.abc import Mapping
from types import MappingProxyType

from onegate.engines.host.grammar.integers import DIGIT, MOST, between
from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, Node, OneOf, Ref, Seq, Text

_HEX = OneOf((("0", "9"), ("a", "f"), ("A", "F")))
# Halves of surrogate pairs are left out: alone they are no character, and no UTF-8 can hold them.
_UNICODE = Seq(
    (
        Text("u"),
        Alt(
            (
                Seq((OneOf((("0", "9"), ("a", "c"), ("A", "C"), ("e", "f"), ("E", "F"))), _HEX)),
                Seq((OneOf((("d", "d"), ("D", "D"))), OneOf((("0", "7"),)))),
            )
        ),
        Many(_HEX, 2, 2),
    )
)
_ESCAPES = OneOf(tuple((char, char) for char in '"\\/bfnrt'))
_PLAIN = OneOf(((chr(0), chr(31)), ('"', '"'), ("\\", "\\")), negated=True)
_FRACTION = Seq((Text("."), Many(DIGIT, 1, 15)))
_SIGN = Many(OneOf((("+", "+"), ("-", "-"))), 0, 1)
_EXPONENT = Seq((OneOf((("e", "e"), ("E", "E"))), _SIGN, Many(DIGIT, 1, 2)))


def listed(item: Node, least: int = 0, most: int | None = None) -> Node:
    """Items with commas between them, `least` to `most` of them."""
    if most == 0:
        return Text("")
    some = item
    if most != 1:
        further = Seq((Text(", "), item))
        some = Seq((item, Many(further, max(0, least - 1), None if most is None else most - 1)))
    return some if least else Alt((some, Text("")))


def pairs(value: Node) -> Node:
    """An object of any keys, with such values."""
    return Seq((Text("{"), listed(Seq((STRING, Text(": "), value))), Text("}")))


STRING = Ref("string")
INTEGER = Ref("integer")
NUMBER = Ref("number")
VALUE = Ref("value")
OBJECT = Ref("object")
ARRAY = Ref("array")
BOOLEAN = Alt((Text("true"), Text("false")))
NULL = Text("null")
CHAR = Ref("char")

RULES: Mapping[str, Node] = MappingProxyType(
    {
        "char": Alt((_PLAIN, Seq((Text("\\"), Alt((_ESCAPES, _UNICODE)))))),
        "string": Seq((Text('"'), Many(CHAR), Text('"'))),
        "integer": between(-MOST, MOST),
        "number": Seq(
            (
                Many(Text("-"), 0, 1),
                between(0, MOST),
                Many(_FRACTION, 0, 1),
                Many(_EXPONENT, 0, 1),
            )
        ),
        "array": Seq((Text("["), listed(VALUE), Text("]"))),
        "object": pairs(VALUE),
        "value": Alt((OBJECT, ARRAY, STRING, NUMBER, BOOLEAN, NULL)),
    }
)


def any_object() -> Grammar:
    """Every JSON object."""
    return Grammar(OBJECT, RULES)
