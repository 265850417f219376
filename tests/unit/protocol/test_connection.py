"""Both ends of a connection, without a socket."""

from typing import Any

import msgspec
import pytest
from msgspec import msgpack

from onegate.protocol import messages as m
from onegate.protocol.connection import (
    ClientConnection,
    HelloReceived,
    InvalidRequest,
    Offence,
    RequestReceived,
    ServerConnection,
)
from onegate.protocol.content import FinishReason, FunctionSpec, Identity, Tool, Usage
from onegate.protocol.errors import (
    FrameTooLarge,
    LocalProtocolError,
    Phase,
    Reason,
    RemoteProtocolError,
)
from onegate.protocol.features import BUILT, KNOWN
from onegate.protocol.framing import FrameReader, frame
from onegate.protocol.stage import Stage

HELLO = m.Hello(features=sorted(KNOWN))
WELCOME = m.Welcome(
    peer=m.PeerFacts(uid=1, gid=1, pid=1),
    class_="loop",
    ceiling="loop",
    why=[],
    models=[],
    limits=m.Limits(max_frame_bytes=1, frame_timeout_ms=1, in_flight_per_session=1),
    features=["v1"],
    version="0",
)
ASK = m.Generate(id=1, prompt="Hi")
STARTED = m.Started(id=1, rid="r", queue_ms=0.0)
CHUNK = m.Chunk(id=1, n_tok=1, text="a")
DONE = m.Done(
    id=1,
    rid="r",
    finish_reason=FinishReason.STOP,
    usage=Usage(prompt_tok=1, output_tok=1),
    timings=m.Timings(queue_ms=0.0, e2e_ms=0.0),
    identity=Identity(engine="e", model="m"),
)


def failed(reason: Reason = Reason.CANCELLED, request_id: int | None = 1) -> m.Failed:
    return m.Failed(reason=reason, message="", retryable=True, phase=Phase.QUEUED, id=request_id)


def sent(message: object) -> bytes:
    return frame(msgpack.encode(message))


def server_open(built: frozenset[str] = KNOWN) -> ServerConnection:
    server = ServerConnection(built=built)
    assert server.receive(sent(HELLO)) == [HelloReceived(HELLO)]
    server.send(WELCOME)
    return server


def server_asked(*requests: m.ClientMessage) -> ServerConnection:
    server = server_open()
    for request in requests:
        assert server.receive(sent(request)) == [RequestReceived(request)]
    return server


def client_open() -> ClientConnection:
    client = ClientConnection()
    client.send(HELLO)
    assert client.receive(sent(WELCOME)) == [WELCOME]
    return client


# --- the daemon's end: how a connection begins --------------------------------------------------


def test_a_hello_is_answered_by_a_welcome_with_what_both_have() -> None:
    server = server_open()
    assert server.features == KNOWN
    assert ServerConnection().receive(sent(m.Hello(features=["v1", "x"])))
    assert server.stage is Stage.OPEN


def test_features_are_those_offered_and_built() -> None:
    server = ServerConnection()
    server.receive(sent(m.Hello(features=["v1", "load", "tomorrow"])))
    assert server.features == {"v1", "load"} <= BUILT


def test_requests_may_follow_the_hello_in_the_same_bytes() -> None:
    server = ServerConnection()
    assert server.receive(sent(HELLO) + sent(ASK)) == [HelloReceived(HELLO), RequestReceived(ASK)]
    assert server.is_live(1)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (ASK, "generate before hello"),
        ({"t": "generate", "id": 1, "prompt": 5}, "generate before hello"),
        ({"t": "status", "id": 1}, "status before hello"),
        (m.Hello(features=[]), "v1"),
        ({"t": "hello"}, "features is missing"),
    ],
)
def test_a_connection_begins_with_a_hello(first: object, said: str) -> None:
    (event,) = ServerConnection().receive(sent(first))
    assert isinstance(event, Offence)
    assert said in event.message


