"""Answers of a given form from the embedded engine, for real."""

import asyncio
import json
import random

import pytest
from tests.unit.engines.host.grammar.conftest import begins

from onegate.config import EngineConfig
from onegate.engines.base import EngineChunk, EngineLost, EngineRefused, Feature
from onegate.engines.host.grammar.json_rules import any_object
from onegate.engines.host.grammar.schema import MAX_REPEATS, MAX_SUBSCHEMAS
from onegate.protocol.content import FinishReason, JsonSchema, Params, ResponseFormat

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "Tell me about a person, as JSON."
OBJECT = ResponseFormat(type="json_object")
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 24},
        "age": {"type": "integer", "minimum": 18, "maximum": 120},
        "mood": {"enum": ["gl\u00fccklich", "\u60b2\u3057\u3044", "\U0001f98a"]},
        "height": {"type": "number"},
        "knows": {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 3},
        "of": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "required": ["name", "age", "mood", "of"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def adapter() -> EngineConfig:
    return EngineConfig(kind="openvino", kv_tok=8192, max_seqs=4, context_tok=1024)


def form(schema, **params) -> Params:
    wanted = ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=schema))
    return Params(response_format=wanted, **params)


def is_person(text: str) -> bool:
    found = json.loads(text)
    assert list(found) == [name for name in PERSON["properties"] if name in found]
    assert set(PERSON["required"]) <= set(found)
    assert 1 <= len(found["name"]) <= 24
    assert type(found["age"]) is int
    assert 18 <= found["age"] <= 120
    assert found["mood"] in PERSON["properties"]["mood"]["enum"]
    assert found["of"] in (None, True, False)
    assert type(found.get("height", 1)) in (int, float)
    assert all(len(name) <= 9 for name in found.get("knows", []))
    return len(found.get("knows", [])) <= 3


async def test_what_it_says_it_can(box):
    assert {Feature.SCHEMA, Feature.RESUME_GUIDED} <= box.pool.features
    assert "response_format" in box.pool.params


async def test_an_answer_keeps_its_form_and_ends_with_it(box):
    outcome = await box.run(PROMPT, max_tokens=300, params=form(PERSON, temperature=0.0))
    assert outcome.finished.finish_reason is FinishReason.STOP
    assert is_person(outcome.text)


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 1.8},
        {"temperature": 2.0, "top_k": 50, "min_p": 0.01},
        {"temperature": 1.0, "top_p": 0.9, "logprobs": True},
        {"temperature": 0.0, "repeat_penalty": 1.8},
        {"temperature": 1.2, "presence_penalty": 2.0, "frequency_penalty": -2.0},
        {"temperature": 0.0, "logprobs": True},
    ],
    ids=str,
)
async def test_however_tokens_are_chosen_the_form_is_kept(box, given):
    outcomes = await asyncio.gather(
        *(
            box.run(PROMPT, max_tokens=200, params=form(PERSON, seed=seed, **given))
            for seed in range(3)
        )
    )
    whole = [o for o in outcomes if o.finished.finish_reason is FinishReason.STOP]
    assert whole
    assert all(is_person(outcome.text) for outcome in whole)


async def test_any_object(box):
    given = [Params(response_format=OBJECT, temperature=0.9, seed=seed) for seed in range(4)]
    for outcome in await asyncio.gather(
        *(box.run(PROMPT, max_tokens=40, params=params) for params in given)
    ):
        assert begins(any_object(), outcome.text)
        if outcome.finished.finish_reason is FinishReason.STOP:
            assert isinstance(json.loads(outcome.text), dict)


async def test_any_text_is_no_form(box):
    free = await box.run(PROMPT, max_tokens=12, params=Params(temperature=0.0))
    text = Params(temperature=0.0, response_format=ResponseFormat(type="text"))
    assert (await box.run(PROMPT, max_tokens=12, params=text)).ids == free.ids


async def test_stopped_again_and_again_it_says_the_same_and_keeps_the_form(box):
    """At any token, inside of characters, names, numbers and strings."""
    chance = random.Random(11)
    params = form(PERSON, temperature=0.0)
    whole = await box.run(PROMPT, max_tokens=200, params=params)
    assert whole.finished.finish_reason is FinishReason.STOP
    for _ in range(2):
        ids, text, runs = [], "", 0
        ended = False
        while not ended:
            request = box.request(
                PROMPT,
                max_tokens=200 - len(ids),
                resume_tok_ids=ids or None,
                resume_shown_chars=len(text),
                params=params,
            )
            runs += 1
            stop_at = len(ids) + chance.randrange(1, 12)
            ended = True
            async for item in box.generate(request):
                if isinstance(item, EngineChunk):
                    ids = ids + (item.token_ids or [])
                    text += item.text
                    if len(ids) >= stop_at:
                        box.engine.stop(request.id)
                        ended = False
            if ids == whole.ids:
                break
        assert runs > 3
        assert ids == whole.ids
        assert text == whole.text


