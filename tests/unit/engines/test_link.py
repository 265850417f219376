import msgspec
import pytest

from onegate.engines.base import EngineMalformed, EngineRefused
from onegate.engines.host.wire import MAX_TO_HOST_BYTES, Abort, CallDone, CountCall, ToHost
from onegate.engines.link import MAX_FRAME_BYTES, Link
from onegate.protocol.framing import FrameReader, frame


class Transport:
    def __init__(self):
        self.written = b""
        self.aborted = False

    def write(self, data):
        self.written += data

    def is_closing(self):
        return self.aborted

    def abort(self):
        self.aborted = True


def encoded(message):
    return frame(msgspec.msgpack.encode(message))


@pytest.fixture
def heard():
    return []


@pytest.fixture
async def link(heard):
    link = Link(heard.append)
    link.transport = Transport()
    link.connection_made(link.transport)
    return link


async def test_messages_both_ways(link, heard):
    data = encoded(CallDone(call=1)) + encoded(CallDone(call=2))
    for byte in data:
        link.data_received(bytes([byte]))
    assert heard == [CallDone(call=1), CallDone(call=2)]
    link.send(Abort(id=5))
    (payload,) = FrameReader(100).feed(link.transport.written)
    assert msgspec.msgpack.decode(payload, type=ToHost) == Abort(id=5)


async def test_what_is_too_long_for_the_host_is_not_sent(link):
    prompt = "x" * (MAX_TO_HOST_BYTES - 100)
    link.send(CountCall(call=1, model="m", prompt=prompt))
    written = len(link.transport.written)
    assert MAX_TO_HOST_BYTES - 100 < written <= MAX_TO_HOST_BYTES + 4
    with pytest.raises(EngineRefused, match=str(MAX_TO_HOST_BYTES)):
        link.send(CountCall(call=1, model="m", prompt=prompt + "x" * 100))
    assert len(link.transport.written) == written


@pytest.mark.parametrize(
    "data",
    [
        frame(b"\xc1"),
        frame(b"\x80"),
        frame(msgspec.msgpack.encode({"t": "freed"})),
        frame(msgspec.msgpack.encode({"t": "call_done", "call": 1, "extra": 1})),
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        bytes(4),
        frame(b"\x82\xa1t\xa4step\xa1n" + b"\x91" * 100_000 + b"\xc0"),
        frame(b"\x81\xa1t" + b"\x91" * 100_000 + b"\xc0"),
    ],
)
async def test_bytes_that_are_no_message_end_it(link, heard, data):
    link.data_received(encoded(CallDone(call=1)) + data)
    assert heard == [CallDone(call=1)]
    assert isinstance(link.lost.result(), EngineMalformed)
    assert link.transport.aborted
    link.data_received(encoded(CallDone(call=2)))
    assert heard == [CallDone(call=1)]
    link.connection_lost(None)


POOL = {"model": "m", "state": "ready"}
CAPACITY = {"max_seqs": 1, "max_context_tok": 1, "reservation": "grow"}


@pytest.mark.parametrize(
    "message",
    [
        {"t": "pool", "pool": {**POOL, "capacity": CAPACITY, "switch_cost_ms": float("nan")}},
        {"t": "pool", "pool": {**POOL, "capacity": CAPACITY, "load_ms": float("inf")}},
        {"t": "pool", "pool": {**POOL, "capacity": {**CAPACITY, "max_seqs": 0}}},
        {"t": "pool", "pool": {**POOL, "capacity": {**CAPACITY, "kv_tok": -1}}},
        {"t": "step", "n": -1},
        {"t": "step", "n": 1, "freed": [2**64 - 1]},
        {"t": "step", "n": 1, "snapshot": {"model": "m", "step_ms_p50": float("nan")}},
        {"t": "step", "n": 1, "outputs": [{"id": 1, "chunk": {"type": "chunk", "n_tok": -3}}]},
        {"t": "accepted", "id": 1, "prompt_tok": -1},
        {"t": "heartbeat", "steps": -1, "busy": False},
    ],
    ids=str,
)
async def test_figures_that_are_none_end_it(link, heard, message):
    link.data_received(frame(msgspec.msgpack.encode(message)))
    assert heard == []
    assert isinstance(link.lost.result(), EngineMalformed)


async def test_the_offence_does_not_quote_what_was_said(link):
    secret = frame(msgspec.msgpack.encode({"t": "my secret answer"}))
    link.data_received(secret)
    assert "secret" not in str(link.lost.result())


async def test_a_message_out_of_place_ends_it():
    def refuse(message):
        raise EngineMalformed("out of place")

    link = Link(refuse)
    link.connection_made(Transport())
    link.data_received(encoded(CallDone(call=1)))
    assert str(link.lost.result()) == "out of place"


async def test_the_end_of_the_host_is_no_offence(link):
    link.connection_lost(None)
    assert link.lost.result() is None


async def test_after_the_end_messages_go_nowhere(link):
    link.abort()
    link.send(Abort(id=1))
    assert link.transport.written == b""


async def test_before_there_is_a_connection_too(heard):
    link = Link(heard.append)
    link.send(Abort(id=1))
    link.abort()