def test_there_is_one_hello() -> None:
    (event,) = server_open().receive(sent(HELLO))
    assert isinstance(event, Offence)
    assert "second hello" in event.message


def test_nothing_is_said_before_the_welcome() -> None:
    server = ServerConnection()
    with pytest.raises(LocalProtocolError):
        server.send(WELCOME)
    server.receive(sent(HELLO) + sent(ASK))
    with pytest.raises(LocalProtocolError, match="GREETED"):
        server.send(STARTED)
    server.send(WELCOME)
    assert server.send(STARTED) == sent(STARTED)
    with pytest.raises(LocalProtocolError):
        server.send(WELCOME)


# --- the daemon's end: how a connection ends ----------------------------------------------------


OFFENCES = pytest.mark.parametrize(
    "offence",
    [
        b"\x80\x00\x00\x00",
        b"\x00\x00\x00\x00",
        sent([1]),
        sent({"t": "x", "id": 1}),
        sent({"t": "status"}),
        sent({"t": "status", "id": 2, "x": 1}),
    ],
)


@OFFENCES
def test_after_an_offence_nothing_is_heard(offence: bytes) -> None:
    server = server_asked(ASK)
    (event,) = server.receive(offence + sent(m.Whoami(id=2)))
    assert isinstance(event, Offence)
    assert server.receive(sent(m.Whoami(id=3))) == []
    assert server.send(failed(Reason.PROTOCOL, None))
    with pytest.raises(LocalProtocolError, match="OVER"):
        server.send(STARTED)
    with pytest.raises(LocalProtocolError):
        server.send(failed(Reason.PROTOCOL, None))


@OFFENCES
def test_what_came_before_an_offence_in_the_same_bytes_can_be_answered(offence: bytes) -> None:
    server = ServerConnection(built=KNOWN)
    who = m.Whoami(id=2)
    *before, last = server.receive(sent(HELLO) + sent(ASK) + sent(who) + offence)
    assert before == [HelloReceived(HELLO), RequestReceived(ASK), RequestReceived(who)]
    assert isinstance(last, Offence)
    assert server.send(WELCOME)
    assert server.send(STARTED)
    assert server.send(failed(Reason.PROTOCOL, None))


def test_an_offence_gives_back_what_was_held() -> None:
    server = server_open()
    server.receive(frame(bytes(1000))[:500])
    assert (server.incomplete, server.buffered_bytes) == (True, 500)
    assert server.frames == 1
    assert isinstance(server.receive(bytes(504) + b"\xff\xff\xff\xff")[-1], Offence)
    assert (server.incomplete, server.buffered_bytes) == (False, 0)


def test_after_the_last_word_nothing_is_heard() -> None:
    server = server_asked(ASK)
    server.send(failed(Reason.SHUTTING_DOWN, None))
    assert server.receive(sent(m.Whoami(id=2)) + b"\xff\xff\xff\xff") == []
    assert server.stage is Stage.OVER


def test_a_peer_can_be_turned_away_before_it_says_anything() -> None:
    assert ServerConnection().send(failed(Reason.PEER_QUOTA, None))


# --- the daemon's end: requests and ids ---------------------------------------------------------


def test_an_id_lives_from_its_request_to_its_end() -> None:
    server = server_asked(ASK)
    for message in (STARTED, CHUNK, m.Paused(id=1), m.Resumed(id=1), CHUNK):
        assert server.send(message) == sent(message)
        assert server.live == 1
    server.send(DONE)
    assert server.live == 0
    with pytest.raises(LocalProtocolError, match="not live"):
        server.send(CHUNK)
    assert server.receive(sent(ASK)) == [RequestReceived(ASK)]


@pytest.mark.parametrize(
    "message", [CHUNK, DONE, m.Resumed(id=1), m.Counted(id=1, n_tok=1, exact=True)]
)
def test_answers_out_of_place_are_our_bug(message: m.DaemonMessage) -> None:
    server = server_asked(ASK)
    with pytest.raises(LocalProtocolError, match="generate that is WAITING"):
        server.send(message)
    assert server.send(STARTED)


