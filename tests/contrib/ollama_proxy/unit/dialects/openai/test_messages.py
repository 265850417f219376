"""Messages and tools of the OpenAI routes in the wire's words."""

import base64

import pytest

from onegate.protocol.content import ImagePart, Message, TextPart
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects.openai.messages import choice_of, image_of, messages_of, tools_of

DATA = base64.b64encode(b"\x89PNG").decode()


def one(**said) -> Message:
    (message,), _ = messages_of([said])
    return message


def refused(*said) -> BadAsk:
    with pytest.raises(BadAsk) as error:
        messages_of(list(said))
    return error.value


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_roles(role):
    assert one(role=role, content="Hi") == Message(role=role, content="Hi")


def test_parts():
    url = f"data:image/png;base64,{DATA}"
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": url},
    ]
    image = ImagePart(data=b"\x89PNG", media_type="image/png")
    assert one(role="user", content=parts).content == [
        TextPart(text="What is this?"),
        image,
        image,
    ]


@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        (f"data:image/jpg;base64,{DATA}", "image/jpeg"),
        (f"data:image/WEBP;base64,{DATA}", "image/webp"),
        (f"data:;base64,{DATA}", "image/png"),
    ],
)
def test_images(url, media_type):
    assert image_of(url, "x").media_type == media_type


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "https://example.org/a.png",
        "file:///etc/passwd",
        "data:text/html;base64,AAAA",
        "data:image/png;base64,%%%",
        "data:image/png;base64,AAA",
        "",
    ],
)
def test_no_url_is_fetched(url):
    with pytest.raises(BadAsk) as error:
        image_of(url, "messages[0].content[1].image_url")
    assert error.value.path == "messages[0].content[1].image_url"


def test_a_call_and_its_answer():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    said, answer = messages_of(
        [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "4", "name": "f"},
        ]
    )[0]
    assert said.content is None
    assert said.tool_calls is not None
    assert (said.tool_calls[0].id, said.tool_calls[0].function.arguments) == ("c1", "{}")
    assert (answer.tool_call_id, answer.name, answer.content) == ("c1", "f", "4")


def test_an_assistant_that_said_nothing_said_an_empty_text():
    assert one(role="assistant", content=None).content == ""
    assert one(role="assistant").content == ""
    assert one(role="assistant", content=[]).content == ""
    assert one(role="assistant", refusal="no").content == "no"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_go_back_to_the_model(name):
    said = one(role="assistant", content="4", **{name: "2 and 2"})
    assert said.thinking == "2 and 2"
    assert one(role="user", content="4", **{name: "2 and 2"}).thinking is None


def test_names_of_speakers_are_left_out_with_one_notice():
    turn = {"role": "user", "content": "Hi", "name": "ann"}
    messages, notices = messages_of([turn, turn])
    assert messages[0].name is None
    assert len(notices) == 1
    assert "ann" not in notices[0]


@pytest.mark.parametrize(
    ("said", "path", "reason"),
    [
        ({"role": "wizard", "content": "x"}, "messages[0].role", Reason.INVALID),
        ({"content": "x"}, "messages[0]", Reason.INVALID),
        ({"role": "user", "content": 5}, "messages[0].content", Reason.INVALID),
        ("x", "messages[0]", Reason.INVALID),
        ({"role": "function", "content": "x"}, "messages[0].role", Reason.UNSUPPORTED),
        (
            {"role": "assistant", "function_call": {"name": "f"}},
            "messages[0].role",
            Reason.UNSUPPORTED,
        ),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages[0].audio", Reason.UNSUPPORTED),
        (
            {"role": "user", "content": [{"type": "input_audio"}]},
            "messages[0].content[0].type",
            Reason.UNSUPPORTED,
        ),
        ({"role": "user", "content": [{}]}, "messages[0].content[0].type", Reason.INVALID),
        (
            {"role": "user", "content": [{"type": "text"}]},
            "messages[0].content[0].text",
            Reason.INVALID,
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": ""}}]},
            "messages[0].tool_calls[0].function",
            Reason.INVALID,
        ),
    ],
)
def test_what_is_wrong_is_named(said, path, reason):
    error = refused(said)
    assert (error.path or "").startswith(path)
    assert error.reason is reason


def test_tools():
    (tool,) = tools_of([{"function": {"name": "f", "description": "d", "extra": 1}}])
    assert (tool.function.name, tool.function.description) == ("f", "d")


@pytest.mark.parametrize(
    ("tool", "path", "reason"),
    [
        ({"type": "function"}, "tools[0].function", Reason.INVALID),
        ({"type": "function", "function": {"name": ""}}, "tools[0].function", Reason.INVALID),
        ({"type": "code_interpreter"}, "tools[0].type", Reason.UNSUPPORTED),
        ({"type": "web_search_preview"}, "tools[0].type", Reason.BOUNDARY_REFUSED),
        ({"type": 5}, "tools[0].type", Reason.INVALID),
        (5, "tools[0]", Reason.INVALID),
    ],
)
def test_what_is_no_tool(tool, path, reason):
    with pytest.raises(BadAsk) as error:
        tools_of([tool])
    assert (error.value.path or "").startswith(path)
    assert error.value.reason is reason


@pytest.mark.parametrize(
    "said", [{"type": "allowed_tools"}, {"type": "function"}, {}, {"type": "custom", "name": "x"}]
)
def test_what_is_no_choice(said):
    with pytest.raises(BadAsk) as error:
        choice_of(said)
    assert (error.value.path or "").startswith("tool_choice")
