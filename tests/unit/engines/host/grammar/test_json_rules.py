"""JSON without a schema."""

import json

import pytest
from tests.unit.engines.host.grammar.conftest import allows, drawn

from onegate.engines.host.grammar import json_rules
from onegate.engines.host.grammar.json_rules import RULES, any_object, listed
from onegate.engines.host.grammar.nodes import Grammar, Text


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1},
        {"": [], "b": [1, -2.5, 1e10, True, False, None, "x"], "c": {"d": {}}},
        {"é\u20ac\U0001f600\x7f": "\u2028"},
        {'"\\/\b\f\n\r\t': "\x01"},
        {"-": -0.5},
    ],
)
def test_objects_as_they_are_usually_written(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        if "\\ud83d" not in text:  # half of a pair
            assert allows(any_object(), text), text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        '{"a": 1',
        '{"a": 1,}',
        '{"a": 01}',
        '{"a": .5}',
        '{"a": 1.}',
        '{"a": +1}',
        '{"a": NaN}',
        "{'a': 1}",
        '{"a": "\n"}',
        '{"a": "\\x"}',
        '{"a": "\\ud83d"}',
        '{"a": tru}',
        '{"a":1}',
        '{ "a": 1}',
        '{"a": 1} ',
    ],
)
def test_nothing_else_is_an_object(text):
    assert not allows(any_object(), text)


def test_whatever_is_allowed_can_be_read_and_sent():
    texts = [text for seed in range(300) if (text := drawn(any_object(), seed)) is not None]
    assert len(texts) > 100
    for text in texts:
        assert isinstance(json.loads(text), dict)
        text.encode()
    assert len(set(texts)) > 30


@pytest.mark.parametrize(
    ("least", "most", "counts"),
    [(0, None, [0, 1, 5]), (1, None, [1, 5]), (0, 0, [0]), (0, 1, [0, 1]), (2, 3, [2, 3])],
)
def test_lists_have_as_many_items_as_they_may(least, most, counts):
    grammar = Grammar(listed(Text("x"), least, most), RULES)
    for n in range(7):
        more = most is None and n >= least
        assert allows(grammar, ", ".join("x" * n)) == (n in counts or more)


def test_no_rule_is_called_as_the_library_calls_the_start():
    assert "root" not in RULES
    assert json_rules.OBJECT.name in RULES
