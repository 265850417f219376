"""`python -m onegate.engines.host --fd N`: one engine in a process of its own.

The daemon starts it with one end of a socket pair, in a process group of its own. It ends with the
daemon: at end of file on the socket, and by a signal of the kernel where it cannot look.
"""

import argparse
import ctypes
import importlib.metadata
import os
import signal
import socket
import sys
import threading

import msgspec

from onegate.engines.host.desk import EXIT_OK
from onegate.engines.host.engine import HostEngine
from onegate.engines.host.loop import EXIT_PROTOCOL, MAX_FRAME_BYTES, HostLoop
from onegate.engines.host.outbox import DaemonGone
from onegate.engines.host.settings import OpenVinoSettings, read_settings
from onegate.engines.host.wire import WIRE, Attach, HostHello
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader, frame

_PR_SET_PDEATHSIG = 1
_ATTACH_TIMEOUT_S = 60.0
_HEARTBEAT_S = 1.0
_EXIT_CONFIG = 78


class _Greeting(msgspec.Struct, tag_field="t", tag="attach"):
    """The one part of `Attach` that every version of the wire has."""

    wire: int


def main(arguments: list[str]) -> int:
    """Serve one daemon; the exit code follows sysexits."""
    parser = argparse.ArgumentParser(prog="onegate.engines.host")
    parser.add_argument("--fd", type=int, required=True, help="one end of a connected socket pair")
    options = parser.parse_args(arguments)
    _die_with_the_daemon()
    # Ctrl-C in the daemon's terminal is the daemon's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=options.fd) as sock:
        try:
            return _serve(sock)
        except (RemoteProtocolError, msgspec.DecodeError) as error:
            sys.stderr.write(f"the daemon broke the wire: {type(error).__name__}\n")
            return EXIT_PROTOCOL
        except (DaemonGone, TimeoutError, ConnectionError):
            return EXIT_OK


def _serve(sock: socket.socket) -> int:
    reader = FrameReader(MAX_FRAME_BYTES)
    first, *early = _first_frames(sock, reader)
    greeting = msgspec.msgpack.decode(first, type=_Greeting)
    if greeting.wire != WIRE:
        # Said in a form that both know: the other side compares, too, and starts us anew.
        hello = HostHello(wire=WIRE, pid=os.getpid(), kind="", version="", pools=[])
        sock.sendall(frame(msgspec.msgpack.encode(hello)))
        return EXIT_PROTOCOL
    attach = msgspec.msgpack.decode(first, type=Attach)
    try:
        engine = _engine(attach, sock)
    except msgspec.ValidationError as error:
        sys.stderr.write(f"the engine's settings are wrong: {error}\n")
        return _EXIT_CONFIG
    loop = HostLoop(sock, engine, reader)
    loop.outbox.post(
        HostHello(
            wire=WIRE,
            pid=os.getpid(),
            kind=engine.kind,
            version=engine.version,
            pools=engine.pools(),
        )
    )
    threading.Thread(target=_beat, args=(loop,), name="heartbeat", daemon=True).start()
    return loop.run(early)


def _first_frames(sock: socket.socket, reader: FrameReader) -> list[bytes]:
    sock.settimeout(_ATTACH_TIMEOUT_S)
    while True:
        data = sock.recv(1 << 16)
        if not data:
            raise DaemonGone("end of file")
        if frames := list(reader.feed(data)):
            return frames


def _engine(attach: Attach, sock: socket.socket) -> HostEngine:
    settings = read_settings(attach.engine)
    if isinstance(settings, OpenVinoSettings):
        from onegate.engines.host.embedded import EmbeddedEngine
        from onegate.engines.host.openvino import open_pipeline

        return EmbeddedEngine(settings, open_pipeline, version=_version("openvino-genai"))
    from onegate.engines.host.scripted import ScriptedEngine

    return ScriptedEngine(settings, hang_up=lambda: sock.shutdown(socket.SHUT_RDWR))


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _beat(loop: HostLoop) -> None:
    """From a second thread, so that the process is seen to live during a long step."""
    pause = threading.Event()
    while not pause.wait(_HEARTBEAT_S):
        try:
            loop.outbox.post(loop.heartbeat())
        except DaemonGone:
            # The loop's own thread may be inside a step that never ends.
            os._exit(EXIT_OK)


def _die_with_the_daemon() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.stderr.write("the kernel will not end this process with the daemon\n")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by way of the interpreter's end: native libraries hang or crash in their own.
    os._exit(code)
