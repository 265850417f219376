"""How a daemon and its host begin: `Attach`, and who answers it."""

import os
import socket
from collections.abc import Callable

import msgspec

from onegate.clock import monotonic_ns
from onegate.engines.host.engine import HostEngine
from onegate.engines.host.outbox import DaemonGone
from onegate.engines.host.wire import WIRE, Attach, HostHello, read
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader, frame

_ATTACH_TIMEOUT_NS = 60_000_000_000
_NS_PER_S = 1e9
# Settings are a few numbers and names. What any JSON can be costs a hundred times in memory.
_MAX_ATTACH_BYTES = 256 * 1024


class WireDiffers(Exception):
    """The daemon speaks another version of the wire."""


class _Greeting(msgspec.Struct, tag_field="t", tag="attach"):
    """The one part of `Attach` that every version of the wire has."""

    wire: int


_GREETING = msgspec.msgpack.Decoder(_Greeting)
_ATTACH = msgspec.msgpack.Decoder(Attach)


def first_frames(
    sock: socket.socket, reader: FrameReader, readable: Callable[[float], bool]
) -> list[bytes]:
    """What the daemon says first, and what came together with it.

    `readable(timeout_s)` waits for the socket, at most so long. Raises DaemonGone at the end of
    the connection, or for one that says nothing for a minute.
    """
    ends_ns = monotonic_ns() + _ATTACH_TIMEOUT_NS
    while (left_ns := ends_ns - monotonic_ns()) > 0:
        if not readable(left_ns / _NS_PER_S):
            continue
        data = sock.recv(1 << 16)
        if not data:
            raise DaemonGone("end of file")
        if frames := list(reader.feed(data)):
            return frames
    raise DaemonGone("it never said what it wants")


def read_attach(sock: socket.socket, payload: bytes) -> Attach:
    """The daemon's `Attach`.

    Raises RemoteProtocolError for something else, and WireDiffers, once the daemon has been told
    in a form that both know: it compares, too, and has us started anew.
    """
    if len(payload) > _MAX_ATTACH_BYTES:
        raise RemoteProtocolError(f"the first message has {len(payload)} bytes")
    greeting = read(_GREETING, payload)
    if greeting.wire != WIRE:
        hello = HostHello(wire=WIRE, pid=os.getpid(), kind="", version="", pools=[])
        sock.sendall(frame(msgspec.msgpack.encode(hello)))
        raise WireDiffers(f"the daemon speaks wire {greeting.wire}, this host {WIRE}")
    return read(_ATTACH, payload)


def hello_of(engine: HostEngine) -> HostHello:
    """Who we are, and what there is."""
    return HostHello(
        wire=WIRE,
        pid=os.getpid(),
        kind=engine.kind,
        version=engine.version,
        pools=engine.pools(),
    )
