"""From a request to what is posted."""

import json

import pytest

from onegate.config import OllamaModel
from onegate.engines.base import EngineRefused, EngineRequest, Feature
from onegate.engines.ollama.model import Facts, Known, pool_of
from onegate.engines.ollama.request import call_of, pinned
from onegate.engines.ollama.version import parse_version
from onegate.protocol.content import (
    FunctionCall,
    FunctionSpec,
    ImagePart,
    Message,
    Params,
    ResponseFormat,
    TextPart,
    Tool,
    ToolCall,
)

EVERYTHING = frozenset({"completion", "tools", "vision", "thinking", "insert"})
PICTURE = ImagePart(data=b"\x89PNG", media_type="image/png")


def known_of(capabilities=EVERYTHING, **given):
    facts = Facts(digest="d", capabilities=capabilities, stops=("<|end|>",), trained_tok=8192)
    return Known(OllamaModel(model="m", **given), facts=facts)


def posted(known=None, *, keep_alive_s=None, **given):
    known = known or known_of()
    pool = pool_of(known, parse_version("0.33.0"), penalties=True, boundary="local")
    given.setdefault("max_tokens", 9)
    call = call_of(EngineRequest(id=1, model="m", **given), pool, known, keep_alive_s)
    return call.path, json.loads(call.body)


def refused(known=None, **given):
    with pytest.raises(EngineRefused) as error:
        posted(known, **given)
    return error.value


def test_a_prompt_is_one_turn():
    path, body = posted(prompt="Hi")
    assert path == "/api/chat"
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert body["stream"] is True
    assert body["truncate"] is False
    assert body["options"] == {"num_ctx": 4096, "num_predict": 9}
    assert not {"think", "tools", "format", "logprobs", "keep_alive"} & body.keys()


def test_a_raw_prompt_is_not_rendered():
    path, body = posted(prompt="Hi", raw=True)
    assert (path, body["prompt"], body["raw"]) == ("/api/generate", "Hi", True)


def test_a_suffix_goes_beside_its_prompt():
    path, body = posted(prompt="def f", suffix="return")
    assert (path, body["prompt"], body["suffix"]) == ("/api/generate", "def f", "return")
    assert "raw" not in body


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "", "raw": True},
        {"prompt": "", "suffix": "x"},
        {"messages": []},
        {"prompt": "x", "suffix": "y", "raw": True},
    ],
)
def test_what_would_only_load_the_model_or_means_nothing(given):
    assert not refused(**given).unsupported


def test_parameters_by_their_names_there():
    params = Params(
        temperature=0.5, top_p=0.9, top_k=4, min_p=0.1, seed=7, presence_penalty=0.5,
        frequency_penalty=0.25, repeat_penalty=1.5,
    )  # fmt: skip
    _, body = posted(prompt="x", params=params)
    assert body["options"] == {
        "num_ctx": 4096,
        "num_predict": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "repeat_penalty": 1.5,
    }


def test_stop_strings_do_not_replace_the_models_own():
    _, body = posted(prompt="x", params=Params(stop=["\n", "<|end|>"]))
    assert body["options"]["stop"] == ["\n", "<|end|>"]
    _, body = posted(prompt="x", params=Params(stop=["\n"]))
    assert body["options"]["stop"] == ["\n", "<|end|>"]
    _, body = posted(prompt="x", raw=True, params=Params(stop=["\n"]))
    assert body["options"]["stop"] == ["\n"]


def test_logprobs_and_json():
    wanted = ResponseFormat(type="json_object")
    _, body = posted(
        prompt="x", params=Params(logprobs=True, top_logprobs=3, response_format=wanted)
    )
    assert (body["logprobs"], body["top_logprobs"], body["format"]) == (True, 3, "json")
    _, body = posted(prompt="x", params=Params(response_format=ResponseFormat(type="text")))
    assert "format" not in body


def test_a_conversation_with_tools_and_images():
    call = ToolCall(id="c1", function=FunctionCall(name="f", arguments='{"a": 1}'))
    _, body = posted(
        messages=[
            Message(role="developer", content="Be brief."),
            Message(role="user", content=[TextPart(text="see"), PICTURE]),
            Message(role="assistant", tool_calls=[call], thinking="hm"),
            Message(role="tool", content="{}", tool_call_id="c1"),
        ],
        tools=[Tool(function=FunctionSpec(name="f", description="d"))],
        think="high",
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "see", "images": ["iVBORw=="]},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "{}", "tool_name": "f"},
    ]
    assert body["think"] == "high"
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]


