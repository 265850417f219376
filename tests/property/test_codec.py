"""The wire under everything that can be built, cut, mixed up or made up.

Messages of each type are built from their own type descriptions, so that a new field is covered on
the day it is added. Whatever comes in, the daemon's end makes typed events of it, and the client's
messages or a RemoteProtocolError.
"""

import tracemalloc
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import inspect, msgpack

from onegate.protocol import exchange
from onegate.protocol.connection import (
    ClientConnection,
    Event,
    HelloReceived,
    InvalidRequest,
    Offence,
    RequestReceived,
    ServerConnection,
)
from onegate.protocol.decode import KINDS
from onegate.protocol.errors import Reason, RemoteProtocolError
from onegate.protocol.features import KNOWN
from onegate.protocol.framing import HEADER_BYTES, FrameReader, frame
from onegate.protocol.messages import (
    Ack,
    ClientMessage,
    DaemonMessage,
    Failed,
    Hello,
    Limits,
    PeerFacts,
    Welcome,
    Whoami,
)
from onegate.protocol.validate import validate

MAX_FRAME_BYTES = 1 << 20
HELLO = Hello(features=sorted(KNOWN))
WELCOME = Welcome(
    peer=PeerFacts(uid=1, gid=1, pid=1),
    class_="loop",
    ceiling="loop",
    why=[],
    models=[],
    limits=Limits(max_frame_bytes=MAX_FRAME_BYTES, frame_timeout_ms=1, in_flight_per_session=1),
    features=sorted(KNOWN),
    version="0",
)
CLIENT_KINDS = [kind for kind in get_args(ClientMessage) if kind is not Hello]
DAEMON_KINDS = list(get_args(DaemonMessage))

