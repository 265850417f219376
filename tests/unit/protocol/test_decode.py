"""From a frame to a message, to a mistake of one request, or to the end of the connection."""

from typing import Any

import msgspec
import pytest
from msgspec import msgpack

from onegate.protocol import messages as m
from onegate.protocol.decode import JSON_BYTES, Invalid, decode_request
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.locate import MAX_FIELDS

USER = {"role": "user", "content": "Hi"}
TEXT = {"type": "text", "text": "a"}
TOOLS = [{"function": {"name": "f", "parameters": {"a": None}}}]


def generate(**fields: Any) -> dict[str, Any]:
    return {"t": "generate", "id": 7, "prompt": "Hi"} | fields


def decoded(message: object) -> m.ClientMessage | Invalid:
    return decode_request(message if isinstance(message, bytes) else msgpack.encode(message))


def ended(message: object) -> str:
    with pytest.raises(RemoteProtocolError) as error:
        decoded(message)
    assert str(error.value).isprintable()
    return str(error.value)


def invalid(message: object) -> tuple[str, str]:
    got = decoded(message)
    assert isinstance(got, Invalid)
    assert got.id == 7
    assert got.kind is m.Generate
    return got.path, got.message


def test_a_good_message_is_itself_whatever_the_order_of_its_keys() -> None:
    assert decoded({"id": 7, "prompt": "Hi", "t": "generate"}) == m.Generate(id=7, prompt="Hi")


# --- the connection ends ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ([1], "must be a msgpack map"),
        (7, "must be a msgpack map"),
        (b"\xc1", "must be a msgpack map"),
        (b"\x81\x01\x02", "string keys"),
        (b"\x82\xa1t\xa6status\xa2i", "truncated"),
        (msgpack.encode(generate()) + b"\0", "trailing"),
        ({"id": 7}, "without its tag"),
        ({"t": 7, "id": 7}, "must be a string"),
        ({"t": b"status", "id": 7}, "must be a string"),
        ({"t": "generat", "id": 7}, "no message 'generat'"),
        (generate(temperature=1.0), "generate has no field 'temperature'"),
        ({"t": "status"}, "status without an id"),
        ({"t": "status", "id": -1}, "no integer from 0"),
        ({"t": "status", "id": 2**32}, "no integer from 0"),
        ({"t": "status", "id": 1.0}, "no integer from 0"),
        ({"t": "status", "id": True}, "no integer from 0"),
        ({"t": "status", "id": None}, "no integer from 0"),
        (generate(id="x", params={"temperature": 9}), "no integer from 0"),
        ({"t": "hello"}, "features is missing"),
        ({"t": "hello", "features": [1]}, "features[0] is wrong"),
        ({"t": "hello", "features": [], "x": 1}, "hello has no field 'x'"),
        ({"t": "hello", "features": [], "app": "\n"}, "app may hold printable"),
        ({"t": "hello", "features": [], "on_behalf": {"source": "pid"}}, "must be one of: keyfile"),
        (b"\x83\xa1t\xa6status\xa1t\xa6whoami\xa2id\x02", "cannot be read"),
    ],
)
def test_offences_end_the_connection(message: object, said: str) -> None:
    assert said in ended(message)


def test_an_offence_outside_counts_more_than_a_mistake_inside() -> None:
    assert "no field" in ended(generate(params={"temperature": 9}, x=1))


@pytest.mark.parametrize("fields", [{"tools": TOOLS}, {"tools": None}, {"unknown": None}])
@pytest.mark.parametrize("padding", [0, 100_000])
def test_bottomless_nesting_ends_the_connection(fields: dict[str, Any], padding: int) -> None:
    """In a schema, where any depth is of the right type, and where the type is wrong at once."""
    head = msgpack.encode(generate(prompt="x" * (padding + 1)) | fields)
    assert "nested too deeply" in ended(head[:-1] + b"\x91" * 100_000 + b"\xc0")


@pytest.mark.parametrize(
    "head", [b"\xde\x00\x41", b"\xdf\x00\x00\x00\x41", b"\xdf\xff\xff\xff\xff"]
)
def test_a_map_of_too_many_fields_is_not_even_read(head: bytes) -> None:
    assert "fields: none has that many" in ended(head)


def test_no_message_has_more_fields_than_are_read() -> None:
    assert all(len(msgspec.structs.fields(kind)) < MAX_FIELDS for kind in (m.Generate, m.Hello))


def test_what_a_peer_made_up_is_escaped_and_cut() -> None:
    assert ended({"t": "\x1b[2J" + "x" * 5000}) == f"there is no message '\\x1b[2J{'x' * 60}...'"
    assert len(ended(generate(**{"é" * 5000: 1}))) < 400


