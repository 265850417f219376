import socket

import msgspec
import pytest

from onegate.engines.base import EngineCapacity, PoolInfo, PoolState, Reservation
from onegate.engines.host import greeting
from onegate.engines.host.greeting import WireDiffers, first_frames, hello_of, read_attach
from onegate.engines.host.outbox import DaemonGone
from onegate.engines.host.wire import WIRE, Attach, FromHost, HostHello
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader, frame


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_the_first_frame_and_what_came_with_it(ends):
    ours, theirs = ends
    parts = [frame(b"one")[:3], frame(b"one")[3:] + frame(b"two")]

    def readable(timeout_s):
        assert 0 < timeout_s <= 60
        ours.sendall(parts.pop(0))
        return True

    assert first_frames(theirs, FrameReader(100), readable) == [b"one", b"two"]


def test_a_turn_without_anything_is_another_turn(ends):
    ours, theirs = ends
    turns = []

    def readable(timeout_s):
        turns.append(timeout_s)
        if len(turns) == 3:
            ours.sendall(frame(b"x"))
        return len(turns) == 3

    assert first_frames(theirs, FrameReader(100), readable) == [b"x"]


def test_a_connection_that_ends_before_it_says_anything(ends):
    ours, theirs = ends
    ours.close()
    with pytest.raises(DaemonGone):
        first_frames(theirs, FrameReader(100), lambda timeout_s: True)


def test_one_that_says_nothing_is_not_waited_for_for_ever(ends, monkeypatch):
    _, theirs = ends
    clock = iter(range(0, 10**12, 10**10))
    monkeypatch.setattr(greeting, "monotonic_ns", lambda: next(clock))
    turns = []
    with pytest.raises(DaemonGone, match="never said"):
        first_frames(theirs, FrameReader(100), lambda timeout_s: bool(turns.append(timeout_s)))
    assert turns == [50.0, 40.0, 30.0, 20.0, 10.0]


def test_attach_is_read_strictly(ends):
    _, theirs = ends
    attach = Attach(wire=WIRE, daemon_pid=7, engine={"kind": "k"})
    assert read_attach(theirs, msgspec.msgpack.encode(attach)) == attach
    more = msgspec.to_builtins(attach) | {"new": 1}
    for payload in (
        msgspec.msgpack.encode(more),
        msgspec.msgpack.encode({**more, "engine": {"x": "y" * 300_000}}),
        b"\x82\xa1t\xa6attach\xa6engine\x81\xa1x" + b"\x91" * 100_000 + b"\xc0",
    ):
        with pytest.raises(RemoteProtocolError):
            read_attach(theirs, payload)


def test_what_settings_never_are_is_not_taken_apart(ends):
    _, theirs = ends
    attach = Attach(wire=WIRE, daemon_pid=7, engine={"x": [[]] * 300_000})
    with pytest.raises(RemoteProtocolError, match="bytes"):
        read_attach(theirs, msgspec.msgpack.encode(attach))


def test_another_wire_is_answered_in_a_form_that_both_know(ends):
    ours, theirs = ends
    later = {"t": "attach", "wire": WIRE + 1, "new": {}}
    with pytest.raises(WireDiffers):
        read_attach(theirs, msgspec.msgpack.encode(later))
    (payload,) = FrameReader(1000).feed(ours.recv(1000))
    hello = msgspec.msgpack.decode(payload, type=FromHost)
    assert isinstance(hello, HostHello)
    assert (hello.wire, hello.pools) == (WIRE, [])


def test_who_we_are():
    capacity = EngineCapacity(max_seqs=1, max_context_tok=1, reservation=Reservation.GROW)
    pool = PoolInfo(model="m", state=PoolState.READY, capacity=capacity)

    class Engine:
        kind = "k"
        version = "2"

        def pools(self):
            return [pool]

    hello = hello_of(Engine())
    assert (hello.wire, hello.kind, hello.version, hello.pools) == (WIRE, "k", "2", [pool])
