"""`python -m onegate.engines.host`: one engine in a process of its own.

`--fd N`: started by the daemon with one end of a socket pair, in a process group of its own. It
ends with the daemon: at end of file on the socket, and by a signal of the kernel where it cannot
look. `--listen PATH`: a service that daemons attach to, one after the other, and that outlives
them with its model loaded. It ends with 75 or 76 when only a new process can serve the next one
(other settings, another version of the wire), and wants to be started anew.
"""

import argparse
import ctypes
import os
import pwd
import secrets
import signal
import socket
import sys

import msgspec

from onegate.engines.host.build import build_engine
from onegate.engines.host.desk import EXIT_OK
from onegate.engines.host.greeting import (
    WireDiffers,
    first_frames,
    hello_of,
    read_attach,
)
from onegate.engines.host.heart import Heart
from onegate.engines.host.listen import CannotListen, Listener, readable
from onegate.engines.host.loop import EXIT_PROTOCOL, HostLoop
from onegate.engines.host.notify import Notifier
from onegate.engines.host.outbox import DaemonGone
from onegate.engines.host.processes import MARK
from onegate.engines.host.service import Service
from onegate.engines.host.settings import read_settings
from onegate.engines.host.wire import MAX_TO_HOST_BYTES
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader

_PR_SET_PDEATHSIG = 1
_EXIT_CANNOT_LISTEN = 73  # EX_CANTCREAT
_EXIT_CONFIG = 78


def main(arguments: list[str]) -> int:
    """Serve one daemon, or one after the other; the exit code follows sysexits."""
    parser = argparse.ArgumentParser(prog="onegate.engines.host")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int, help="one end of a connected socket pair")
    where.add_argument("--listen", metavar="PATH", help="where daemons connect")
    parser.add_argument(
        "--peer-uid",
        metavar="UID",
        type=_uid,
        nargs="+",
        action="extend",
        help="users who may connect, by number or name; without it the one that runs this",
    )
    options = parser.parse_args(arguments)
    if options.listen is not None:
        return _listen(options.listen, frozenset(options.peer_uid or [os.geteuid()]))
    _die_with_the_daemon()
    # What the engine starts must not hold the connection open when this process has gone.
    os.set_inheritable(options.fd, False)
    # Ctrl-C in the daemon's terminal is the daemon's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=options.fd) as sock:
        try:
            return _serve(sock)
        except RemoteProtocolError as error:
            sys.stderr.write(f"the daemon broke the wire: {error}\n")
            return EXIT_PROTOCOL
        except (DaemonGone, ConnectionError):
            return EXIT_OK


def _listen(path: str, uids: frozenset[int]) -> int:
    # Stopped by the service manager or Ctrl-C, also inside a step: nothing here needs an end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ[MARK] = secrets.token_hex(8)
    notifier = Notifier.from_environ(os.environ, os.getpid())
    try:
        listener = Listener(path, uids)
    except CannotListen as error:
        sys.stderr.write(f"{error}\n")
        return _EXIT_CANNOT_LISTEN
    return Service(listener, notifier).run()


def _serve(sock: socket.socket) -> int:
    reader = FrameReader(MAX_TO_HOST_BYTES)
    first, *early = first_frames(sock, reader, lambda timeout_s: readable(sock, timeout_s))
    try:
        attach = read_attach(sock, first)
    except WireDiffers:
        return EXIT_PROTOCOL
    try:
        settings = read_settings(attach.engine)
    except msgspec.ValidationError as error:
        sys.stderr.write(f"the engine's settings are wrong: {error}\n")
        return _EXIT_CONFIG
    engine = build_engine(settings, hang_up=lambda: sock.shutdown(socket.SHUT_RDWR))
    loop = HostLoop(sock, engine, reader, Notifier())
    loop.outbox.post(hello_of(engine))

    def leave() -> None:
        engine.close()
        os._exit(EXIT_OK)

    try:
        # A step that never ends ends with the daemon nevertheless.
        with Heart(loop.beat, gone=leave):
            return loop.run(early)
    finally:
        engine.close()


def _uid(text: str) -> int:
    """A uid as a number, or of a user's name, which only the machine knows the number of."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"there is no user {text!a}") from error


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
