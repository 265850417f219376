"""What types cannot say: each rule with what passes it and what does not."""

from typing import Any

import msgspec
import pytest

from onegate.protocol import messages as m
from onegate.protocol.validate import validate

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "tool_calls": [CALL]}
ANSWER = {"role": "tool", "content": "ok", "tool_call_id": "c1"}
IMAGE = {"type": "image", "data": "aGk=", "media_type": "image/png"}
TOOL = {"function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"schema": {}}}


def problem(tag: str, **fields: Any) -> tuple[str, str] | None:
    """What is wrong with a message that its types let through."""
    message = {"t": tag, **({"id": 1} if tag != "hello" else {}), **fields}
    return validate(msgspec.convert(message, m.ClientMessage))


def path_of(tag: str, **fields: Any) -> str | None:
    found = problem(tag, **fields)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("tag", "fields"),
    [
        ("hello", {"features": []}),
        ("hello", {"features": ["v1"], "app": "Éditeur 1.0", "model": "a b", "class": "x"}),
        (
            "hello",
            {"features": [], "on_behalf": {"source": "unknown", "uid": 0, "unit": "a.scope"}},
        ),
        ("generate", {"prompt": "Hi\n\t\x1b[31m there"}),
        ("generate", {"prompt": "a", "suffix": "b", "raw": True}),
        ("generate", {"prompt_token_ids": [0]}),
        ("generate", {"messages": [USER], "tools": [TOOL], "tool_choice": "required"}),
        ("generate", {"messages": [USER], "tool_choice": "none"}),
        ("generate", {"messages": [USER, CALLS, ANSWER]}),
        ("generate", {"messages": [USER, CALLS, {"role": "tool", "content": "", "name": "f"}]}),
        ("generate", {"messages": [{"role": "system", "content": ""}]}),
        ("generate", {"messages": [USER, {"role": "assistant", "content": "Well,"}]}),
        ("generate", {"messages": [USER, {"role": "assistant", "thinking": "Hm"}]}),
        ("generate", {"messages": [{"role": "user", "content": [IMAGE]}]}),
        ("generate", {"prompt": "a", "params": {"min_tokens": 2, "max_tokens": 2}}),
        ("generate", {"prompt": "a", "params": {"min_tokens": 2}}),
        ("generate", {"prompt": "a", "params": {"response_format": SCHEMA}}),
        ("generate", {"prompt": "a", "params": {"response_format": {"type": "json_object"}}}),
        ("generate", {"prompt": "a", "params": {"logprobs": True, "top_logprobs": 0}}),
        ("count", {"prompt": "a"}),
        ("count", {"messages": [USER], "tools": [TOOL, {"function": {"name": "g"}}]}),
        ("embed", {"input": ["a", "b"]}),
        ("release_engine", {}),
        ("release_engine", {"until_ms": 5, "now": True}),
        ("release_engine", {"end": True}),
        ("whoami", {}),
    ],
)
def test_what_is_in_order(tag: str, fields: dict[str, Any]) -> None:
    assert problem(tag, **fields) is None


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": [USER]}, "messages"),
        ({"messages": [USER], "prompt_token_ids": [1]}, "prompt_token_ids"),
        ({"prompt": ""}, "prompt"),
        ({"messages": []}, "messages"),
        ({"prompt_token_ids": []}, "prompt_token_ids"),
        ({"prompt": "a\0b"}, "prompt"),
        ({"prompt": "a", "suffix": "\0"}, "suffix"),
        ({"messages": [USER], "suffix": "b"}, "suffix"),
        ({"messages": [USER], "raw": True}, "raw"),
        ({"prompt": "a", "model": "x\ny"}, "model"),
        ({"prompt": "a", "class": "\x1b[31m"}, "class"),
        ({"prompt": "a", "ticket": "\u202e"}, "ticket"),
    ],
)
def test_the_prompt_has_one_source_and_clean_names(fields: dict[str, Any], path: str) -> None:
    assert path_of("generate", **fields) == path


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"role": "user"}, "content"),
        ({"role": "tool", "tool_call_id": "c"}, "content"),
        ({"role": "assistant"}, "content"),
        ({"role": "user", "content": []}, "content"),
        ({"role": "user", "content": "\0"}, "content"),
        ({"role": "user", "content": [{"type": "text", "text": "\0"}]}, "content[0].text"),
        ({"role": "system", "content": [IMAGE]}, "content[0]"),
        ({"role": "assistant", "content": [IMAGE]}, "content[0]"),
        ({"role": "user", "content": [{**IMAGE, "data": ""}]}, "content[0].data"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "tool_calls"),
        ({"role": "user", "content": "a", "thinking": "b"}, "thinking"),
        ({"role": "user", "content": "a", "tool_call_id": "c"}, "tool_call_id"),
        ({"role": "tool", "content": "a"}, "tool_call_id"),
        ({"role": "tool", "content": "a", "tool_call_id": ""}, "tool_call_id"),
        ({"role": "assistant", "content": "a", "thinking": "\0"}, "thinking"),
        ({"role": "user", "content": "a", "name": "\n"}, "name"),
    ],
)
def test_each_message_is_looked_at(message: dict[str, Any], path: str) -> None:
    for tag in ("generate", "count"):
        assert path_of(tag, messages=[USER, message, USER]) == f"messages[1].{path}"