def test_a_second_request_with_a_live_id_ends_both() -> None:
    server = server_asked(ASK)
    server.send(STARTED)
    (event,) = server.receive(sent(m.Whoami(id=1)))
    assert isinstance(event, InvalidRequest)
    assert (event.id, event.reason, event.path, event.ends_live) == (1, Reason.INVALID, "id", True)
    server.send(failed(Reason.INVALID))
    assert server.live == 0
    assert server.receive(sent(ASK)) == [RequestReceived(ASK)]


def test_each_use_of_an_id_in_the_same_bytes_can_be_answered() -> None:
    server = server_open()
    first, second, third = server.receive(sent(ASK) + sent(ASK) + sent({"t": "load", "id": 1}))
    assert first == RequestReceived(ASK)
    for event in (second, third):
        assert isinstance(event, InvalidRequest)
        assert event.ends_live
    for reason in (Reason.TOKENS_FULL, Reason.INVALID, Reason.INVALID):
        assert server.send(failed(reason))
    with pytest.raises(LocalProtocolError):
        server.send(failed(Reason.TOKENS_FULL))


def test_an_invalid_request_holds_its_id_until_it_is_refused() -> None:
    server = server_open()
    bad = {"t": "generate", "id": 1, "prompt": "Hi", "params": {"temperature": 9}}
    (event,) = server.receive(sent(bad))
    assert event == InvalidRequest(
        1,
        Reason.INVALID,
        "params.temperature",
        "params.temperature is wrong: expected `float` <= 2.0",
    )
    assert server.is_live(1)
    server.send(failed(Reason.INVALID))
    assert not server.is_live(1)
    assert server.receive(sent(m.Whoami(id=2))) == [RequestReceived(m.Whoami(id=2))]


def test_a_semantic_mistake_is_invalid_too() -> None:
    (event,) = server_open().receive(sent({"t": "generate", "id": 1}))
    assert isinstance(event, InvalidRequest)
    assert event.path == "prompt"


def test_a_verb_without_its_feature_is_unsupported_whatever_it_holds() -> None:
    for message in (m.Load(id=1, model="m"), {"t": "load", "id": 1, "model": 5}):
        server = server_open(built=frozenset({"v1"}))
        (event,) = server.receive(sent(message))
        assert isinstance(event, InvalidRequest)
        assert (event.reason, event.path) == (Reason.UNSUPPORTED, None)
        assert "feature load" in event.message
        server.send(failed(Reason.UNSUPPORTED))
        assert server.live == 0


# --- the daemon's end: cancel and settle --------------------------------------------------------


def test_a_cancel_names_an_id_and_claims_none() -> None:
    server = server_asked(ASK, m.Cancel(id=1), m.Cancel(id=99))
    server.send(m.Ack(id=99, verb="cancel", applied=False))
    server.send(m.Ack(id=1, verb="cancel"))
    assert server.is_live(1)
    assert not server.is_live(99)
    server.send(failed())
    assert server.live == 0
    server.send(m.Ack(id=1, verb="cancel", applied=False))


def test_a_lease_ends_with_the_ack_of_its_settle() -> None:
    server = server_asked(m.Lease(id=1, prompt_tok=1, max_tok=1), m.Settle(id=1))
    server.send(m.Ack(id=1, verb="settle", applied=False))
    server.send(STARTED)
    server.send(m.Ack(id=1, verb="settle"))
    assert server.live == 0


def test_a_settle_that_cannot_be_read_ends_its_lease() -> None:
    server = server_asked(m.Lease(id=1, prompt_tok=1, max_tok=1))
    server.send(STARTED)
    (event,) = server.receive(sent({"t": "settle", "id": 1, "usage": 5}))
    assert isinstance(event, InvalidRequest)
    assert (event.path, event.ends_live) == ("usage", True)
    server.send(failed(Reason.INVALID))
    assert server.live == 0