def test_tools_that_must_not_be_called_are_left_out():
    tools = [Tool(function=FunctionSpec(name="f"))]
    assert "tools" not in posted(prompt="x", tools=tools, tool_choice="none")[1]


def test_arguments_go_out_as_deep_as_they_can_be_read():
    known = known_of()
    pool = pool_of(known, parse_version("0.33.0"), penalties=True, boundary="local")
    outcomes = []
    for depth in range(500, 1050):
        arguments = '{"a":' * depth + "1" + "}" * depth
        call = ToolCall(id="c", function=FunctionCall(name="f", arguments=arguments))
        turns = [Message(role="assistant", tool_calls=[call])]
        asked = EngineRequest(id=1, model="m", max_tokens=9, messages=turns)
        try:
            outcomes.append(arguments.encode() in call_of(asked, pool, known, None).body)
        except EngineRefused:
            outcomes.append(False)
    assert outcomes[0]
    assert not outcomes[-1]


@pytest.mark.parametrize("arguments", ["[1]", "no", '"text"', "[" * 100_000])
def test_arguments_that_are_no_object(arguments):
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments=arguments))
    error = refused(messages=[Message(role="assistant", tool_calls=[call])])
    assert error.path == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("suffix", {"prompt": "x", "suffix": "y"}),
        ("tools", {"prompt": "x", "tools": [Tool(function=FunctionSpec(name="f"))]}),
        ("think", {"prompt": "x", "think": True}),
        ("prompt_token_ids", {"prompt_tok_ids": [1]}),
        ("resume_tok_ids", {"prompt": "x", "resume_tok_ids": [1]}),
        ("tool_choice", {"prompt": "x", "tool_choice": "required"}),
        ("params.ignore_eos", {"prompt": "x", "params": Params(ignore_eos=True)}),
        ("messages[0].role", {"messages": [Message(role="tool", content="{}")]}),
        ("messages[0].name", {"messages": [Message(role="user", content="x", name="n")]}),
        ("messages[0].content", {"messages": [Message(role="user", content=[PICTURE])]}),
        (
            "messages[0].thinking",
            {"messages": [Message(role="assistant", content="x", thinking="y")]},
        ),
        (
            "messages[0].tool_calls",
            {
                "messages": [
                    Message(
                        role="assistant",
                        tool_calls=[
                            ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))
                        ],
                    )
                ]
            },
        ),
    ],
)
def test_what_a_plain_model_cannot_do(path, given):
    error = refused(known_of(frozenset({"completion"})), **given)
    assert error.unsupported
    assert error.path == path


def test_a_message_needs_content():
    assert refused(messages=[Message(role="user")]).path == "messages[0].content"


def test_a_model_that_only_embeds_answers_nothing():
    assert refused(known_of(frozenset({"embedding"})), prompt="x").path == "model"


def test_a_plain_model_is_not_told_to_think_or_not():
    assert "think" not in posted(known_of(frozenset({"completion"})), prompt="x", think=False)[1]


def test_what_is_pinned():
    known = known_of(context_tok=16384, num_batch=64)
    body = pinned(known, 90.0)
    assert body["options"] == {"num_ctx": 8192, "num_batch": 64}  # it was trained for no more
    assert body["keep_alive"] == "90000ms"
    assert (body["truncate"], body["shift"]) == (False, False)
    body["options"]["num_predict"] = 1
    assert "num_predict" not in pinned(known, None)["options"]
    assert "keep_alive" not in pinned(known, None)


def test_features_follow_capabilities():
    pool = pool_of(known_of(), parse_version("0.9.3"), penalties=False, boundary="local")
    assert {Feature.TOOLS, Feature.IMAGES, Feature.THINKING, Feature.SUFFIX} <= pool.features
    assert Feature.LOGPROBS not in pool.features
    assert not {"logprobs", "repeat_penalty"} & pool.params
