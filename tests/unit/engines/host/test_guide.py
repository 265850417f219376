"""From the form of an answer to its grammar."""

import pytest
from tests.unit.engines.host.grammar.conftest import allows

from onegate.engines.host.engine import Refusal
from onegate.engines.host.guide import guide_of
from onegate.protocol.content import JsonSchema, Params, ResponseFormat

NUMBER = ResponseFormat(type="json_schema", json_schema=JsonSchema(schema={"type": "integer"}))
OBJECT = ResponseFormat(type="json_object")


def test_any_text_needs_no_grammar():
    assert guide_of(Params()) is None
    assert guide_of(Params(response_format=ResponseFormat(type="text"), ignore_eos=True)) is None


def test_an_object_or_what_a_schema_says():
    guide = guide_of(Params(response_format=OBJECT))
    assert allows(guide, '{"a": 1}')
    assert not allows(guide, "1")
    guide = guide_of(Params(response_format=NUMBER, ignore_eos=False, min_tokens=0))
    assert allows(guide, "1")
    assert not allows(guide, '{"a": 1}')


@pytest.mark.parametrize("wanted", [OBJECT, NUMBER], ids=lambda wanted: wanted.type)
@pytest.mark.parametrize("name", ["ignore_eos", "min_tokens"])
def test_nothing_goes_on_behind_its_end(wanted, name):
    with pytest.raises(Refusal) as refused:
        guide_of(Params(response_format=wanted, **{name: 1 if name == "min_tokens" else True}))
    assert refused.value.path == f"params.{name}"
    assert refused.value.code == "invalid"


def test_a_schema_that_is_missing_or_bad_is_refused():
    with pytest.raises(Refusal, match="missing"):
        guide_of(Params(response_format=ResponseFormat(type="json_schema")))
    bad = ResponseFormat(type="json_schema", json_schema=JsonSchema(schema={"pattern": "x"}))
    with pytest.raises(Refusal, match="pattern"):
        guide_of(Params(response_format=bad))