def test_a_settle_of_a_lease_that_is_refused_itself_has_nothing_to_do() -> None:
    server = server_open(frozenset({"v1"}))
    first, second = server.receive(
        sent(m.Lease(id=1, prompt_tok=1, max_tok=1)) + sent({"t": "settle", "id": 1, "usage": 5})
    )
    assert isinstance(first, InvalidRequest)
    assert second == RequestReceived(m.Settle(id=1))


@pytest.mark.parametrize("settle", [{}, {"usage": 5}, {"usage": {"prompt_tok": -1}}])
@pytest.mark.parametrize("built", [KNOWN, frozenset({"v1"})])
def test_a_settle_of_what_is_no_lease_has_nothing_to_do(
    settle: dict[str, Any], built: frozenset[str]
) -> None:
    """Whatever is wrong with it: its `failed` would end a request that it has nothing to do with,
    or be ignored by a client that waits for an `ack`."""
    server = server_open(built)
    server.receive(sent(ASK))
    for request_id in (1, 2):
        (event,) = server.receive(sent({"t": "settle", "id": request_id} | settle))
        assert isinstance(event, RequestReceived)
        assert isinstance(event.message, m.Settle)
        assert event.message.id == request_id
        assert server.send(m.Ack(id=request_id, verb="settle", applied=False))
    assert server.is_live(1)
    assert not server.is_live(2)


# --- the daemon's end: what cannot be sent ------------------------------------------------------


def test_a_message_that_no_frame_holds_changes_nothing() -> None:
    server = ServerConnection(400)
    server.receive(sent(HELLO) + sent(ASK))
    server.send(WELCOME)
    server.send(STARTED)
    with pytest.raises(FrameTooLarge, match="a frame holds 400"):
        server.send(m.Chunk(id=1, n_tok=1, text="x" * 400))
    assert server.send(failed(Reason.TOO_LARGE))


def test_a_message_that_cannot_be_encoded_is_our_bug() -> None:
    server = server_asked(ASK)
    server.send(STARTED)
    with pytest.raises(LocalProtocolError, match="encoded"):
        server.send(m.Chunk(id=1, n_tok=1, text="\ud800"))
    assert server.send(CHUNK)


# --- the client's end ---------------------------------------------------------------------------


def test_a_client_says_hello_once_and_first() -> None:
    client = ClientConnection()
    with pytest.raises(LocalProtocolError, match="NEW"):
        client.send(ASK)
    assert client.send(HELLO) == sent(HELLO)
    with pytest.raises(LocalProtocolError):
        client.send(HELLO)
    assert client.send(ASK) == sent(ASK)
    assert client.receive(sent(WELCOME)) == [WELCOME]
    assert client.welcome == WELCOME
    with pytest.raises(LocalProtocolError):
        client.send(HELLO)


def test_a_client_uses_an_id_once_at_a_time() -> None:
    client = client_open()
    client.send(ASK)
    with pytest.raises(LocalProtocolError, match="in use"):
        client.send(m.Whoami(id=1))
    client.send(m.Cancel(id=1))
    assert client.receive(sent(STARTED) + sent(CHUNK) + sent(DONE)) == [STARTED, CHUNK, DONE]
    assert client.live == 0
    client.send(m.Whoami(id=1))


def endless() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    schema["again"] = schema
    return schema


@pytest.mark.parametrize("schema", [{"a": object()}, {"a": 2**70}, {"a": "\ud800"}, endless()])
def test_a_request_that_cannot_be_encoded_claims_no_id(schema: dict[str, Any]) -> None:
    client = client_open()
    tool = Tool(function=FunctionSpec(name="f", parameters=schema))
    with pytest.raises(LocalProtocolError, match="encoded"):
        client.send(m.Generate(id=1, prompt="a", tools=[tool]))
    assert client.live == 0