# --- one request is invalid ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "path", "said"),
    [
        ({"params": {"temperature": 9}}, "params.temperature", "<= 2.0"),
        ({"params": {"temperature": float("nan")}}, "params.temperature", "is"),
        ({"params": {"max_tokens": 0}}, "params.max_tokens", ">= 1"),
        ({"params": {"max_tokens": -1}}, "params.max_tokens", ">= 1"),
        ({"params": {"top_k": None}}, "params.top_k", "got `nil`"),
        ({"params": {"topk": 1}}, "params.topk", "is no field of params: it has"),
        ({"params": None}, "params", "got `nil`"),
        ({"stream": 1}, "stream", "expected `bool`"),
        ({"prompt": None, "messages": [{"role": "x"}]}, "messages[0].role", "one of: assistant"),
        ({"ttft_timeout_ms": 0}, "ttft_timeout_ms", ">= 1"),
        ({"model": ""}, "model", "length >= 1"),
        ({"prompt": ""}, "prompt", "is empty"),
    ],
)
def test_mistakes_inside_are_the_requests_own(fields: dict[str, Any], path: str, said: str) -> None:
    found = invalid(generate(**fields))
    assert found[0] == path
    assert said in found[1]


def test_a_missing_field_is_named() -> None:
    got = decoded({"t": "load", "id": 3})
    assert got == Invalid(3, m.Load, "model", "is missing")


@pytest.mark.parametrize("text", [b"\xff\xff", b"\xed\xa0", b"\xc0\x80"])
def test_text_that_is_not_utf8_is_named(text: bytes) -> None:
    payload = msgpack.encode({"t": "generate", "id": 7, "prompt": "ab"})
    assert invalid(payload[:-2] + text) == ("prompt", "holds text that is not UTF-8")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": [USER, {"role": "user", "content": "@@"}]}, "messages[1].content"),
        ({"messages": [{"role": "@@"}]}, "messages[0].role"),
        (
            {
                "messages": [
                    USER,
                    {"role": "user", "content": [TEXT, {"type": "text", "text": "@@"}]},
                ]
            },
            "messages[1].content[1].text",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "@@"}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [USER], "tools": [{"function": {"name": "@@"}}]}, "tools[0].function.name"),
        ({"params": {"stop": ["a", "@@"]}}, "params.stop[1]"),
        ({"tool_choice": {"function": {"name": "@@"}}}, "tool_choice.function.name"),
        ({"class": "@@"}, "class"),
        # Where it is a name, or inside of JSON, what holds it is named.
        ({"params": {"@@": 1}}, "params"),
        (
            {"messages": [USER], "tools": [{"function": {"name": "f", "parameters": {"a": "@@"}}}]},
            "tools[0].function.parameters",
        ),
    ],
)
def test_text_far_inside_that_is_not_utf8_is_named(fields: dict[str, Any], path: str) -> None:
    payload = msgpack.encode({"t": "generate", "id": 7} | fields).replace(b"@@", b"\xff\xff")
    assert invalid(payload) == (path, "holds text that is not UTF-8")


def test_what_no_json_can_be_is_named() -> None:
    head = msgpack.encode(generate(tools=TOOLS))[:-1]
    for value in (b"\x81\x80\xc0", b"\xd4\xff\x00"):  # a map as a key; a broken timestamp
        path, sentence = invalid(head + value)
        assert path.startswith("tools")
        assert sentence == "cannot be read"


def test_values_are_never_quoted() -> None:
    for fields in (
        {"tool_choice": "my secret"},
        {"prompt": None, "messages": [{"role": "my secret"}]},
        {"prompt": None, "messages": [{"role": "user", "content": [{"type": "my secret"}]}]},
    ):
        assert "secret" not in invalid(generate(**fields))[1]


@pytest.mark.parametrize("field", JSON_BYTES)
def test_fields_that_hold_any_json_have_bounds_of_their_own(field: str) -> None:
    most = JSON_BYTES[field]
    for n_bytes, taken in ((most, True), (most + 1, False)):
        value = {
            "tools": lambda text: [{"function": {"name": "f", "description": text}}],
            "params": lambda text: {"response_format": {"type": "text", "x": text}},
        }[field]
        overhead = len(msgpack.encode(value("x" * 70_000))) - 70_000
        message = generate(**{field: value("x" * (n_bytes - overhead))})
        assert len(msgpack.encode(message[field])) == n_bytes
        assert ("bytes long" in invalid(message)[1]) is not taken


def test_a_large_prompt_is_no_offence() -> None:
    text = "x" * (1 << 20)
    assert decoded(generate(prompt=text)) == m.Generate(id=7, prompt=text)
