"""JSON schemas as grammars: whatever they allow satisfies the schema, and whatever is no schema is
refused in words."""

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_codec import ANY_VALUES, JSON_VALUES, thorough
from tests.unit.engines.host.grammar.conftest import allows, drawn

from onegate.engines.host.engine import Refusal
from onegate.engines.host.grammar.rest import rest_of
from onegate.engines.host.grammar.schema import grammar_of

NAMES = st.sampled_from(["a", "b", "\u20ac", 'q"', "\n", ""])
TYPES = ["object", "array", "string", "integer", "number", "boolean", "null"]
KEYWORDS = [
    *("type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("enum", "const", "anyOf", "allOf", "$ref", "$defs", "title", "pattern", "not"),
]


def schemas(depth: int = 2) -> st.SearchStrategy[Any]:
    """Schemas of keywords that are taken, deep enough to hold one another."""
    leaf = st.one_of(
        st.just(True),
        st.just({}),
        st.fixed_dictionaries({"type": st.sampled_from(TYPES)}),
        st.fixed_dictionaries(
            {"type": st.just("string")},
            optional={"minLength": st.integers(0, 3), "maxLength": st.integers(3, 6)},
        ),
        st.fixed_dictionaries(
            {"type": st.just("integer")},
            optional={"minimum": st.integers(-99, 5), "exclusiveMaximum": st.integers(7, 2000)},
        ),
        st.fixed_dictionaries({"enum": st.lists(JSON_VALUES, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"const": JSON_VALUES}),
        st.just({"$ref": "#/$defs/x"}),
    )
    if depth == 0:
        return leaf
    inner = schemas(depth - 1)
    return leaf | st.one_of(
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 2), "maxItems": st.integers(2, 4)},
        ),
        st.fixed_dictionaries(
            {"type": st.just("object")},
            optional={
                "properties": st.dictionaries(NAMES, inner, max_size=3),
                "required": st.lists(NAMES, max_size=2),
                "additionalProperties": inner,
            },
        ),
    )


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A schema with a definition that it may refer to, which may refer to the whole."""
    inner = draw(schemas(1) | st.just({"type": "array", "items": {"$ref": "#"}}))
    return {"anyOf": [draw(schemas())], "$defs": {"x": inner}}


def type_of(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return {"integer", "number"}
    names = {float: "number", str: "string", list: "array", dict: "object", type(None): "null"}
    return {names[type(value)]}


def satisfies(value: Any, schema: Any, root: Any) -> bool:
    """As the standard has it, for the keywords that are drawn here."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        target = root if schema["$ref"] == "#" else root["$defs"]["x"]
        return satisfies(value, target, root)
    if "type" in schema and schema["type"] not in type_of(value):
        return False
    if "enum" in schema and not any(equal(value, one) for one in schema["enum"]):
        return False
    if "const" in schema and not equal(value, schema["const"]):
        return False
    if "anyOf" in schema and not any(satisfies(value, one, root) for one in schema["anyOf"]):
        return False
    match value:
        case bool() | None:
            return True
        case str():
            return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9)
        case int() | float():
            high = schema.get("exclusiveMaximum", 10**30)
            return bool(schema.get("minimum", -(10**30)) <= value < high)
        case list():
            items = schema.get("items", True)
            return schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9) and all(
                satisfies(item, items, root) for item in value
            )
    others, named = schema.get("additionalProperties", True), schema.get("properties", {})
    return set(schema.get("required", [])) <= set(value) and all(
        satisfies(one, named.get(name, others), root) for name, one in value.items()
    )


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(type_of(one) & type_of(other)) and bool(one == other)


@thorough
@given(schema=documents(), seed=st.integers(0, 10**6))
def test_whatever_is_allowed_satisfies_the_schema(schema: dict[str, Any], seed: int) -> None:
    grammar = None
    with contextlib.suppress(Refusal):  # some are satisfied by nothing
        grammar = grammar_of(schema)
    if grammar is None or (text := drawn(grammar, seed)) is None:
        return
    assert satisfies(json.loads(text), schema, schema), text
    assert allows(grammar, text)
    # And cut anywhere, what is left of the text is allowed by what is left of the grammar.
    cut = seed % (len(text) + 1)
    rest = rest_of(grammar, text[:cut])
    assert rest is not None
    assert allows(rest, text[cut:])


@thorough
@given(
    schema=ANY_VALUES
    | st.dictionaries(st.sampled_from(KEYWORDS), ANY_VALUES | schemas(1), max_size=4)
)
def test_anything_is_a_grammar_or_refused_in_words(schema: Any) -> None:
    refused: Refusal | None = None
    try:
        assert grammar_of(schema).ebnf().isascii()
    except Refusal as error:
        refused = error
    if refused is not None:
        assert refused.code in ("invalid", "unsupported")
        assert str(refused).isprintable()
        assert len(str(refused)) < 300
