"""From the body of an OpenAI route to what is asked of the gate."""

import json

import pytest

from onegate.protocol.content import ForcedTool, Message, NamedFunction
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects.openai import ROUTES
from onegate_ollama_proxy.dialects.openai.parameters import HARMLESS
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


def test_tools():
    ask = chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}})
    assert ask.tools[0].function.name == "f"
    assert ask.tool_choice == ForcedTool(function=NamedFunction(name="f"))
    assert chat(tools=[TOOL], tool_choice="required").tool_choice == "required"


def test_where_there_are_no_tools_there_is_nothing_to_choose():
    assert chat(tool_choice="auto").tool_choice is None
    assert chat(tools=[], tool_choice="none").tool_choice is None
    assert chat(tools=[TOOL], tool_choice="none").tool_choice == "none"


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