@pytest.mark.parametrize(
    "stranger",
    [
        {"t": "from_tomorrow", "id": 1, "x": b""},
        {"t": "from_tomorrow"},
        {"t": "chunk", "id": 9, "n_tok": 1},
        {"t": "counted", "id": 1, "n_tok": 1, "exact": True},
        {"t": "failed", "id": 9, "reason": "x", "message": "", "retryable": True, "phase": "x"},
        {"t": "ack", "id": 9, "verb": "pause"},
    ],
)
def test_a_client_ignores_what_it_does_not_know_or_wait_for(stranger: dict[str, Any]) -> None:
    client = client_open()
    client.send(ASK)
    assert client.receive(sent(stranger) + sent(STARTED)) == [STARTED]
    assert client.live == 1


def test_a_client_reads_newer_messages() -> None:
    client = client_open()
    client.send(ASK)
    client.receive(sent(STARTED))
    newer = msgspec.to_builtins(DONE) | {"finish_reason": "tomorrow", "x": {"y": [1]}}
    newer["usage"]["x"] = 1
    (message,) = client.receive(sent(newer))
    assert isinstance(message, m.Done)
    assert message.finish_reason == "tomorrow"
    assert client.live == 0


def test_a_client_is_told_of_every_cancel() -> None:
    client = client_open()
    ack = m.Ack(id=5, verb="cancel", applied=False)
    assert client.receive(sent(ack)) == [ack]


def test_an_ack_of_cancel_ends_nothing_and_one_of_settle_does() -> None:
    client = client_open()
    client.send(m.Lease(id=1, prompt_tok=1, max_tok=1))
    client.receive(sent(STARTED) + sent(m.Ack(id=1, verb="cancel")))
    client.receive(sent(m.Ack(id=1, verb="settle", applied=False)))
    assert client.live == 1
    client.receive(sent(m.Ack(id=1, verb="settle")))
    assert client.live == 0


def test_the_last_word_ends_a_clients_connection() -> None:
    client = client_open()
    last = failed(Reason.SHUTTING_DOWN, None)
    assert client.receive(sent(last) + sent(CHUNK) + sent([1])) == [last]
    assert client.receive(b"\xff\xff\xff\xff") == []
    with pytest.raises(LocalProtocolError, match="OVER"):
        client.send(ASK)


def test_a_client_can_be_turned_away_before_its_hello() -> None:
    last = failed(Reason.PEER_QUOTA, None)
    assert ClientConnection().receive(sent(last)) == [last]


@pytest.mark.parametrize(
    "broken",
    [
        b"\xff\xff\xff\xff",
        sent([1]),
        sent({"id": 1}),
        sent({"t": 1}),
        sent({"t": "chunk", "id": 1}),
        sent(WELCOME),
        frame(msgpack.encode({"t": "x", "a": None})[:-1] + b"\x91" * 100_000 + b"\xc0"),
    ],
    ids=range(7),
)
def test_a_broken_daemon_ends_a_clients_connection(broken: bytes) -> None:
    client = client_open()
    client.send(ASK)
    with pytest.raises(RemoteProtocolError):
        client.receive(broken)
    assert client.receive(sent(STARTED)) == []
    with pytest.raises(LocalProtocolError):
        client.send(m.Whoami(id=2))


def test_an_answer_before_the_welcome_is_broken() -> None:
    client = ClientConnection()
    client.send(HELLO)
    client.send(ASK)
    with pytest.raises(RemoteProtocolError, match="before welcome"):
        client.receive(sent(STARTED))


# --- together -----------------------------------------------------------------------------------


def test_both_ends_agree_on_a_whole_conversation() -> None:
    client, server = ClientConnection(), ServerConnection()
    reader = FrameReader(1 << 20)
    assert server.receive(client.send(HELLO))
    assert client.receive(server.send(WELCOME))
    server.receive(client.send(ASK) + client.send(m.Whoami(id=2)))
    for message in (STARTED, CHUNK, DONE):
        data = server.send(message)
        assert client.receive(data) == [message]
        assert list(reader.feed(data)) == [msgpack.encode(message)]
        assert client.is_live(1) == server.is_live(1)
    assert client.is_live(2)
    assert server.is_live(2)
