"""Schemas as grammars."""

import json

import pytest
from tests.unit.engines.host.grammar.conftest import allows, drawn

from onegate.engines.host.engine import Refusal
from onegate.engines.host.grammar.schema import (
    MAX_DEPTH,
    MAX_FIXED_BYTES,
    MAX_REPEATS,
    MAX_SUBSCHEMAS,
    PATH,
    grammar_of,
)

PERSON = {
    "type": "object",
    "title": "Person",
    "properties": {
        "name": {"type": "string", "description": "in full", "minLength": 1},
        "age": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def odd_bounds(i):
    return {"type": "integer", "minimum": i - 123456789012345, "maximum": 987654321098765 - i}


TREE = {
    "$defs": {
        "a/b~c d": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "below": {"$ref": "#/$defs/list"}},
            "required": ["v", "below"],
        },
        "list": {"type": "array", "items": {"$ref": "#/$defs/a~1b~0c%20d"}},
    },
    "$ref": "#/$defs/a~1b~0c%20d",
}

CASES = [
    (PERSON, ['{"name": "A"}', '{"name": "A", "age": 3, "tags": ["x", "y"]}'], "valid"),
    (PERSON, ['{"name": "A", "age": null}', '{"name": "A", "tags": []}'], "valid"),
    (PERSON, ['{"name": ""}', "{}", '{"age": 3}', '{"age": 3, "name": "A"}'], "not"),
    (PERSON, ['{"name": "A", "age": -1}', '{"name": "A", "x": 1}', '{"name": "A", }'], "not"),
    (PERSON, ['{"name": "A", "tags": ["x", "y", "z"]}', '{"name": "A", "name": "B"}'], "not"),
    (TREE, ['{"v": 1, "below": []}', '{"v": 1, "below": [{"v": 2, "below": []}]}'], "valid"),
    (TREE, ['{"v": 1}', '{"v": 1, "below": [1]}'], "not"),
    ({}, ["1", '"x"', "null", '{"a": [1]}'], "valid"),
    (True, ["1", "[]"], "valid"),
    ({"title": "t"}, ["1", "[]"], "valid"),
    ({"type": "object"}, ["{}", '{"a": 1, "b": [2]}'], "valid"),
    ({"type": "object"}, ["[]", "1"], "not"),
    ({"type": "object", "additionalProperties": False}, ["{}"], "valid"),
    ({"type": "object", "additionalProperties": False}, ['{"a": 1}'], "not"),
    ({"type": "object", "additionalProperties": {"type": "null"}}, ["{}", '{"a": null}'], "valid"),
    ({"type": "object", "additionalProperties": {"type": "null"}}, ['{"a": 1}'], "not"),
    ({"required": ["b", "a"]}, ['{"b": 1, "a": {}}'], "valid"),
    ({"required": ["b", "a"]}, ['{"b": 1}', "{}", "1"], "not"),
    ({"properties": {"a": True, "b": True}}, ["{}", '{"a": 1}', '{"b": 1}'], "valid"),
    ({"properties": {"a": True, "b": True}}, ['{"a": 1, "b": 2}'], "valid"),
    (
        {"properties": {"a": True, "b": True}},
        ['{"a": 1 }', '{, "b": 2}', '{"b": 1, "a": 2}'],
        "not",
    ),
    ({"properties": {'"\n': {"const": 1}}, "required": ['"\n']}, ['{"\\"\\n": 1}'], "valid"),
    ({"type": "array"}, ["[]", "[1, {}]"], "valid"),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, ["[true, false]"], "valid"),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, ["[]", "[1]"], "not"),
    ({"minItems": 2, "maxItems": 2}, ["[1, 2]"], "valid"),
    ({"minItems": 2, "maxItems": 2}, ["[1]", "[1, 2, 3]", "1"], "not"),
    ({"maxItems": 0}, ["[]"], "valid"),
    ({"maxItems": 0}, ["[1]"], "not"),
    (
        {"type": "string", "minLength": 2, "maxLength": 3},
        ['"ab"', '"\\n\\u20ac\U0001f600"'],
        "valid",
    ),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"a"', '"abcd"', '"\\n"'], "not"),
    ({"type": "string", "maxLength": 1.0}, ['""', '"a"'], "valid"),
    ({"type": "integer"}, ["0", "-12"], "valid"),
    ({"type": "integer"}, ["1.0", "01", "1e3"], "not"),
    ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 4}, ["2", "3"], "valid"),
    ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 4}, ["1", "4"], "not"),
    ({"minimum": 0.5, "maximum": 2.5}, ["1", "2"], "valid"),
    ({"minimum": 0.5, "maximum": 2.5}, ["0", "3"], "not"),
    ({"type": "integer", "minimum": -(10**30)}, ["-999999999999999"], "valid"),
    ({"type": "number"}, ["0.5", "-0.25", "1", "6.02e23", "-0"], "valid"),
    ({"type": ["string", "null"]}, ['"x"', "null"], "valid"),
    ({"type": ["string", "null"]}, ["1"], "not"),
    ({"type": ["null", "null"]}, ["null"], "valid"),
    ({"type": "null", "maxLength": 3, "properties": {"a": True}}, ["null"], "valid"),
    ({"enum": [1, "1", None, {"a": [1]}]}, ["1", '"1"', "null", '{"a": [1]}'], "valid"),
    ({"enum": [1, "1", None]}, ["2", "true"], "not"),
    ({"enum": [1, "x", True], "type": "string"}, ['"x"'], "valid"),
    ({"enum": [1, "x", True], "type": "string"}, ["1", "true"], "not"),
    ({"const": "\u20ac\n"}, ['"\u20ac\\n"'], "valid"),
    ({"const": 1, "enum": [True, 1, 2]}, ["1"], "valid"),
    ({"const": 1, "enum": [True, 1, 2]}, ["true", "2"], "not"),
    ({"const": None}, ["null"], "valid"),
    ({"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"const": 3}}}, ["3"], "valid"),
    ({"anyOf": [{"const": 1}, {"$ref": "#/anyOf/0"}]}, ["1"], "valid"),
]


@pytest.mark.parametrize(("schema", "texts", "verdict"), CASES)
def test_what_satisfies_a_schema_is_allowed_and_nothing_else(schema, texts, verdict):
    grammar = grammar_of(schema)
    for text in texts:
        assert allows(grammar, text) == (verdict == "valid"), text


def long_chain(n):
    return {
        "$ref": "#/$defs/s0",
        "$defs": {f"s{i}": {"$ref": f"#/$defs/s{i + 1}"} for i in range(n)} | {f"s{n}": True},
    }


def nested(n):
    schema = {"type": "null"}
    for _ in range(n):
        schema = {"type": "array", "items": schema}
    return schema


def test_references_may_go_a_long_way():
    assert allows(grammar_of(long_chain(MAX_SUBSCHEMAS - 2)), "[1]")


BAD = [
    ("is no schema", "invalid", {"items": 3}),
    ("is no schema", "invalid", {"items": [{}]}),
    ("by no answer", "invalid", False),
    ("by no answer", "invalid", {"anyOf": [{"const": 1}, False]}),
    ("by no answer", "invalid", {"enum": [1, 2], "type": "string"}),
    ("by no answer", "invalid", {"enum": []}),
    ("by no answer", "invalid", {"const": True, "enum": [1]}),
    ("by no answer", "invalid", {"minItems": 3, "maxItems": 2}),
    ("by no answer", "invalid", {"required": ["a"], "additionalProperties": False}),
    ("by no integer", "invalid", {"type": "integer", "minimum": 5, "maximum": 4}),
    ("by no integer", "invalid", {"type": "integer", "minimum": 10**15}),
    ("by no finite answer", "invalid", {"required": ["a"], "properties": {"a": {"$ref": "#"}}}),
    ("by no finite answer", "invalid", {"items": {"$ref": "#"}, "minItems": 1}),
    ("to itself", "invalid", {"$ref": "#"}),
    ("to itself", "invalid", {"anyOf": [{"type": "null"}, {"$ref": "#"}]}),
    ("to itself", "invalid", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}}),
    ("is not there", "invalid", {"$ref": "#/$defs/a"}),
    ("is not there", "invalid", {"$ref": "#/$defs/l/7", "$defs": {"l": []}}),
    ("not part of it", "unsupported", {"$ref": "https://example.org/schema"}),
    ("not part of it", "unsupported", {"$ref": 3}),
    ("beside $ref", "unsupported", {"$ref": "#/$defs/a", "type": "null", "$defs": {"a": True}}),
    ("beside anyOf", "unsupported", {"anyOf": [True], "type": "null"}),
    ("beside fixed", "unsupported", {"enum": ["a"], "minLength": 3}),
    ("of several", "unsupported", {"allOf": [True, True]}),
    ("no list of schemas", "invalid", {"anyOf": []}),
    ("no list of schemas", "invalid", {"anyOf": {}}),
    ("no list", "invalid", {"enum": 3}),
    ("which JSON does not have", "invalid", {"type": "text"}),
    ("which JSON does not have", "invalid", {"type": ["null", 3]}),
    ("empty list of types", "invalid", {"type": []}),
    ("no count", "invalid", {"minLength": -1}),
    ("no count", "invalid", {"maxItems": True}),
    ("no count", "invalid", {"maxItems": 2.5}),
    ("no count", "invalid", {"maxItems": float("inf")}),
    ("no number", "invalid", {"minimum": "3"}),
    ("no number", "invalid", {"minimum": float("nan")}),
    ("properties that are no object", "invalid", {"properties": []}),
    ("no list of names", "invalid", {"required": "a"}),
    ("no list of names", "invalid", {"required": [1]}),
    ("fractions", "unsupported", {"type": "number", "minimum": 0}),
    ("no JSON", "invalid", {"const": b"x"}),
    ("no JSON", "invalid", {"const": float("inf")}),
    ("nested too deeply", "invalid", nested(MAX_DEPTH + 1)),
    ("too large", "invalid", long_chain(MAX_SUBSCHEMAS)),
    ("too large", "invalid", {"anyOf": [True] * MAX_SUBSCHEMAS}),
    ("too large", "invalid", {"const": "x" * MAX_FIXED_BYTES}),
    ("too large", "invalid", {"const": "\U0001f600" * (MAX_FIXED_BYTES // 4)}),
    ("rounder", "invalid", {"anyOf": [odd_bounds(i) for i in range(60)]}),
    ("counts too far", "invalid", {"maxLength": MAX_REPEATS + 1}),
    ("counts too far", "invalid", {"minItems": 10**30}),
    ("counts too far", "invalid", {"items": {"maxItems": 600}, "maxItems": 600}),
    *(
        (f'has "{key}", which', "unsupported", {"type": "string", key: value})
        for key, value in {
            "pattern": "(a+)+$",
            "format": "uuid",
            "oneOf": [{}],
            "not": {},
            "if": {},
            "multipleOf": 2,
            "uniqueItems": True,
            "prefixItems": [],
            "patternProperties": {},
            "propertyNames": {},
            "minProperties": 1,
            "contains": {},
            "dependentRequired": {},
            "$dynamicRef": "#",
            "$id": "x",
            "typ": "string",
        }.items()
    ),
]


@pytest.mark.parametrize(("says", "code", "schema"), BAD)
def test_what_cannot_be_followed_is_refused_in_words(says, code, schema):
    with pytest.raises(Refusal) as refused:
        grammar_of(schema)
    assert says in str(refused.value)
    assert refused.value.code == code
    assert refused.value.path == PATH


def test_a_refusal_says_where_and_nothing_in_it_acts():
    with pytest.raises(Refusal) as refused:
        grammar_of({"properties": {"a": {"items": {"\x1b[2J\n" + "k" * 500: 1}}}})
    message = str(refused.value)
    assert message.startswith("the schema at /properties/a/items has ")
    assert message.isprintable()
    assert message.isascii()
    assert len(message) < 250
    with pytest.raises(Refusal) as refused:
        grammar_of({"properties": {"\x1b\n" * 300: {"not": {}}}})
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 250


def test_the_largest_schema_stays_a_small_grammar():
    wide = {"properties": {f"p{i}": {"type": "integer"} for i in range(MAX_SUBSCHEMAS - 1)}}
    assert len(grammar_of(wide).ebnf()) < 200 * MAX_SUBSCHEMAS
    counted = {"properties": {f"p{i}": {"maxLength": 2} for i in range(MAX_SUBSCHEMAS - 1)}}
    assert len(grammar_of(counted).ebnf()) < 200 * MAX_SUBSCHEMAS


@pytest.mark.parametrize("schema", [PERSON, TREE, {"items": {"enum": ["a", 1]}}, {}])
def test_whatever_is_allowed_can_be_read(schema):
    grammar = grammar_of(schema)
    texts = [text for seed in range(100) if (text := drawn(grammar, seed)) is not None]
    assert len(texts) > 20
    for text in texts:
        json.loads(text)


def test_what_is_fixed_is_written_once_however_many_it_is_compared_with(monkeypatch):
    written = []
    dumps = json.dumps
    monkeypatch.setattr(
        "onegate.engines.host.grammar.schema.json.dumps",
        lambda value, **given: written.append(value) or dumps(value, **given),
    )
    with pytest.raises(Refusal, match="by no answer"):
        grammar_of({"enum": ["a", "b", "c"] * 10, "const": "far away"})
    assert written.count("far away") == 1
