"""A JSON schema as a grammar of answers that satisfy it.

Not of all such answers: where a schema names an object's properties they come in that order and no
others do, numbers have at most fifteen digits, and everything is on one line. A keyword that would
have to be ignored is refused, and so is a schema that costs more than its answers are worth.
"""

import json
import math
from collections import deque
from typing import Any, NoReturn
from urllib.parse import unquote

from onegate.engines.host.engine import Refusal
from onegate.engines.host.grammar import json_rules
from onegate.engines.host.grammar.integers import MOST, between
from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, Node, Ref, Seq, Text
from onegate.engines.host.grammar.sound import begins_with_itself, never_ends

PATH = "params.response_format.json_schema.schema"

# Bounds of one schema: subschemas, their depth, bytes of names and fixed values, all repetitions
# that are counted, and characters of grammar for bounds of integers. The library compiles a grammar
# in the step that first follows it, and every sequence waits: with 2026.4.1 and 49,152 tokens
# 0.04 ms of CPU for a byte of long fixed values that begin alike, 0.3 ms for a property, next to
# nothing for counts. One bounded integer may take 1,500 characters of grammar: 20 of them took
# 0.2 s, 60 took four seconds, and 510 more than a minute.
MAX_SUBSCHEMAS = 512
MAX_DEPTH = 32
MAX_FIXED_BYTES = 8192
MAX_REPEATS = 1024
MAX_BOUNDS_CHARS = 32_768

_CANNOT = "unsupported"
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
# They say nothing about the answer.
_NOTES = frozenset(
    ("$schema", "$comment", "$defs", "definitions", "title", "description", "default", "examples")
) | {"deprecated", "readOnly", "writeOnly"}
_OF_TYPES = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_TYPED = frozenset(key for keys in _OF_TYPES.values() for key in keys)
_ALONE = ("$ref", "anyOf", "allOf")
_KNOWN = _NOTES | _TYPED | frozenset(_ALONE) | {"type", "enum", "const"}


def grammar_of(schema: Any) -> Grammar:
    """The grammar. Raises Refusal: `unsupported` for a keyword that is not known here, `invalid`
    for what is no schema, is too large, or no answer can satisfy."""
    builder = _Builder(schema)
    grammar = builder.build()
    if (name := begins_with_itself(grammar)) is not None:
        _refuse(builder.place(name), "refers to itself before anything is said")
    if (name := never_ends(grammar)) is not None:
        _refuse(builder.place(name), "is satisfied by no finite answer")
    return grammar


