"""A peer that writes whatever bytes a test wants and believes nothing: a plain blocking socket.

Messages are plain maps in both directions, so that what no client library would send can be sent
and every field that comes back can be looked at.
"""

import array
import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec

from onegate.protocol.framing import FrameReader, frame

Answer = dict[str, Any]

# What an answer of the daemon may be at most, with room for a test that turns the limit up.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

# The last message of a request. An `ack` of `cancel` is none; `Raw.end` knows.
ENDS = frozenset(
    {
        "done",
        "failed",
        "counted",
        "capacity_report",
        "status_report",
        "whoami_report",
        "metrics_report",
        "usage_report",
        "ack",
    }
)


def packed(message: object) -> bytes:
    """A message as one frame."""
    return frame(msgspec.msgpack.encode(message))


def hello(**fields: object) -> bytes:
    return packed({"t": "hello", "features": ["v1"], **fields})


def generate(id: int, prompt: str, **fields: object) -> bytes:
    return packed({"t": "generate", "id": id, "prompt": prompt, **fields})


class Raw:
    """One connection. `inbox` holds what has been read and not yet been asked for."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        sock.settimeout(timeout_s)
        self.sock = sock
        self.inbox: list[Answer] = []
        self.ended = False
        self._reader = FrameReader(MAX_ANSWER_BYTES)

    @classmethod
    def connect(cls, path: str, timeout_s: float) -> Self:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Blocking, for else a full backlog is an error at once.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 60, 0))
            sock.connect(path)
        except BaseException:
            sock.close()
            raise
        return cls(sock, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    # --- out ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        self.sock.sendall(data)

    def say(self, t: str, **fields: object) -> None:
        """One message. `class_` is the field `class`."""
        if "class_" in fields:
            fields["class"] = fields.pop("class_")
        self.write(packed({"t": t, **fields}))

    def greet(self, **fields: object) -> Answer:
        """Say hello; returns the welcome."""
        self.say("hello", **({"features": ["v1"]} | fields))
        return self.expect("welcome")

    def ask(self, id: int, prompt: str, **fields: object) -> None:
        """Send a `generate`."""
        self.say("generate", id=id, prompt=prompt, **fields)

    # --- in -----------------------------------------------------------------------------------

    def read(self) -> bool:
        """Take what is there, waiting for it; false at the end of the stream."""
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionResetError:
            data = b""  # closed with bytes of ours still unread: the end all the same
        self.ended = not data
        self.inbox += (msgspec.msgpack.decode(payload) for payload in self._reader.feed(data))
        return not self.ended

    def find(self, wanted: Callable[[Answer], bool]) -> Answer:
        """The next message that is wanted; what comes before it stays in the inbox."""
        seen = 0
        while True:
            for place in range(seen, len(self.inbox)):
                if wanted(self.inbox[place]):
                    return self.inbox.pop(place)
            seen = len(self.inbox)
            assert self.read(), f"end of file; not what was wanted: {self.inbox[-5:]}"

    def expect(self, t: str, id: int | None = None) -> Answer:
        """The next message of that tag (and id); a `failed` instead of it is shown."""
        found = self.find(
            lambda a: (
                a.get("id") == id and (a["t"] == t or a["t"] == "failed")
                if id is not None
                else a["t"] in (t, "failed")
            )
        )
        assert found["t"] == t, found
        return found

    def end(self, id: int) -> Answer:
        """The last message of a request."""
        return self.find(lambda a: a.get("id") == id and a["t"] in ENDS and not _acks_cancel(a))

    def text(self, id: int) -> str:
        """The text of a request that has ended, out of the inbox."""
        mine = [a for a in self.inbox if a.get("id") == id and a["t"] == "chunk"]
        self.inbox = [a for a in self.inbox if a not in mine]
        return "".join(a.get("text", "") for a in mine)

    def until_closed(self) -> list[Answer]:
        """Everything up to the end of the stream."""
        while self.read():
            pass
        found, self.inbox = self.inbox, []
        return found

    # --- questions ----------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The status document."""
        return self._ask_status(detail=False)["status"]

    def requests(self) -> list[dict[str, Any]]:
        """The live requests, as far as this peer may see them."""
        found: list[dict[str, Any]] = self._ask_status(detail=True)["requests"]
        return found

    def _ask_status(self, *, detail: bool) -> Answer:
        # The highest id there is: tests count theirs up from 1.
        self.say("status", id=2**32 - 1, detail=detail)
        return self.expect("status_report", 2**32 - 1)


def applied(ack: Answer) -> bool:
    """Whether a verb had something to do; what is left out is true."""
    return bool(ack.get("applied", True))


def _acks_cancel(answer: Answer) -> bool:
    return answer["t"] == "ack" and (
        answer["verb"] == "cancel" or (answer["verb"] == "settle" and not applied(answer))
    )


# --- other processes ------------------------------------------------------------------------------

# Changes the user by itself, because that user may not be allowed to run this interpreter, and
# hands the connection back: the kernel remembers who has made it.
_STRANGER = """
import array, os, socket, sys
path, uid, fd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
back = socket.socket(fileno=fd)
for _ in range(int(sys.argv[4])):
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    rights = array.array("i", [link.fileno()])
    back.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
sys.stdin.read()
"""


@contextlib.contextmanager
def strangers(path: str, uid: int, timeout_s: float, count: int = 1) -> Iterator[list[Raw]]:
    """Connections that a process of user `uid` has made. Needs root."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", "-c", _STRANGER, path, str(uid), str(theirs.fileno())]
    with (
        subprocess.Popen(
            [*command, str(count)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        ) as child,
        ours,
        contextlib.ExitStack() as opened,
    ):
        theirs.close()
        ours.settimeout(timeout_s)
        try:
            links = []
            for _ in range(count):
                _, ancillary, *_ = ours.recvmsg(1, socket.CMSG_SPACE(4))
                assert ancillary, f"uid {uid} could not connect to {path}"
                (fd,) = array.array("i", ancillary[0][2][:4])
                links.append(opened.enter_context(Raw(socket.socket(fileno=fd), timeout_s)))
            yield links
        finally:
            child.kill()


class Victim:
    """A connection that belongs to a process of its own, to be killed with it.

    The process reads what comes, or, where it does not `read`, only holds the connection.
    """

    def __init__(self, path: str, data: bytes, timeout_s: float, *, read: bool = True) -> None:
        with Raw.connect(path, timeout_s) as raw:
            raw.write(data)
            raw.sock.setblocking(True)  # for the other process, which knows of no timeout
            command = ["cat"] if read else ["sleep", "infinity"]
            self.process = subprocess.Popen(command, stdin=raw.sock, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """SIGKILL; the kernel closes the connection."""
        self.process.kill()
        self.process.wait()


def nothing_here(pid: int) -> bool:
    """Whether no process has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