async def test_cut_inside_a_character_it_goes_on(box):
    """A fixed answer of characters that take several tokens each, cut at every token."""
    params = form({"const": {"\U0001f98a": "\u60b2\u3057\u3044 \U0001f98a"}}, temperature=0.0)
    whole = await box.run(PROMPT, max_tokens=60, params=params)
    assert whole.text == '{"\U0001f98a": "\u60b2\u3057\u3044 \U0001f98a"}'
    for cut in range(1, len(whole.ids)):
        shown = "".join(chunk.text for chunk in whole.of(EngineChunk)[:cut])
        rest = await box.run(
            PROMPT,
            max_tokens=60 - cut,
            resume_tok_ids=whole.ids[:cut],
            resume_shown_chars=len(shown),
            params=params,
        )
        assert shown + rest.text == whole.text
        assert rest.ids == whole.ids[cut:]
        assert rest.finished.usage.output_tok == len(whole.ids) - cut


ODD = [
    "gl\u00fccklich",
    "\u00fcabc \u00e41 \u00dfA",
    "\x7fab\x80\x9f0",
    "\u200babc\u2028def\ufeff1",
    'say "hi"\\ \n\t\x01a',
    "[a-f]{2,3}* ::= | ( ) # // \\u0041",
    "\U0001f98a1\U0010ffffa\ud7ff0\ue000",
    "root",
]


@pytest.mark.parametrize("text", ODD)
async def test_a_fixed_answer_is_said_to_the_letter(box, text):
    value = {text: [text, text[::-1]]}
    outcome = await box.run(PROMPT, max_tokens=300, params=form({"const": value}))
    assert outcome.text == json.dumps(value, ensure_ascii=False)
    assert outcome.finished.finish_reason is FinishReason.STOP


async def test_what_did_not_begin_the_form_is_refused(box):
    free = await box.run(PROMPT, max_tokens=5, params=Params(temperature=0.0))
    outcome = await box.run(
        PROMPT, max_tokens=5, resume_tok_ids=free.ids, params=Params(response_format=OBJECT)
    )
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.error.path == "resume_tok_ids"


@pytest.mark.parametrize("given", [{"ignore_eos": True}, {"min_tokens": 300}], ids=str)
async def test_nothing_can_be_asked_for_behind_the_end(box, given):
    outcome = await box.run(PROMPT, max_tokens=400, params=form({"const": 1}, **given))
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.error.path == f"params.{next(iter(given))}"
    await still_serves(box)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(a+)+$"},
        {"type": "string", "maxLength": 10**9},
        {"type": "array", "items": {"type": "array", "maxItems": 1000}, "maxItems": 1000},
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"required": ["a"], "properties": {"a": {"$ref": "#"}}},
        {"enum": []},
        {"oneOf": [{"type": "null"}]},
        {"properties": {f"p{i}": {"properties": {"a": True}} for i in range(MAX_SUBSCHEMAS)}},
        {"const": "x" * 1_000_000},
        {"enum": ["a"] * 16_000, "const": "x" * 200_000},
        {"anyOf": [{"type": "integer", "minimum": i, "maximum": 10**14 + i} for i in range(500)]},
    ],
    ids=lambda schema: str(schema)[:30],
)
async def test_a_bad_schema_costs_one_request(box, schema):
    outcome = await box.run(PROMPT, params=form(schema))
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.error.path == "params.response_format.json_schema.schema"
    await still_serves(box)


LARGEST = {
    "properties": {
        "names": {"properties": {f"p{i}": {"type": "integer"} for i in range(MAX_SUBSCHEMAS - 8)}},
        "counted": {"type": "string", "minLength": MAX_REPEATS, "maxLength": MAX_REPEATS},
    }
}
HARD = {
    "largest": LARGEST,
    "choices": {"enum": [f"{'x' * 32}{i}" for i in range(220)]},
    "counted items": {"items": {"type": "object"}, "minItems": MAX_REPEATS},
    "nested counts": {"items": {"items": {"maxLength": 300}, "maxItems": 300}, "maxItems": 300},
    "recursion": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"anyOf": [{"type": "null"}, {"items": {"$ref": "#/$defs/b"}}]},
            "b": {"properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/$defs/b"}}},
        },
    },
    "many alike": {"anyOf": [{"properties": {"same": {"const": i}}} for i in range(200)]},
    "odd bounds": {
        "anyOf": [
            {"type": "integer", "minimum": i - 123456789012345, "maximum": 987654321098765 - i}
            for i in range(20)
        ]
    },
    "long characters": {"enum": ["\U0001f600" * i for i in range(1, 63)]},
    "odd names": {"properties": {chr(c) * 3: True for c in range(1, 200)}},
}


@pytest.mark.parametrize("name", HARD)
async def test_the_hardest_that_is_taken_is_followed_and_harms_nobody(box, name):
    beside, outcome = await asyncio.gather(
        box.run("Hello.", max_tokens=20, params=Params(ignore_eos=True)),
        box.run(PROMPT, max_tokens=30, params=form(HARD[name], temperature=1.5, seed=1)),
    )
    assert outcome.finished
    assert beside.finished.usage.output_tok == 20
    await still_serves(box)


async def still_serves(box) -> None:
    assert (await box.run("Hello.", max_tokens=2)).finished
    assert box.of(EngineLost) == []