class _Builder:
    """One schema on its way to rules. References are followed one by one, never within another."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._rules: dict[str, Node] = dict(json_rules.RULES)
        self._names: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._todo: deque[tuple[str, Any, str]] = deque()
        self._left_subschemas = MAX_SUBSCHEMAS
        self._left_bytes = MAX_FIXED_BYTES
        self._left_written = MAX_BOUNDS_CHARS
        self._left_repeats = MAX_REPEATS

    def build(self) -> Grammar:
        start = self._referred("#", "")
        while self._todo:
            name, schema, place = self._todo.popleft()
            self._rules[name] = self._node(schema, place, 0)
        return Grammar(start, self._rules)

    def place(self, name: str) -> str:
        """Where in the schema the rule is from."""
        return self._places.get(name, "")

    # --- one subschema ----------------------------------------------------------------------------

    def _node(self, schema: Any, place: str, depth: int) -> Node:
        self._left_subschemas -= 1
        if self._left_subschemas < 0:
            _refuse(place, f"is too large: {MAX_SUBSCHEMAS} subschemas are taken in all")
        if depth > MAX_DEPTH:
            _refuse(place, f"is nested too deeply: {MAX_DEPTH} levels are taken")
        if schema is True:
            return json_rules.VALUE
        if schema is False:
            _refuse(place, "is satisfied by no answer")
        if not isinstance(schema, dict):
            _refuse(place, "is no schema: it must be an object")
        for key in schema:
            if not isinstance(key, str) or key not in _KNOWN:
                _unsupported(place, _shown(key))
        said = schema.keys() - _NOTES
        for key in _ALONE:
            if key in said:
                if len(said) > 1:
                    _refuse(place, f"has more beside {key}: say it there, or leave it out", _CANNOT)
                return self._alone(key, schema[key], place, depth)
        types = _types(schema, place)
        if "enum" in said or "const" in said:
            if said - {"enum", "const", "type"}:
                _refuse(place, "has more than type beside fixed values: leave it out", _CANNOT)
            return self._fixed(schema, types, place)
        if not types:
            return json_rules.VALUE
        return _any([self._typed(name, schema, place, depth) for name in types])

    def _alone(self, key: str, value: Any, place: str, depth: int) -> Node:
        if key == "$ref":
            return self._referred(value, place)
        if not isinstance(value, list) or not value:
            _refuse(place, f"has {key} that is no list of schemas")
        if key == "allOf" and len(value) > 1:
            _refuse(place, "has allOf of several schemas: write them as one", _CANNOT)
        return _any(
            [self._node(one, f"{place}/{key}/{i}", depth + 1) for i, one in enumerate(value)]
        )

    def _typed(self, name: str, schema: dict[str, Any], place: str, depth: int) -> Node:
        match name:
            case "object":
                return self._object(schema, place, depth)
            case "array":
                return self._array(schema, place, depth)
            case "string":
                least, most = self._counts(schema, "minLength", "maxLength", place)
                if not least and most is None:
                    return json_rules.STRING
                return Seq((Text('"'), Many(json_rules.CHAR, least, most), Text('"')))
            case "integer":
                return self._bounded(_integer(schema, place), place)
            case "number":
                for key in _OF_TYPES["integer"]:
                    if key in schema:
                        _refuse(place, f"has {key} of numbers that may be fractions", _CANNOT)
                return json_rules.NUMBER
            case "boolean":
                return json_rules.BOOLEAN
            case _:
                return json_rules.NULL

    def _fixed(self, schema: dict[str, Any], types: list[str], place: str) -> Node:
        values = schema.get("enum", [schema.get("const")])
        if not isinstance(values, list):
            _refuse(place, "has enum that is no list")
        if "const" in schema:
            fixed = schema["const"]
            written = _json(fixed, place)  # once, however many it is compared with
            values = [v for v in values if _same(v, fixed, written, place)]
        options: list[Node] = []
        for value in values:
            if not types or _type_of(value) & set(types):
                options.append(self._text(_json(value, place), place))
        if not options:
            _refuse(place, "is satisfied by no answer: none of its fixed values fits")
        return _any(options)

    def _bounded(self, node: Node, place: str) -> Node:
        """An integer, as soon as it is known how much it adds."""
        self._left_written -= len(Grammar(node, {}).ebnf())
        if self._left_written < 0:
            _refuse(place, "is too large: give fewer bounds of integers, or rounder ones")
        return node

    # --- objects and arrays -----------------------------------------------------------------------

    def _object(self, schema: dict[str, Any], place: str, depth: int) -> Node:
        named, listed = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(named, dict):
            _refuse(place, "has properties that are no object")
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            _refuse(place, "has required that is no list of names")
        required = dict.fromkeys(listed)  # a list of thousands is not looked through for each name
        others = schema.get("additionalProperties", True)
        missing = [name for name in required if name not in named]
        if missing and others is False:
            _refuse(place, "is satisfied by no answer: it requires a property that it forbids")
        properties = {**named, **dict.fromkeys(missing, others)}
        if not properties:
            if others is False:
                return Text("{}")
            value = self._part(others, f"{place}/additionalProperties", depth)
            return self._rule(json_rules.pairs(value), place)
        # From the last to the first: what may follow where something has been said, and, up to the
        # first that is required, where nothing has.
        begins = next((i for i, name in enumerate(properties) if name in required), len(properties))
        later: Node = Text("}")
        first: Node = Text("}")
        for i, (name, one) in reversed(list(enumerate(properties.items()))):
            key = self._text(f"{_json(name, place)}: ", place).text
            value = self._part(one, f"{place}/properties/{name}", depth)
            here, also = Seq((Text(key), value, later)), Seq((Text(f", {key}"), value, later))
            if i <= begins:
                first = self._rule(here if i == begins else Alt((here, first)), place)
            if i:
                later = self._rule(also if name in required else Alt((also, later)), place)
        return self._rule(Seq((Text("{"), first)), place)

    def _array(self, schema: dict[str, Any], place: str, depth: int) -> Node:
        item = self._part(schema.get("items", True), f"{place}/items", depth)
        least, most = self._counts(schema, "minItems", "maxItems", place)
        listed = json_rules.listed(item, least, most)
        return self._rule(Seq((Text("["), listed, Text("]"))), place)

    def _counts(
        self, schema: dict[str, Any], low: str, high: str, place: str
    ) -> tuple[int, int | None]:
        least, most = _count(schema.get(low, 0), low, place), None
        if high in schema:
            most = _count(schema[high], high, place)
            if most < least:
                _refuse(place, f"is satisfied by no answer: {high} is below {low}")
        self._left_repeats -= least if most is None else most
        if self._left_repeats < 0:
            _refuse(
                place, f"counts too far: {low} and {high} may come to {MAX_REPEATS} in one schema"
            )
        return least, most

    # --- rules ------------------------------------------------------------------------------------

    def _part(self, schema: Any, place: str, depth: int) -> Node:
        """Something that is written more than once: it may be long only by its name."""
        node = self._node(schema, place, depth + 1)
        return node if isinstance(node, Ref) else self._rule(node, place)

    def _rule(self, node: Node, place: str) -> Ref:
        name = f"r{len(self._rules)}"
        self._rules[name] = node
        self._places[name] = place
        return Ref(name)

    def _referred(self, pointer: Any, place: str) -> Ref:
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            _refuse(place, "refers to what is not part of it: only #/... is followed", _CANNOT)
        if (known := self._names.get(pointer)) is None:
            target = self._resolved(pointer, place)
            known = self._names[pointer] = self._rule(Text(""), pointer[1:]).name
            self._todo.append((known, target, pointer[1:]))
        return Ref(known)

    def _resolved(self, pointer: str, place: str) -> Any:
        found = self._root
        for part in unquote(pointer[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
                found = found[int(key[:9])]
            else:
                _refuse(place, f"refers to {_shown(pointer)}, which is not there")
        return found

    def _text(self, text: str, place: str) -> Text:
        self._left_bytes -= len(text.encode("utf-8", "replace"))
        if self._left_bytes < 0:
            _refuse(place, f"is too large: {MAX_FIXED_BYTES} bytes of names and values are taken")
        return Text(text)


def _types(schema: dict[str, Any], place: str) -> list[str]:
    """The types that are asked for; where none is, those that its other keywords are about."""
    asked = schema.get("type")
    if asked is None:
        return [name for name, keys in _OF_TYPES.items() if any(key in schema for key in keys)]
    names = asked if isinstance(asked, list) else [asked]
    for name in names:
        if name not in _TYPES:
            _refuse(place, f"has the type {_shown(name)}, which JSON does not have")
    if not names:
        _refuse(place, "has an empty list of types")
    return list(dict.fromkeys(names))


def _integer(schema: dict[str, Any], place: str) -> Node:
    low, high = -MOST, MOST
    for key in _OF_TYPES["integer"]:
        if key not in schema:
            continue
        bound = schema[key]
        if isinstance(bound, bool) or not isinstance(bound, int | float) or _is_endless(bound):
            _refuse(place, f"has {key} that is no number")
        match key:
            case "minimum":
                low = max(low, math.ceil(bound))
            case "exclusiveMinimum":
                low = max(low, math.floor(bound) + 1)
            case "maximum":
                high = min(high, math.floor(bound))
            case _:
                high = min(high, math.ceil(bound) - 1)
    if low > high:
        _refuse(place, f"is satisfied by no integer of at most {len(str(MOST))} digits")
    if (low, high) == (-MOST, MOST):
        return json_rules.INTEGER
    return between(low, high)


def _count(value: Any, key: str, place: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _refuse(place, f"has {key} that is no count")
    return int(value)


def _type_of(value: Any) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"integer", "number"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def _same(one: Any, other: Any, written: str, place: str) -> bool:
    """Equal as JSON has it, where 1 is 1.0 and not true; `other` is written `written`."""
    if "number" in _type_of(one) & _type_of(other):
        return bool(one == other)
    return _json(one, place) == written


def _is_endless(number: Any) -> bool:
    return isinstance(number, float) and not math.isfinite(number)


def _json(value: Any, place: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        _refuse(place, "has a fixed value that is no JSON, or nested too deeply")


def _any(options: list[Node]) -> Node:
    return options[0] if len(options) == 1 else Alt(tuple(options))


def _shown(value: Any) -> str:
    """A name out of the schema, for a message: short, and nothing in it acts in a terminal."""
    text = json.dumps(value) if isinstance(value, str) else type(value).__name__
    return text[:60]


def _refuse(place: str, what: str, code: str = "invalid") -> NoReturn:
    # A place is made of names that somebody chose: nothing in it may act in a terminal.
    at = f" at {json.dumps(place)[1:-1][:120]}" if place else ""
    raise Refusal(code, f"the schema{at} {what}", path=PATH)


def _unsupported(place: str, key: str) -> NoReturn:
    _refuse(place, f"has {key}, which this engine does not offer: leave it out", _CANNOT)
