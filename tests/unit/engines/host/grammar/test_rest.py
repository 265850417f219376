"""What is left behind the beginning of a text."""

import json

import pytest
from tests.unit.engines.host.grammar.conftest import allows, drawn

from onegate.engines.host.grammar.json_rules import any_object
from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, OneOf, Ref, Seq, Text
from onegate.engines.host.grammar.rest import rest_of
from onegate.engines.host.grammar.schema import grammar_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "kind": {"enum": ["one", "only", "o"]},
        "n": {"type": "integer", "minimum": 3, "maximum": 1234},
        "more": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
    },
    "required": ["kind"],
}
TEXTS = [
    '{"kind": "one"}',
    '{"name": "a\\"\u20ac", "kind": "only", "n": 123}',
    '{"kind": "o", "n": 7, "more": [{"kind": "o", "more": []}, {"kind": "one"}]}',
]


@pytest.mark.parametrize("text", TEXTS)
def test_cut_anywhere_the_rest_is_what_was_left(text):
    grammar = grammar_of(SCHEMA)
    for cut in range(len(text) + 1):
        rest = rest_of(grammar, text[:cut])
        assert allows(rest, text[cut:])
        # Nothing that would not have been allowed at once is allowed by the rest.
        for other in TEXTS:
            for tail in (other[cut:], other[cut + 1 :], text[cut + 1 :], text[cut:] + " "):
                assert allows(rest, tail) == allows(grammar, text[:cut] + tail)


@pytest.mark.parametrize("text", ["x", "{}", '{"n"', '{"kind": "x', '{"kind": "one"}}', '{"n": 2}'])
def test_behind_what_is_not_allowed_there_is_nothing(text):
    assert rest_of(grammar_of(SCHEMA), text) is None


def test_cut_again_and_again_it_is_the_same():
    text = json.dumps({"a": ["x" * 20, {"b": -1.5e3, "c": [None, True]}], "d": {}})
    whole = rest = any_object()
    for at in range(len(text)):
        rest = rest_of(rest, text[at])
        assert rest_of(whole, text[: at + 1]).start == rest.start
    assert allows(rest, "")


def test_counted_repetitions_go_on_counting():
    grammar = Grammar(Many(OneOf((("a", "b"),)), 2, 4), {})
    for n, more in ((0, [2, 3, 4]), (1, [1, 2, 3]), (2, [0, 1, 2]), (4, [0])):
        rest = rest_of(grammar, "ab"[:n] + "b" * max(0, n - 2))
        assert [m for m in range(6) if allows(rest, "a" * m)] == more
    assert rest_of(grammar, "aaaaa") is None


def test_every_way_is_followed_at_once():
    grammar = Grammar(Alt((Text("ab"), Seq((Text("a"), Ref("r"))), Text("a"))), {"r": Text("cd")})
    rest = rest_of(grammar, "a")
    assert [tail for tail in ("", "b", "cd", "c", "d") if allows(rest, tail)] == ["", "b", "cd"]


def test_what_may_be_empty_and_repeat_comes_to_an_end():
    grammar = Grammar(Seq((Many(Alt((Text(""), Many(Text("x"))))), Text("!"))), {})
    assert allows(grammar, "xxx!")
    assert allows(grammar, "!")


def test_a_long_text_costs_ways_not_copies():
    """The ways of a long string are a handful, however long it gets."""
    grammar = any_object()
    rest = rest_of(grammar, '{"a": ["' + "text " * 4000)
    assert isinstance(rest.start, Alt)
    assert len(rest.start.options) < 5
    assert len(rest.ebnf()) < len(grammar.ebnf()) + 500


def test_whatever_can_be_drawn_can_be_cut():
    grammar = any_object()
    for seed in range(60):
        text = drawn(grammar, seed)
        if text is not None:
            cut = seed % (len(text) + 1)
            assert allows(rest_of(grammar, text[:cut]), text[cut:])
