"""Who a client is, from answers as the kernel gives them, and from this machine's own."""

import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from onegate_ollama_proxy import who as module
from onegate_ollama_proxy.who import NOBODY, Clients, LinuxKernel, Who, folders, parse_answer

CGROUP = struct.pack("=HHQ", 12, 21, 4711)
OTHER = struct.pack("=HHB3x", 5, 8, 1)


def answer(
    *, uid: int = 1000, inode: int = 77, attributes: bytes = CGROUP, kind: int = 20
) -> bytes:
    message = b"\2\1\0\0" + b"\0" * 48 + struct.pack("=IIIII", 0, 0, 0, uid, inode) + attributes
    return struct.pack("=IHHII", 16 + len(message), kind, 0, 1, 0) + message


def test_an_answer_names_the_user_and_the_group() -> None:
    assert parse_answer(answer()) == (1000, 4711)
    assert parse_answer(answer(attributes=OTHER + CGROUP)) == (1000, 4711)
    assert parse_answer(answer(attributes=b"")) == (1000, None)
    assert parse_answer(answer(attributes=OTHER)) == (1000, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        answer()[:87],
        answer(kind=2),  # an error, such as "there is no such socket"
        answer(uid=0, inode=0),  # closed: it is nobody's, and not root's
    ],
)
def test_what_the_kernel_does_not_know(data: bytes) -> None:
    assert parse_answer(data) is None


@pytest.mark.parametrize(
    "attributes",
    [
        struct.pack("=HH", 3, 21),  # shorter than its own head: no way on from here
        struct.pack("=HHI", 8, 21, 1),  # too short to hold an id
        struct.pack("=HH", 500, 8),
    ],
)
def test_attributes_that_are_cut_off_tell_nothing(attributes: bytes) -> None:
    assert parse_answer(answer(attributes=attributes)) == (1000, None)


class Kernel:
    """Answers what the test says, and keeps what it was asked."""

    def __init__(self, said: bytes | OSError | None, groups: dict[int, str] | None = None) -> None:
        self.said = said
        self.groups = groups or {}
        self.asked: list[tuple[int, bytes, bytes]] = []
        self.walks = 0

    def owner(self, family: int, client: bytes, server: bytes) -> bytes | None:
        self.asked.append((family, client, server))
        if isinstance(self.said, OSError):
            raise self.said
        return self.said

    def cgroups(self) -> dict[int, str]:
        self.walks += 1
        return self.groups


class Accepted:
    """A connection that has been accepted."""

    def __init__(self, peer: Any, own: Any = ("127.0.0.1", 11434), family: int = 2) -> None:
        self.family = family
        self._peer = peer
        self._own = own

    def getpeername(self) -> Any:
        if isinstance(self._peer, OSError):
            raise self._peer
        return self._peer

    def getsockname(self) -> Any:
        return self._own


def of(kernel: Kernel, connection: Any = None) -> Who:
    return Clients(kernel).who(connection or Accepted(("127.0.0.1", 4000)))


def test_the_client_is_asked_about_and_not_this_server() -> None:
    kernel = Kernel(None)
    of(kernel)
    v4 = b"\x7f\0\0\1" + b"\0" * 12
    assert kernel.asked == [(socket.AF_INET, b"\x0f\xa0" + v4, b"\x2c\xaa" + v4)]


@pytest.mark.parametrize(
    ("peer", "own", "family", "packed"),
    [
        (("::1", 1, 0, 0), ("::1", 2, 0, 0), socket.AF_INET6, b"\0" * 15 + b"\1"),
        (
            ("::ffff:10.0.0.7", 1, 0, 0),
            ("::ffff:10.0.0.1", 2, 0, 0),
            socket.AF_INET,
            b"\x0a\0\0\7" + b"\0" * 12,
        ),
    ],
)
def test_addresses_of_both_kinds(peer: Any, own: Any, family: int, packed: bytes) -> None:
    kernel = Kernel(None)
    of(kernel, Accepted(peer, own, socket.AF_INET6))
    assert kernel.asked[0][:2] == (family, b"\0\1" + packed)


def test_a_user_in_a_unit() -> None:
    kernel = Kernel(answer(), {4711: "/user.slice/user-1000.slice/session-3.scope"})
    assert of(kernel) == Who(1000, "session-3.scope", "user-1000.slice")


@pytest.mark.parametrize(("cgroup_id", "walks"), [(1, 0), (4712, 1)])
def test_a_user_in_no_unit_that_anybody_knows(cgroup_id: int, walks: int) -> None:
    attributes = struct.pack("=HHQ", 12, 21, cgroup_id)
    kernel = Kernel(answer(attributes=attributes), {4711: "/system.slice/a.service"})
    clients = Clients(kernel)
    for _ in range(3):
        connection: Any = Accepted(("127.0.0.1", 1))
        assert clients.who(connection) == Who(1000)
    assert kernel.walks == walks  # nobody has this machine's groups walked through at will


def test_a_group_that_is_known_is_not_looked_for_again() -> None:
    kernel = Kernel(answer(), {4711: "/system.slice/a.service"})
    clients = Clients(kernel)
    for _ in range(3):
        assert clients.who(Accepted(("127.0.0.1", 1))).unit == "a.service"  # type: ignore[arg-type]
    assert kernel.walks == 1


@pytest.mark.parametrize(
    ("said", "connection"),
    [
        (None, Accepted(("172.17.0.2", 4000))),  # in another network namespace
        (OSError(93, "no sock_diag"), Accepted(("127.0.0.1", 1))),
        (answer(), Accepted(OSError(107, "not connected"))),
        (answer(), Accepted("/a/path", "/a/path", socket.AF_UNIX)),
    ],
)
def test_who_cannot_be_known_is_nobody(said: Any, connection: Any) -> None:
    assert of(Kernel(said), connection) == NOBODY


def test_this_kernel_knows_this_process() -> None:
    kernel = LinuxKernel()
    try:
        clients = Clients(kernel)
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            with accepted:
                assert clients.who(accepted).uid == os.getuid()
                client.close()
                # Its socket is closed: uid 0 and inode 0, which is nobody.
                assert clients.who(accepted) == NOBODY
    finally:
        kernel.close()
        kernel.close()


def test_every_folder_is_found_by_its_inode(tmp_path: Path) -> None:
    inner = tmp_path / "a.slice" / "b.service"
    inner.mkdir(parents=True)
    (tmp_path / "file").write_text("")
    assert folders(str(tmp_path)) == {
        inner.parent.stat().st_ino: "/a.slice",
        inner.stat().st_ino: "/a.slice/b.service",
    }


def test_a_tree_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PLACES", 2)
    for name in "abcd":
        (tmp_path / name / "inner").mkdir(parents=True)
    assert len(folders(str(tmp_path))) <= 4


def test_a_folder_that_goes_away_is_left_out(tmp_path: Path) -> None:
    assert folders(str(tmp_path / "gone")) == {}