thorough = settings(
    deadline=None,  # clocks fail no test here
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
per_kind = settings(thorough, max_examples=25)

TEXT = st.text(max_size=6)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)  # which equals nothing, itself included
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
# What msgpack can say and JSON cannot.
ANY_VALUES = st.recursive(
    JSON_VALUES
    | st.just(float("nan"))
    | st.binary(max_size=6)
    | st.builds(msgpack.Ext, st.integers(-128, 127), st.binary(max_size=6)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT | st.integers(0, 9) | st.binary(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


def built(node: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a type, within its constraints."""
    match node:
        case inspect.Metadata(type=inner):
            return built(inner)
        case inspect.UnionType(types=types):
            return st.one_of([built(t) for t in types])
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=low, le=high):
            return st.integers(-(2**63) if low is None else low, 2**63 if high is None else high)
        case inspect.FloatType(ge=low, gt=above, le=high):
            return st.floats(
                low if above is None else above,
                high,
                exclude_min=above is not None,
                allow_nan=False,
                allow_infinity=False,
            )
        case inspect.StrType(pattern=None, min_length=low):
            return st.text(min_size=low or 0, max_size=(low or 0) + 5)
        case inspect.StrType():
            return st.sampled_from(["image/png", "image/svg+xml", "image/x.y-z"])
        case inspect.BytesType():
            return st.binary(max_size=6)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case inspect.ListType(item_type=item, min_length=low):
            return st.lists(built(item), min_size=low or 0, max_size=(low or 0) + 2)
        case inspect.FrozenSetType(item_type=item):
            return st.frozensets(built(item), max_size=3)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(built(key), built(value), max_size=2)
        case inspect.AnyType():
            return JSON_VALUES
        case inspect.StructType(cls=cls, fields=fields):
            required = {f.name: built(f.type) for f in fields if f.required}
            optional = {f.name: built(f.type) for f in fields if not f.required}
            return st.fixed_dictionaries(required, optional=optional).map(lambda kw: cls(**kw))
    raise NotImplementedError(node)


def messages(kind: type) -> st.SearchStrategy[Any]:
    return built(inspect.type_info(kind))


def greeted(client: ClientConnection | None = None) -> ServerConnection:
    server = ServerConnection(MAX_FRAME_BYTES, built=KNOWN)
    client = client or ClientConnection(MAX_FRAME_BYTES)
    assert server.receive(client.send(HELLO)) == [HelloReceived(HELLO)]
    assert client.receive(server.send(WELCOME)) == [WELCOME]
    return server


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def survive(server: ServerConnection, data: bytes) -> list[Event]:
    """Events of `data`; an offence is the last of them, and must leave a connection that ignores
    what follows and can still be told why."""
    events = server.receive(data)
    assert not any(isinstance(event, Offence) for event in events[:-1])
    if events and isinstance(events[-1], Offence):
        assert server.receive(frame(msgpack.encode(HELLO))) == []
        assert server.buffered_bytes == 0
        assert server.send(FAILURE)
    said = [event.message for event in events if isinstance(event, InvalidRequest | Offence)]
    assert all(text.isprintable() and len(text) < 400 for text in said)
    for event in events:
        if isinstance(event, InvalidRequest) and event.path is not None:
            assert event.path.isascii()
        if isinstance(event, RequestReceived):
            assert validate(event.message) is None
    return events


FAILURE = Failed(reason=Reason.PROTOCOL, message="", retryable=False, phase="arrival")


# --- round trips ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLIENT_KINDS, ids=lambda kind: kind.__name__)
@per_kind
@given(data=st.data(), cuts=st.lists(st.integers(0, 4096), max_size=4))
def test_a_request_arrives_as_it_was_sent_however_it_is_cut(
    kind: type, data: st.DataObject, cuts: list[int]
) -> None:
    message = data.draw(messages(kind))
    client = ClientConnection()
    server = greeted(client)
    sent = client.send(message)
    events = [event for piece in cut(sent, cuts) for event in server.receive(piece)]
    if validate(message) is None:
        assert events == [RequestReceived(message)]
    else:
        (event,) = events
        assert isinstance(event, InvalidRequest)
        assert event.id == message.id
        assert event.path
    assert not server.incomplete
    assert server.buffered_bytes == 0


@per_kind
@given(hello=messages(Hello))
def test_a_hello_arrives_as_it_was_sent(hello: Hello) -> None:
    server = ServerConnection(built=KNOWN)
    sent = ClientConnection().send(hello)
    if validate(hello) is None and "v1" in hello.features:
        assert server.receive(sent) == [HelloReceived(hello)]
    else:
        (event,) = server.receive(sent)
        assert isinstance(event, Offence)


@pytest.mark.parametrize("kind", DAEMON_KINDS, ids=lambda kind: kind.__name__)
@per_kind
@given(data=st.data(), cuts=st.lists(st.integers(0, 4096), max_size=4))
def test_an_answer_arrives_as_it_was_sent_however_it_is_cut(
    kind: type, data: st.DataObject, cuts: list[int]
) -> None:
    message = data.draw(messages(kind))
    client = ClientConnection()
    if not isinstance(message, Welcome):
        greeted(client)
    else:
        client.send(HELLO)
    if getattr(message, "id", None) is not None:
        if isinstance(message, Ack):
            message = msgspec.structs.replace(message, verb="pause", applied=True)
        asked = next(k for k in exchange.EXCHANGES if exchange.belongs(k, message))
        request = msgspec.structs.replace(data.draw(messages(asked)), id=message.id)
        client.send(request)
    sent = frame(msgpack.encode(message))
    received = [m for piece in cut(sent, cuts) for m in client.receive(piece)]
    assert received == [message]


# --- framing ----------------------------------------------------------------------------------

PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


@thorough
@given(payloads=PAYLOADS, cuts=st.lists(st.integers(0, 300), max_size=12), end=st.integers(0, 300))
def test_payloads_do_not_depend_on_how_bytes_arrive(
    payloads: list[bytes], cuts: list[int], end: int
) -> None:
    stream = b"".join(map(frame, payloads))
    end %= len(stream) + 1
    reader, got = FrameReader(40), []
    for piece in cut(stream[:end], cuts):
        got += reader.feed(piece)
    one_by_one, dripped = FrameReader(40), []
    for i in range(end):
        dripped += one_by_one.feed(stream[i : i + 1])
    assert got == dripped == payloads[: len(got)]
    assert reader.frames == one_by_one.frames == len(got)
    rest = end - sum(HEADER_BYTES + len(payload) for payload in got)
    assert reader.buffered_bytes == one_by_one.buffered_bytes == rest
    assert reader.incomplete == one_by_one.incomplete == (rest > 0)


@thorough
@given(
    payloads=PAYLOADS,
    announced=st.just(0) | st.integers(41, 2**32 - 1),
    cuts=st.lists(st.integers(0, 300), max_size=6),
)
def test_a_lying_header_is_found_out_with_its_fourth_byte(
    payloads: list[bytes], announced: int, cuts: list[int]
) -> None:
    reader = FrameReader(40)
    good = b"".join(map(frame, payloads)) + announced.to_bytes(4, "big")
    got = [payload for piece in cut(good[:-1], cuts) for payload in reader.feed(piece)]
    with pytest.raises(RemoteProtocolError):
        list(reader.feed(good[-1:]))
    assert got == payloads


@thorough
@given(
    n_good=st.integers(0, 5),
    offence=st.sampled_from([b"\0\0\0\0", frame(b"\xc1"), frame(msgpack.encode({"t": "x"}))]),
    cuts=st.lists(st.integers(0, 300), max_size=6),
)
def test_what_came_before_an_offence_does_not_depend_on_how_bytes_arrive(
    n_good: int, offence: bytes, cuts: list[int]
) -> None:
    good = [Whoami(id=i) for i in range(n_good)]
    stream = b"".join(frame(msgpack.encode(m)) for m in [HELLO, *good]) + offence
    server = ServerConnection(MAX_FRAME_BYTES)
    *before, last = [event for piece in cut(stream, cuts) for event in server.receive(piece)]
    assert before == [HelloReceived(HELLO), *map(RequestReceived, good)]
    assert isinstance(last, Offence)


# --- hostile bytes ----------------------------------------------------------------------------


@thorough
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=4))
def test_garbage_is_refused_in_words(data: bytes, cuts: list[int]) -> None:
    for server in (ServerConnection(MAX_FRAME_BYTES), greeted()):
        for piece in cut(data, cuts):
            survive(server, piece)


@thorough
@given(payload=st.binary(min_size=1, max_size=200))
def test_garbage_in_a_frame_is_refused_in_words(payload: bytes) -> None:
    for server in (ServerConnection(MAX_FRAME_BYTES), greeted()):
        survive(server, frame(payload))


@pytest.mark.parametrize("kind", [Hello, *CLIENT_KINDS], ids=lambda kind: kind.__name__)
@per_kind
@given(
    data=st.data(),
    at=st.integers(0, 4096),
    put=st.binary(max_size=4),
    take=st.integers(0, 4),
)
def test_damaged_messages_are_refused_in_words(
    kind: type, data: st.DataObject, at: int, put: bytes, take: int
) -> None:
    good = msgpack.encode(data.draw(messages(kind)))
    at %= len(good)
    bad = good[:at] + put + good[at + take :]
    assume(bad)
    survive(ServerConnection(MAX_FRAME_BYTES) if kind is Hello else greeted(), frame(bad))


@thorough
@given(
    tag=st.sampled_from(sorted(KINDS)) | TEXT,
    request_id=st.integers(0, 2**32 - 1) | ANY_VALUES,
    data=st.data(),
)
def test_well_formed_nonsense_is_refused_in_words(
    tag: str, request_id: object, data: st.DataObject
) -> None:
    names = KINDS[tag].__struct_encode_fields__ if tag in KINDS else ("id",)
    fields = data.draw(
        st.dictionaries(st.sampled_from(names) | TEXT, ANY_VALUES | deep_values(), max_size=4)
    )
    payload = msgpack.encode({"t": tag, "id": request_id} | fields)
    survive(greeted(), frame(payload))
    survive(ServerConnection(), frame(payload))


def deep_values() -> st.SearchStrategy[Any]:
    """Plausible insides, with something wrong far down."""
    return st.fixed_dictionaries(
        {},
        optional={
            "temperature": ANY_VALUES,
            "stop": st.lists(ANY_VALUES, max_size=2),
            "response_format": st.dictionaries(
                st.sampled_from(["type", "json_schema"]), ANY_VALUES, max_size=2
            ),
        },
    ) | st.lists(
        st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "function", "type", "x"]),
            ANY_VALUES | st.sampled_from(["user", "assistant", "function"]),
            max_size=4,
        ),
        max_size=3,
    )


@thorough
@given(data=st.binary(max_size=200), tag=TEXT, body=st.dictionaries(TEXT, ANY_VALUES, max_size=4))
def test_a_client_survives_its_daemon(data: bytes, tag: str, body: dict[str, Any]) -> None:
    stranger = frame(msgpack.encode(body | {"t": f"x-{tag}"}))
    for payload in (data, frame(data or b"\0")):
        client = ClientConnection(MAX_FRAME_BYTES)
        greeted(client)
        assert client.receive(stranger) == []
        try:
            client.receive(payload)
        except RemoteProtocolError:
            assert client.receive(stranger) == []


# --- memory -----------------------------------------------------------------------------------


def peak_bytes(server: ServerConnection, data: bytes) -> int:
    tracemalloc.start()
    try:
        survive(server, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Each is about 8 MiB of the values that cost most per byte once they are objects.
COUNT = 8 * 1024 * 1024 - 200
LISTS = b"\xdd" + COUNT.to_bytes(4, "big") + b"\x90" * COUNT
MAPS = b"\xdd" + COUNT.to_bytes(4, "big") + b"\x80" * COUNT
INTS = b"\xdd" + (COUNT // 3).to_bytes(4, "big") + b"\xcd\x12\x34" * (COUNT // 3)
KEYS = b"".join(b"\xa6%06x\xc0" % i for i in range(COUNT // 8))
KEYS_MAP = b"\xdf" + (COUNT // 8).to_bytes(4, "big") + KEYS
TOOL = msgpack.encode([{"function": {"name": "f", "parameters": {"a": None}}}])[:-1]
FORMAT = msgpack.encode(
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": None}}}}
)[:-1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", TOOL + LISTS),
        ("tools", TOOL + MAPS),
        ("params", FORMAT + LISTS),
        ("messages", LISTS),
        ("messages", msgpack.encode([{"role": "user", "content": None}])[:-1] + MAPS),
        ("prompt_token_ids", INTS),
        ("unknown", LISTS),
        ("tool_choice", KEYS_MAP),
    ],
    ids=[
        "lists in tools",
        "maps in tools",
        "lists in a schema",
        "messages that are lists",
        "parts that are maps",
        "token ids",
        "an unknown field",
        "a map of keys",
    ],
)
def test_a_frame_costs_little_more_than_its_bytes(field: str, value: bytes) -> None:
    head = b"\x83" + msgpack.encode("t") + msgpack.encode("generate") + msgpack.encode("id")
    data = frame(head + b"\x01" + msgpack.encode(field) + value)
    server = ServerConnection(9 << 20)
    server.receive(frame(msgpack.encode(HELLO)))
    assert peak_bytes(server, data) < 3 * len(data)


def test_a_map_of_a_million_fields_costs_little_more_than_its_bytes() -> None:
    data = frame(KEYS_MAP)
    server = ServerConnection(9 << 20)
    assert peak_bytes(server, data) < 2 * len(data)


def test_a_liar_costs_nothing() -> None:
    header = (8 * 1024 * 1024).to_bytes(4, "big") + b"\x83"
    tracemalloc.start()
    try:
        servers = [ServerConnection() for _ in range(1000)]
        for server in servers:
            server.receive(header)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert all(server.buffered_bytes == 5 for server in servers)
