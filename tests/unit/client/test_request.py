"""From keywords to messages."""

import math

import pytest
from msgspec import UNSET

from onegate.client.errors import InvalidRequest
from onegate.client.request import (
    MAX_S,
    RequestOptions,
    count_message,
    embed_message,
    generate_message,
    ms_of,
)
from onegate.protocol.content import Message, Params


def test_a_prompt_and_nothing_else_leaves_all_to_the_daemon() -> None:
    message = generate_message("hi", {}, stream=True)
    assert (message.prompt, message.stream, message.progress) == ("hi", True, False)
    assert message.params == Params()
    assert message.params.max_tokens is UNSET


def test_keywords_land_where_the_wire_has_them() -> None:
    options: RequestOptions = {
        "class_": "batch",
        "max_tokens": 5,
        "temperature": 0.5,
        "stop": ["x"],
        "think": "low",
        "ticket": "t",
        "raw": True,
        "progress": print,
    }
    message = generate_message("hi", options, stream=False)
    assert (message.class_, message.think, message.ticket, message.raw) == (
        "batch",
        "low",
        "t",
        True,
    )
    assert message.params == Params(max_tokens=5, temperature=0.5, stop=["x"])
    assert (message.stream, message.progress) == (False, True)


def test_every_keyword_is_accepted_and_no_other() -> None:
    handled = set(Params.__struct_fields__) | {
        *("messages", "prompt_token_ids", "model", "tools", "tool_choice", "think", "suffix"),
        *("raw", "class_", "ttft_timeout", "timeout", "ticket", "schema", "progress"),
    }
    assert set(RequestOptions.__annotations__) == handled
    with pytest.raises(TypeError, match="max_token"):
        generate_message("hi", {"max_token": 5}, stream=True)  # type: ignore[typeddict-unknown-key]


def test_none_means_not_given() -> None:
    options: RequestOptions = {"max_tokens": None, "class_": None}  # type: ignore[typeddict-item]
    assert generate_message("hi", options, stream=True) == generate_message("hi", {}, stream=True)


def test_messages_may_be_dicts_and_structs() -> None:
    image = {"type": "image", "data": b"\x89PNG", "media_type": "image/png"}
    turns = [
        {"role": "system", "content": "be brief"},
        Message(role="user", content="hi"),
        {"role": "user", "content": [{"type": "text", "text": "what is it?"}, image]},
    ]
    message = generate_message(None, {"messages": turns}, stream=True)
    assert message.messages is not None
    assert [turn.role for turn in message.messages] == ["system", "user", "user"]


def test_a_schema_becomes_a_response_format() -> None:
    schema = {"type": "object"}
    message = generate_message("hi", {"schema": schema}, stream=True)
    assert message.params.response_format is not UNSET
    assert message.params.response_format.json_schema is not None
    assert message.params.response_format.json_schema.schema == schema


def test_a_schema_is_not_given_twice() -> None:
    options: RequestOptions = {"schema": {}, "response_format": {"type": "text"}}
    with pytest.raises(InvalidRequest, match="say the same thing"):
        generate_message("hi", options, stream=True)


@pytest.mark.parametrize(
    ("prompt", "options"),
    [(None, {}), ("hi", {"messages": []}), ("hi", {"prompt_token_ids": [1]})],
)
def test_exactly_one_kind_of_prompt(prompt: str | None, options: RequestOptions) -> None:
    with pytest.raises(InvalidRequest, match="exactly one"):
        generate_message(prompt, options, stream=True)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"max_tokens": 0}, "params.max_tokens"),
        ({"max_tokens": "5"}, "params.max_tokens"),
        ({"temperature": math.nan}, "params.temperature"),
        ({"temperature": -1}, "params.temperature"),
        ({"class_": ""}, "class"),
        ({"stop": [""]}, "params.stop[0]"),
        ({"tool_choice": "maybe"}, "tool_choice"),
    ],
)
def test_a_bad_value_is_named_before_anything_is_sent(options: RequestOptions, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        generate_message("hi", options, stream=True)
    assert caught.value.path == path


def test_a_misspelled_field_of_a_message_is_an_error() -> None:
    turns = [{"role": "user", "contents": "hi"}]
    with pytest.raises(InvalidRequest, match="contents") as caught:
        generate_message(None, {"messages": turns}, stream=True)
    assert caught.value.path == "messages[0]"


def test_seconds_become_milliseconds_and_never_zero() -> None:
    assert [ms_of(None), ms_of(1.5), ms_of(0.0001)] == [None, 1500, 1]


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, 1e300, MAX_S + 1])
def test_only_positive_times_are_times(seconds: float) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ms_of(seconds, "ttft_timeout")
    assert caught.value.path == "ttft_timeout"


def test_count_takes_one_kind_of_prompt() -> None:
    assert count_message("hi", None, "tiny").model == "tiny"
    assert count_message(None, [{"role": "user", "content": "hi"}], None).messages is not None
    tools = [{"function": {"name": "f"}}]
    counted = count_message(None, [{"role": "user", "content": "hi"}], None, tools)
    assert [tool.function.name for tool in counted.tools or ()] == ["f"]
    for prompt, messages in ((None, None), ("hi", [])):
        with pytest.raises(InvalidRequest):
            count_message(prompt, messages, None)


def test_embed_needs_a_text() -> None:
    message = embed_message(["a"], model=None, class_="batch", timeout=2.0)
    assert (message.input, message.class_, message.timeout_ms) == (["a"], "batch", 2000)
    with pytest.raises(InvalidRequest):
        embed_message([], model=None, class_=None, timeout=None)
