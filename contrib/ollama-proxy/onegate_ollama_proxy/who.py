"""Who is at the other end of a TCP connection on this machine, by the kernel's word.

The kernel is asked about the client's own socket, once, right after accept: later that socket may
be closed, and a closed one answers with uid 0. It is never asked for a process: pids are used
again, and a socket may have several owners. What it says is the uid that made the socket and the
cgroup that it was made in. Clients in another network namespace, which is where containers are,
have no socket here: of them nothing is known.
"""

import os
import socket
import struct
from dataclasses import dataclass
from typing import Final, Protocol

from onegate.cgroup import Place, place_of

# linux/sock_diag.h, linux/inet_diag.h; the structs are in the machine's own byte order, the ports
# in the network's.
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_INET_DIAG_CGROUP_ID: Final = 21
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBBI")
_SOCKET_ID: Final = struct.Struct("=2s2s16s16sI8s")
_NO_COOKIE: Final = b"\xff" * 8
_ALL_STATES: Final = 0xFFFF_FFFF
# Where uid and inode stand, and where the attributes begin, from the start of the message.
_OWNER_AT: Final = 16 + 4 + 48 + 12
_ATTRIBUTES_AT: Final = 88
_MAX_ANSWER_BYTES: Final = 8192

# Groups that are remembered; a machine has some hundred, and each is two short strings.
_MAX_PLACES: Final = 4096


@dataclass(frozen=True, slots=True)
class Who:
    """What is known of a client. `uid` None: nothing is."""

    uid: int | None = None
    unit: str | None = None
    slice: str | None = None


NOBODY: Final = Who()


class Kernel(Protocol):
    """What the kernel is asked."""

    def owner(self, family: int, client: bytes, server: bytes) -> bytes | None:
        """The answer about a socket; None where there is none."""

    def cgroups(self) -> dict[int, str]:
        """Every cgroup of version 2 there is now: its id, and its path below the root."""


class Clients:
    """Answers who a client is. One per process; it keeps a netlink socket and what it learned."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._places: dict[int, Place | None] = {}

    def who(self, connection: socket.socket) -> Who:
        """The client of an accepted TCP connection. Never raises: what cannot be known is not."""
        try:
            client = _end(connection.family, connection.getpeername())
            server = _end(connection.family, connection.getsockname())
            if client is None or server is None:
                return NOBODY
            family, client_bytes = client
            answer = self._kernel.owner(family, client_bytes, server[1])
        except OSError:
            return NOBODY  # it has gone already, or the kernel has no sock_diag
        owner = None if answer is None else parse_answer(answer)
        if owner is None:
            return NOBODY
        uid, cgroup_id = owner
        place = self._place(cgroup_id)
        return Who(
            uid, None if place is None else place.unit, None if place is None else place.slice
        )

    def _place(self, cgroup_id: int | None) -> Place | None:
        """Where a cgroup is. An id is never given twice, so what was found holds for good."""
        # 1 is the root: everything is there where version 2 is not what systemd uses.
        if cgroup_id is None or cgroup_id <= 1:
            return None
        if cgroup_id not in self._places:
            self._places = {id: place_of(path) for id, path in self._kernel.cgroups().items()}
            # One that is not found now never will be, and is not looked for again.
            self._places.setdefault(cgroup_id, None)
        return self._places[cgroup_id]


def _end(family: int, address: tuple[str, int]) -> tuple[int, bytes] | None:
    """One end as (family, its port and address as the kernel has them)."""
    host, port = address[0], address[1]
    if family == socket.AF_INET6 and host.startswith("::ffff:"):
        # An IPv4 client of a listener for both is an IPv4 socket.
        family, host = socket.AF_INET, host.removeprefix("::ffff:")
    if family not in (socket.AF_INET, socket.AF_INET6):
        return None
    packed = socket.inet_pton(family, host.partition("%")[0])
    return family, struct.pack("!H", port) + packed.ljust(16, b"\0")


def parse_answer(answer: bytes) -> tuple[int, int | None] | None:
    """(uid, cgroup id) of a socket; None where the kernel does not know it (any more)."""
    if len(answer) < _ATTRIBUTES_AT or _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR:
        return None
    uid, inode = struct.unpack_from("=II", answer, _OWNER_AT)
    if inode == 0:
        return None  # closed: its owner is not there any more, and uid 0 is nobody's
    end = min(len(answer), _HEADER.unpack_from(answer)[0])
    at = _ATTRIBUTES_AT
    while at + 4 <= end:
        length, kind = struct.unpack_from("=HH", answer, at)
        if length < 4:
            break
        if kind == _INET_DIAG_CGROUP_ID and at + 12 <= end:
            return uid, int(struct.unpack_from("=Q", answer, at + 4)[0])
        at += (length + 3) & ~3
    return uid, None


class LinuxKernel:
    """The real one."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._sequence = 0

    def owner(self, family: int, client: bytes, server: bytes) -> bytes | None:
        if self._socket is None:
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._socket = socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG)
        self._sequence = (self._sequence + 1) & 0xFFFF_FFFF
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + _SOCKET_ID.pack(
            client[:2], server[:2], client[2:], server[2:], 0, _NO_COOKIE
        )
        header = _HEADER.pack(
            _HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._sequence, 0
        )
        self._socket.send(header + body)
        # The answer is there when send returns. One to an earlier question is not ours.
        while (answer := self._socket.recv(_MAX_ANSWER_BYTES)) and len(answer) >= _HEADER.size:
            if _HEADER.unpack_from(answer)[3] == self._sequence:
                return answer
        return None

    def cgroups(self) -> dict[int, str]:
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            if os.path.exists(f"{root}/cgroup.controllers"):
                return folders(root)
        return {}

    def close(self) -> None:
        """Close the netlink socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def folders(root: str) -> dict[int, str]:
    """Every folder below `root`: its inode, which is the id of a cgroup, and its path."""
    found: dict[int, str] = {}
    left = [root]
    while left and len(found) < _MAX_PLACES:
        folder = left.pop(0)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                        found[entry.inode()] = entry.path[len(root) :]
        except OSError:
            continue  # it was taken away while this looked
    return found
