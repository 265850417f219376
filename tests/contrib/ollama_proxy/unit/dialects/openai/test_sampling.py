"""Parameters of the OpenAI routes in the wire's words."""

import json

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects.openai.request import parse_chat, parse_completion

HI = [{"role": "user", "content": "Hi"}]


def chat(**given):
    return parse_chat(json.dumps({"model": "m", "messages": HI} | given).encode()).ask


def completion(**given):
    return parse_completion(json.dumps({"model": "m", "prompt": "Hi"} | given).encode()).ask


def refused(parse, **given) -> BadAsk:
    with pytest.raises(BadAsk) as error:
        parse(**given)
    return error.value


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 5}, 5),
        ({"max_tokens": 9, "max_completion_tokens": 5}, 5),
        ({"max_tokens": -1, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 2**40}, 2**32 - 1),
    ],
)
def test_the_longest_answer(given, wanted):
    assert chat(**given).params.max_tokens == wanted


def test_no_bound_is_no_bound():
    assert chat(max_tokens=-1).params == chat().params
    assert refused(chat, max_tokens=0).path == "max_tokens"


@pytest.mark.parametrize(
    ("name", "value", "wire", "wanted"),
    [
        ("temperature", 0, "temperature", 0),
        ("temperature", None, "temperature", 1),
        ("top_p", 0.5, "top_p", 0.5),
        ("top_k", 7, "top_k", 7),
        ("min_p", 0.1, "min_p", 0.1),
        ("seed", 7, "seed", 7),
        ("presence_penalty", 1, "presence_penalty", 1),
        ("frequency_penalty", -1, "frequency_penalty", -1),
        ("repetition_penalty", 1.5, "repeat_penalty", 1.5),
        ("stop", "a", "stop", ["a"]),
        ("stop", ["a", "", "b"], "stop", ["a", "b"]),
    ],
)
@pytest.mark.parametrize("parse", [chat, completion])
def test_sampling(parse, name, value, wire, wanted):
    assert getattr(parse(**{name: value}).params, wire) == wanted


def test_nothing_can_be_drawn_of_nothing():
    assert 0 < chat(top_p=0).params.top_p < 1e-3


def test_negative_seeds_are_seeds_and_stay_apart():
    seeds = {chat(seed=seed).params.seed for seed in (-1, -2, 1, 2)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_logprobs():
    params = chat(logprobs=True, top_logprobs=3).params
    assert (params.logprobs, params.top_logprobs) == (True, 3)
    params = completion(logprobs=2).params
    assert (params.logprobs, params.top_logprobs) == (True, 2)
    assert chat(logprobs=False).params == chat().params


@pytest.mark.parametrize(
    ("effort", "think"),
    [("none", False), ("minimal", "low"), ("low", "low"), ("high", "high"), ("xhigh", "max")],
)
def test_how_hard_to_think(effort, think):
    assert chat(reasoning_effort=effort).think == think
    assert chat(reasoning={"effort": effort}).think == think
    assert chat().think is None


def test_formats():
    assert chat(response_format={"type": "text"}).params == chat().params
    found = chat(response_format={"type": "json_object"}).params.response_format
    assert found.type == "json_object"
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    found = chat(response_format=wanted).params.response_format.json_schema
    assert (found.schema, found.name, found.strict) == (schema, "x", True)


@pytest.mark.parametrize("given", [{}, {"json_schema": {}}])
def test_a_schema_is_needed(given):
    error = refused(chat, response_format={"type": "json_schema"} | given)
    assert error.path == "response_format.json_schema.schema"


def test_another_format_is_not_known():
    error = refused(chat, response_format={"type": "grammar"})
    assert (error.reason, error.path) == (Reason.UNSUPPORTED, "response_format.type")
