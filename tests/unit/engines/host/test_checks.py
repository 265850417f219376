import msgspec
import pytest

from onegate.engines.host.checks import (
    check_min_tokens,
    check_params,
    check_plain_text,
    plain_turns,
)
from onegate.engines.host.engine import Refusal
from onegate.protocol.content import (
    FunctionCall,
    FunctionSpec,
    ImagePart,
    Message,
    Params,
    TextPart,
    Tool,
    ToolCall,
)


def refusal(call, *arguments):
    with pytest.raises(Refusal) as refused:
        call(*arguments)
    return refused.value.code, refused.value.path


def test_only_what_is_set_must_be_honoured():
    check_params(Params(), frozenset())
    check_params(Params(seed=1), frozenset({"seed"}))
    assert refusal(check_params, Params(seed=1, top_k=2), frozenset({"seed"})) == (
        "invalid",
        "params.top_k",
    )
    # A false value is set all the same.
    assert refusal(check_params, Params(logprobs=False), frozenset()) == (
        "invalid",
        "params.logprobs",
    )


def test_every_parameter_is_looked_at():
    everything = {field.name for field in msgspec.structs.fields(Params)}
    check_params(Params(seed=1, stop=["x"], temperature=0.0), frozenset(everything))


def test_a_minimum_within_the_maximum():
    check_min_tokens(Params(), 1)
    check_min_tokens(Params(min_tokens=5), 5)
    assert refusal(check_min_tokens, Params(min_tokens=6), 5) == ("invalid", "params.min_tokens")


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("suffix", {"suffix": ""}),
        ("tools", {"tools": [Tool(function=FunctionSpec(name="f"))]}),
        ("tool_choice", {"tool_choice": "auto"}),
        ("think", {"think": "low"}),
    ],
)
def test_beyond_plain_text(make_request, path, given):
    assert refusal(check_plain_text, make_request("x", **given)) == ("unsupported", path)


def test_saying_no_to_tools_and_thinking_is_plain_text(make_request):
    check_plain_text(make_request("x", tools=[], tool_choice="none", think=False))


def test_turns_as_roles_and_texts():
    turns = plain_turns(
        [
            Message(role="developer", content="rules"),
            Message(role="user", content=[TextPart(text="a"), TextPart(text="b")]),
            Message(role="assistant", content=""),
        ]
    )
    assert turns == [("system", "rules"), ("user", "ab"), ("assistant", "")]


CALL = ToolCall(id="1", function=FunctionCall(name="f", arguments="{}"))


@pytest.mark.parametrize(
    ("message", "code", "path"),
    [
        (Message(role="tool", content="x"), "unsupported", "messages[1].role"),
        (Message(role="user", content="x", name="n"), "unsupported", "messages[1].name"),
        (Message(role="user", content="x", thinking="t"), "unsupported", "messages[1].thinking"),
        (Message(role="user", tool_calls=[CALL]), "unsupported", "messages[1].tool_calls"),
        (Message(role="user", tool_call_id="1"), "unsupported", "messages[1].tool_call_id"),
        (Message(role="user"), "invalid", "messages[1].content"),
        (
            Message(role="user", content=[ImagePart(data=b"", media_type="image/png")]),
            "unsupported",
            "messages[1].content",
        ),
    ],
)
def test_what_a_text_template_cannot_show(message, code, path):
    first = Message(role="user", content="x")
    assert refusal(plain_turns, [first, message]) == (code, path)


def test_no_turn_at_all():
    assert refusal(plain_turns, []) == ("invalid", "messages")
