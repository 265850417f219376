"""Conversations with tools, calls, images and thinking, valid ones and almost valid ones.

What is drawn from the types alone is refused nearly always: these follow the rules between the
fields, too, and are then bent in one place.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from tests.property.test_codec import (
    ANY_VALUES,
    JSON_VALUES,
    MAX_FRAME_BYTES,
    TEXT,
    cut,
    greeted,
    survive,
    thorough,
)

from onegate.config import OllamaModel
from onegate.engines.base import (
    EngineCapacity,
    EngineRefused,
    EngineRequest,
    Feature,
    PoolInfo,
    PoolState,
    Reservation,
)
from onegate.engines.ollama import request as ollama
from onegate.engines.ollama.model import Facts, Known, pool_of
from onegate.engines.ollama.version import parse_version
from onegate.engines.openai import wording
from onegate.engines.openai.flavours import FLAVOURS
from onegate.protocol.connection import ClientConnection, RequestReceived
from onegate.protocol.content import ChunkKind, FunctionCall, ToolCall
from onegate.protocol.framing import frame
from onegate.protocol.messages import Chunk, Generate
from onegate.protocol.validate import validate

WORDS = st.text(max_size=8).filter(lambda text: "\0" not in text)
NAMES = st.text(min_size=1, max_size=6).filter(str.isprintable)
OBJECTS = st.dictionaries(TEXT, JSON_VALUES, max_size=2)
IMAGES = st.fixed_dictionaries(
    {
        "type": st.just("image"),
        "data": st.binary(min_size=1, max_size=8),
        "media_type": st.sampled_from(["image/png", "image/jpeg", "image/svg+xml"]),
    }
)
TEXTS = st.fixed_dictionaries({"type": st.just("text"), "text": WORDS})
PARTS = st.lists(IMAGES | TEXTS, min_size=1, max_size=3)
ARGUMENTS = OBJECTS.map(json.dumps) | WORDS
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text(max_size=4),
            "function": st.fixed_dictionaries({"name": NAMES, "arguments": ARGUMENTS}),
        }
    ),
    min_size=1,
    max_size=3,
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {
            "function": st.fixed_dictionaries(
                {"name": NAMES},
                optional={"description": WORDS, "parameters": OBJECTS, "strict": st.booleans()},
            )
        }
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda tool: tool["function"]["name"],
)


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Questions, answers, and calls with what came of them."""
    said: list[dict[str, Any]] = []
    if draw(st.booleans()):
        said.append(
            {"role": draw(st.sampled_from(["system", "developer"])), "content": draw(WORDS)}
        )
    for _ in range(draw(st.integers(1, 3))):
        said.append({"role": "user", "content": draw(WORDS | PARTS)})
        answer: dict[str, Any] = {"role": "assistant", "content": draw(WORDS)}
        if draw(st.booleans()):
            answer["thinking"] = draw(WORDS)
        if draw(st.booleans()):
            answer["tool_calls"] = draw(CALLS)
            if draw(st.booleans()):
                del answer["content"]
        said.append(answer)
        for call in answer.get("tool_calls", []):
            given_by = {"tool_call_id": call["id"]} if call["id"] else {"name": draw(NAMES)}
            content = draw(WORDS | PARTS)
            said.append({"role": "tool", "content": content, **given_by})
    return said


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A `generate` that keeps every rule, as its map."""
    asked: dict[str, Any] = {"t": "generate", "id": draw(st.integers(0, 2**32 - 1))}
    asked["messages"] = draw(turns())
    if draw(st.booleans()):
        asked["tools"] = draw(TOOLS)
        names = [tool["function"]["name"] for tool in asked["tools"]]
        forced = {"type": "function", "function": {"name": draw(st.sampled_from(names))}}
        asked["tool_choice"] = draw(st.sampled_from(["auto", "none", "required", forced]))
    if draw(st.booleans()):
        asked["think"] = draw(st.sampled_from([True, False, "low", "medium", "high", "max"]))
    if draw(st.booleans()):
        schema = {"type": "json_schema", "json_schema": {"schema": draw(OBJECTS)}}
        form = draw(st.sampled_from([schema, {"type": "json_object"}, {"type": "text"}]))
        asked["params"] = {"response_format": form}
    return asked


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, below in inner:
        found.append((*path, key))
        if isinstance(below, dict | list):
            found += places(below, (*path, key))
    return found


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@thorough
@given(asked=requests(), cuts=st.lists(st.integers(0, 4096), max_size=3))
def test_a_conversation_arrives_as_it_was_sent(asked: dict[str, Any], cuts: list[int]) -> None:
    message = msgpack.decode(msgpack.encode(asked), type=Generate)
    assert validate(message) is None
    client = ClientConnection(MAX_FRAME_BYTES)
    server = greeted(client)
    events = [e for piece in cut(client.send(message), cuts) for e in server.receive(piece)]
    assert events == [RequestReceived(message)]


@thorough
@given(asked=requests(), data=st.data(), value=ANY_VALUES)
def test_bent_in_one_place_it_is_one_or_refused_in_words(
    asked: dict[str, Any], data: st.DataObject, value: Any
) -> None:
    path = data.draw(st.sampled_from(places(asked)))
    put(asked, path, value)
    server = greeted()
    events = survive(server, frame(msgpack.encode(asked)))
    assert len(events) == 1
    if path[0] not in ("t", "id"):
        # What is wrong inside is said about this request: the connection lives.
        whole = msgpack.encode({"t": "generate", "id": 7, "prompt": "x"})
        assert [type(e) for e in server.receive(frame(whole))] == [RequestReceived]


@thorough
@given(asked=requests(), data=st.data())
def test_with_a_piece_missing_it_is_one_or_refused_in_words(
    asked: dict[str, Any], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from([p for p in places(asked) if p[0] not in ("t", "id")]))
    holder = asked
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    (event,) = survive(greeted(), frame(msgpack.encode(asked)))
    assert event


@thorough
@given(
    id=st.text(max_size=8),
    name=st.text(min_size=1, max_size=8),
    arguments=st.text(max_size=30),
    thought=st.text(max_size=8),
)
def test_calls_and_thoughts_reach_the_client(
    id: str, name: str, arguments: str, thought: str
) -> None:
    client = ClientConnection(MAX_FRAME_BYTES)
    greeted(client)
    client.send(Generate(id=1, prompt="x"))
    call = ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))
    said = [
        Chunk(id=1, n_tok=2, kind=ChunkKind.THINKING, text=thought),
        Chunk(id=1, n_tok=3, kind=ChunkKind.TOOL_CALL, tool_call=call),
    ]
    stream = b"".join(frame(msgpack.encode(chunk)) for chunk in said)
    assert client.receive(stream) == said


# --- on to an engine ------------------------------------------------------------------------------


def engine_request(asked: dict[str, Any]) -> EngineRequest:
    message = msgpack.decode(msgpack.encode(asked), type=Generate)
    return EngineRequest(
        id=1,
        model="m",
        max_tokens=5,
        messages=message.messages,
        tools=message.tools,
        tool_choice=message.tool_choice,
        think=message.think,
        params=message.params,
    )


def worded(say: Callable[[], bytes]) -> Any:
    """What is sent; None where it is refused, which names the field."""
    refused: EngineRefused | None = None
    try:
        return json.loads(say())
    except EngineRefused as error:
        refused = error
    assert refused.path
    return None


@thorough
@given(
    asked=requests(),
    flavour=st.sampled_from(sorted(FLAVOURS)),
    features=st.frozensets(st.sampled_from(list(Feature))),
)
def test_for_an_openai_server_it_is_json_or_refused_by_name(
    asked: dict[str, Any], flavour: str, features: frozenset[Feature]
) -> None:
    server = FLAVOURS[flavour]
    pool = PoolInfo(
        model="m",
        state=PoolState.READY,
        capacity=EngineCapacity(max_seqs=1, max_context_tok=100_000, reservation=Reservation.GROW),
        features=features,
        params=frozenset(server.params),
    )
    body = worded(lambda: wording.call_of(engine_request(asked), pool, server, priority=False).body)
    if body is None:
        return
    assert [turn["role"] for turn in body["messages"]] == [t["role"] for t in asked["messages"]]
    # Nothing is left out: what it cannot say, it refuses.
    assert len(body.get("tools", [])) == len(asked.get("tools", []))
    for sent, turn in zip(body["messages"], asked["messages"], strict=True):
        assert len(sent.get("tool_calls", [])) == len(turn.get("tool_calls", []))
        if isinstance(turn.get("content"), list):
            kinds = [part["type"].removesuffix("_url") for part in sent["content"]]
            assert kinds == [part["type"] for part in turn["content"]]


@thorough
@given(
    asked=requests(),
    able=st.frozensets(st.sampled_from(["tools", "vision", "thinking", "insert"])),
    version=st.sampled_from(["0.9.3", "0.33.0", "?"]),
)
def test_for_ollama_it_is_json_or_refused_by_name(
    asked: dict[str, Any], able: frozenset[str], version: str
) -> None:
    facts = Facts(digest="d", capabilities=able | {"completion"})
    known = Known(OllamaModel(model="m"), facts=facts)
    pool = pool_of(known, parse_version(version), penalties=True, boundary="local")
    body = worded(lambda: ollama.call_of(engine_request(asked), pool, known, None).body)
    if body is None:
        return
    for sent, turn in zip(body["messages"], asked["messages"], strict=True):
        parts = turn.get("content") if isinstance(turn.get("content"), list) else []
        pictures = [part for part in parts if part["type"] == "image"]
        assert len(sent.get("images", [])) == len(pictures)
        assert len(sent.get("tool_calls", [])) == len(turn.get("tool_calls", []))
        assert ("thinking" in sent) == ("thinking" in turn)
    wanted = asked.get("params", {}).get("response_format", {}).get("type")
    assert ("format" in body) == (wanted in ("json_object", "json_schema"))


def test_what_is_drawn_has_everything_in_it() -> None:
    """Strategies can grow narrow without anybody noticing."""
    seen: set[str] = set()

    @thorough
    @given(asked=requests())
    def draw(asked: dict[str, Any]) -> None:
        text = msgspec.json.encode(asked, enc_hook=str).decode()
        for word in ('"image"', '"tool_calls"', '"thinking"', '"tool_choice"', '"json_schema"'):
            if word in text:
                seen.add(word)

    draw()
    assert len(seen) == 5
