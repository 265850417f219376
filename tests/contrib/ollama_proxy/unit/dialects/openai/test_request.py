"""From the body of an OpenAI route to what is asked of the gate."""

import json

import pytest

from onegate.protocol.content import ForcedTool, Message, NamedFunction
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk, Fate
from onegate_ollama_proxy.dialects.openai import ROUTES
from onegate_ollama_proxy.dialects.openai.parameters import HARMLESS, PARAMETERS
from onegate_ollama_proxy.dialects.openai.request import (
    parse_chat,
    parse_completion,
    parse_embeddings,
)

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def chat(**given):
    return parse_chat(json.dumps({"model": "m", "messages": HI} | given).encode()).ask


def completion(**given):
    return parse_completion(json.dumps({"model": "m", "prompt": "Hi"} | given).encode()).ask


def embeddings(**given):
    return parse_embeddings(json.dumps({"model": "m", "input": "Hi"} | given).encode()).ask


def refused(parse, **given) -> BadAsk:
    with pytest.raises(BadAsk) as error:
        parse(**given)
    return error.value


def test_a_chat():
    ask = chat()
    assert (ask.model, ask.stream, ask.prompt) == ("m", False, None)
    assert ask.messages == (Message(role="user", content="Hi"),)
    assert (ask.params.temperature, ask.params.top_p) == (1.0, 1.0)
    assert ask.notices == ()
    assert not ask.truncate


def test_a_prompt():
    ask = completion(suffix="there", stream=True)
    assert (ask.prompt, ask.suffix, ask.messages) == ("Hi", "there", None)
    assert ask.stream
    assert not ask.raw, "the model's template goes around it, as with Ollama"
    assert completion(prompt=["Hi"]).prompt == "Hi"


def test_texts_for_vectors():
    assert embeddings().inputs == ("Hi",)
    ask = embeddings(input=["a", "b"], dimensions=8, encoding_format="base64", user="u")
    assert (ask.inputs, ask.dimensions) == (("a", "b"), 8)
    assert ask.notices == ("user is accepted and left out",)


@pytest.mark.parametrize("said", [None, "", [], ["a", ""]])
def test_a_text_is_needed(said):
    assert refused(completion, prompt=said).path == "prompt"
    assert refused(embeddings, input=said).path == "input"


@pytest.mark.parametrize("said", [[1, 2], [[1, 2], [3]]])
def test_token_ids_are_not_text(said):
    assert refused(completion, prompt=said).reason is Reason.UNSUPPORTED
    assert refused(embeddings, input=said).reason is Reason.UNSUPPORTED


def test_several_prompts_would_be_several_answers():
    assert refused(completion, prompt=["a", "b"]).reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("parse", [chat, completion, embeddings])
@pytest.mark.parametrize("model", [None, 7])
def test_a_model_is_needed(parse, model):
    assert refused(parse, model=model).path == "model"


def test_messages_are_needed():
    assert refused(chat, messages=[]).sentence == "[] is too short - 'messages'"
    assert refused(chat, messages=None).path == "messages"


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 3),
        ("top_p", 1.5),
        ("presence_penalty", 5),
        ("repetition_penalty", 0),
        ("stop", ["x"] * 17),
        ("stop", 5),
        ("temperature", "hot"),
        ("seed", 1.5),
        ("stream", "yes"),
        ("stream_options", 1),
        ("logprobs", 3),
        ("top_logprobs", 3),
        ("tools", {}),
        ("tool_choice", 5),
        ("tool_choice", "maybe"),
        ("reasoning_effort", "enormous"),
        ("n", "two"),
    ],
)
def test_what_is_wrong_is_named_in_the_clients_words(name, value):
    error = refused(chat, **{name: value})
    assert error.reason is Reason.INVALID
    assert (error.path or "").startswith(name)


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


def test_tools():
    ask = chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}})
    assert ask.tools[0].function.name == "f"
    assert ask.tool_choice == ForcedTool(function=NamedFunction(name="f"))
    assert chat(tools=[TOOL], tool_choice="required").tool_choice == "required"