@pytest.mark.parametrize(
    ("function", "path"),
    [({"name": "\n", "arguments": ""}, "name"), ({"name": "f", "arguments": "\0"}, "arguments")],
)
def test_tool_calls_of_the_past_are_looked_at(function: dict[str, str], path: str) -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "", "function": function}]}
    found = path_of("generate", messages=[message, ANSWER])
    assert found == f"messages[0].tool_calls[0].function.{path}"


def test_open_tool_calls_must_be_answered() -> None:
    assert path_of("generate", messages=[USER, CALLS]) == "messages[1].tool_calls"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"prompt": "a", "tools": [TOOL]}, "tools"),
        ({"messages": [USER], "tool_choice": "required"}, "tool_choice"),
        ({"messages": [USER], "tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"messages": [USER], "tools": [TOOL, TOOL]}, "tools[1].function.name"),
        (
            {"messages": [USER], "tools": [TOOL], "tool_choice": {"function": {"name": "g"}}},
            "tool_choice.function.name",
        ),
        (
            {"messages": [USER], "tools": [{"function": {"name": "\n"}}]},
            "tools[0].function.name",
        ),
        (
            {"messages": [USER], "tools": [{"function": {"name": "f", "description": "\0"}}]},
            "tools[0].function.description",
        ),
        (
            {"messages": [USER], "tools": [{"function": {"name": "f", "parameters": {"a": b""}}}]},
            "tools[0].function.parameters",
        ),
    ],
)
def test_tools_are_looked_at(fields: dict[str, Any], path: str) -> None:
    assert path_of("generate", **fields) == path


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens"),
        ({"stop": ["ok", "\0"]}, "stop[1]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {**SCHEMA, "type": "text"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": {1: 2}}}}},
            "response_format.json_schema.schema",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {}, "name": "\n"},
                }
            },
            "response_format.json_schema.name",
        ),
    ],
)
def test_params_are_looked_at(params: dict[str, Any], path: str) -> None:
    assert path_of("generate", prompt="a", params=params) == f"params.{path}"


@pytest.mark.parametrize(
    "field",
    ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repeat_penalty"],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_are_finite(field: str, value: float) -> None:
    # Built directly: not every version of the codec sees that NaN is in no range.
    message = m.Generate(
        id=1, prompt="a", params=m.Generate(id=1).params.__class__(**{field: value})
    )
    assert validate(message) == (
        f"params.{field}",
        "is no finite number: give one, or leave it out",
    )


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "\0"}, "prompt"),
        ({"prompt": "a", "messages": [USER]}, "messages"),
        ({"prompt": "a", "tools": [TOOL]}, "tools"),
        ({"messages": [USER], "tools": [TOOL, TOOL]}, "tools[1].function.name"),
    ],
)
def test_counting_has_the_same_rules(fields: dict[str, Any], path: str) -> None:
    assert path_of("count", **fields) == path


@pytest.mark.parametrize(("text", "wrong"), [("", True), ("\0", True), ("a", False)])
def test_texts_to_embed_are_looked_at(text: str, wrong: bool) -> None:
    assert path_of("embed", input=["a", text]) == ("input[1]" if wrong else None)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"app": "a\nb"}, "app"),
        ({"on_behalf": {"source": "unknown", "uid": 2**32 - 1}}, "on_behalf.uid"),
        ({"on_behalf": {"source": "unknown", "unit": "\n"}}, "on_behalf.unit"),
        ({"on_behalf": {"source": "unknown", "slice": "\n"}}, "on_behalf.slice"),
        ({"on_behalf": {"source": "unknown", "principal": "\n"}}, "on_behalf.principal"),
        ({"on_behalf": {"source": "unknown", "flow": "\n"}}, "on_behalf.flow"),
        ({"on_behalf": {"source": "unknown", "ceiling": "\n"}}, "on_behalf.ceiling"),
    ],
)
def test_a_hello_is_looked_at(fields: dict[str, Any], path: str) -> None:
    assert path_of("hello", features=["v1"], **fields) == path


@pytest.mark.parametrize(
    ("tag", "fields"),
    [
        ("load", {"model": "\n"}),
        ("pause", {"class": "\n"}),
        ("cancel_any", {"rid": "\n"}),
        ("lease", {"prompt_tok": 1, "max_tok": 1, "ticket": "\n"}),
    ],
)
def test_names_are_clean_in_every_message(tag: str, fields: dict[str, Any]) -> None:
    assert path_of(tag, **fields) is not None


def test_sentences_say_what_to_do() -> None:
    _, sentence = problem("generate", prompt="a", params={"min_tokens": 3, "max_tokens": 2}) or (
        "",
        "",
    )
    assert sentence == "is above max_tokens: lower it, or raise max_tokens"


@pytest.mark.parametrize("fields", [{"until_ms": 5}, {"now": True}])
def test_what_is_taken_back_is_not_released(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert path_of("release_engine", end=True, **fields) == name