def test_where_there_are_no_tools_there_is_nothing_to_choose():
    assert chat(tool_choice="auto").tool_choice is None
    assert chat(tools=[], tool_choice="none").tool_choice is None
    assert chat(tools=[TOOL], tool_choice="none").tool_choice == "none"


# A value of each parameter that shows its fate, on the route that has it.
EXAMPLES = {
    "model": (chat, "m"),
    "messages": (chat, HI),
    "prompt": (completion, "Hi"),
    "input": (embeddings, "Hi"),
    "stream": (chat, True),
    "stream_options": (chat, {"include_usage": True}),
    "max_tokens": (chat, 5),
    "max_completion_tokens": (chat, 5),
    "temperature": (chat, 0.5),
    "top_p": (chat, 0.5),
    "top_k": (chat, 5),
    "min_p": (chat, 0.5),
    "seed": (chat, 5),
    "stop": (chat, "x"),
    "presence_penalty": (chat, 0.5),
    "frequency_penalty": (chat, 0.5),
    "repetition_penalty": (chat, 1.5),
    "response_format": (chat, {"type": "json_object"}),
    "tools": (chat, [TOOL]),
    "tool_choice": (lambda **given: chat(tools=[TOOL], **given), "required"),
    "reasoning_effort": (chat, "low"),
    "reasoning": (chat, {"effort": "low"}),
    "logprobs": (completion, 2),
    "top_logprobs": (lambda **given: chat(logprobs=True, **given), 2),
    "suffix": (completion, "x"),
    "dimensions": (embeddings, 5),
    "encoding_format": (embeddings, "base64"),
    "n": (chat, 2),
    "best_of": (completion, 2),
    "echo": (completion, True),
    "logit_bias": (chat, {"5": 1}),
    "functions": (chat, [{"name": "f"}]),
    "function_call": (chat, "auto"),
    "modalities": (chat, ["text", "audio"]),
    "audio": (chat, {"voice": "x"}),
    "web_search_options": (chat, {}),
}
# These choose the form of the answer, which is the writer's; or there is no request without them.
NOT_IN_THE_ASK = {
    "stream_options",
    "encoding_format",
    "model",
    "messages",
    "prompt",
    "input",
}


@pytest.mark.parametrize("row", PARAMETERS, ids=lambda row: row.name)
def test_the_table_says_what_happens(row):
    parse, value = EXAMPLES.get(row.name, (chat, "x"))
    if row.fate is Fate.REFUSED:
        assert refused(parse, **{row.name: value}).reason is Reason.UNSUPPORTED
    elif row.fate is Fate.HARMLESS:
        assert parse(**{row.name: value}).notices == (f"{row.name} is accepted and left out",)
    else:
        ask = parse(**{row.name: value})
        assert ask.notices == ()
        assert (ask == parse()) == (row.name in NOT_IN_THE_ASK)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 1), ("best_of", 1), ("echo", False), ("logit_bias", {}), ("modalities", ["text"])],
)
def test_what_says_nothing_is_no_error(name, value):
    assert completion(**{name: value}).notices == ()


def test_names_that_nobody_knows_are_left_out_and_not_repeated_if_they_are_strange():
    assert chat(frobnicate=1).notices == ("frobnicate is not known here and was left out",)
    (notice,) = chat(**{"my secret\n": 1}).notices
    assert "secret" not in notice


def test_null_is_absence():
    given = dict.fromkeys((*HARMLESS, "n", "tools", "stop", "stream", "audio", "whatever"))
    assert chat(**given) == chat()


@pytest.mark.parametrize("parse", [parse_chat, parse_completion, parse_embeddings])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"null", b"\xff", b'{"model":' + b"[" * 100_000, b'{"a":"\\ud800"}']
)
def test_what_is_no_object(parse, body):
    with pytest.raises(BadAsk, match="body"):
        parse(body)


def test_the_routes():
    assert {(route.path, route.dialect) for route in ROUTES} == {
        ("/v1/chat/completions", "openai"),
        ("/v1/completions", "openai"),
        ("/v1/embeddings", "openai"),
    }
