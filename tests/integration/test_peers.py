"""Who connected, asked of the real kernel about real processes, some of them of other users."""

import contextlib
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onegate.config import check
from onegate.server.classify import ClassNotAllowed, Decision, classify, compile_rules
from onegate.server.kernel import LinuxKernel
from onegate.server.peercred import Peer, identify

NOBODY = 65534

# Becomes another user, takes a terminal, connects, says so, and stays until its input ends. It
# changes the user by itself, because that user may not be allowed to run this interpreter.
CLIENT = """
import json, os, socket, sys
path, wanted = sys.argv[1], json.loads(sys.argv[2])
if "tty" in wanted:
    os.setsid()
    os.open(wanted["tty"], os.O_RDWR)  # a session leader's first terminal becomes its own
if "uid" in wanted:
    os.setgroups(wanted["groups"])
    os.setresgid(*[wanted["gid"]] * 3)
    os.setresuid(*[wanted["uid"]] * 3)
link = socket.socket(socket.AF_UNIX)
link.connect(path)
print("connected", flush=True)
sys.stdin.read()
"""

as_root = pytest.mark.skipif(os.getuid() != 0, reason="not root: cannot be another user")


@pytest.fixture
def listening() -> Iterator[tuple[socket.socket, str]]:
    """A socket that every user can connect to, and its path."""
    folder = tempfile.mkdtemp(prefix="onegate-test-")
    os.chmod(folder, 0o711)
    path = f"{folder}/gate.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        os.chmod(path, 0o666)
        sock.listen()
        sock.settimeout(30)
        yield sock, path
    shutil.rmtree(folder)


@pytest.fixture(params=[True, False], ids=["SO_PEERPIDFD", "pidfd_open"])
def kernel(request: pytest.FixtureRequest) -> LinuxKernel:
    return LinuxKernel(peer_pidfd_option=request.param)


@contextlib.contextmanager
def client(path: str, **wanted: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has connected, as the user and with the terminal that are wanted."""
    command = [sys.executable, "-I", "-S", "-c", CLIENT, path, json.dumps(wanted)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "connected\n"
            yield child
        finally:
            child.kill()


def look(sock: socket.socket, kernel: LinuxKernel) -> Peer:
    before = len(os.listdir("/proc/self/fd"))
    with sock.accept()[0] as connection:
        peer = identify(connection, kernel)
    assert len(os.listdir("/proc/self/fd")) == before
    return peer


def test_a_peer_of_ones_own(listening: tuple[socket.socket, str], kernel: LinuxKernel) -> None:
    sock, path = listening
    with client(path) as child:
        peer = look(sock, kernel)
    assert peer.verified, peer.unreadable
    assert (peer.pid, peer.uid, peer.gid) == (child.pid, os.getuid(), os.getgid())
    assert set(peer.groups) == {os.getgid(), *os.getgroups()}
    assert peer.started_ticks is not None
    ours = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    assert peer.cgroup in {line.split(":", 2)[2] for line in ours}


def test_the_source_of_the_facts_is_told(listening: tuple[socket.socket, str]) -> None:
    sock, path = listening
    with client(path):
        peer = look(sock, LinuxKernel(peer_pidfd_option=False))
    assert peer.source == "pidfd_open"
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    with client(path):
        peer = look(sock, LinuxKernel())
    assert peer.source == ("peer_pidfd" if release >= (6, 5) else "pidfd_open")


def test_a_terminal(listening: tuple[socket.socket, str], kernel: LinuxKernel) -> None:
    sock, path = listening
    leader, follower = pty.openpty()
    try:
        with client(path, tty=os.ttyname(follower)):
            assert look(sock, kernel).tty
    finally:
        os.close(leader)
        os.close(follower)
    with client(path, tty="/dev/null"):
        assert not look(sock, kernel).tty


@as_root
@pytest.mark.root
def test_a_peer_of_another_user(listening: tuple[socket.socket, str], kernel: LinuxKernel) -> None:
    sock, path = listening
    with client(path, uid=NOBODY, gid=1234, groups=[5678, 77, 5678]):
        peer = look(sock, kernel)
    assert peer.verified, peer.unreadable
    assert (peer.uid, peer.gid, peer.groups) == (NOBODY, 1234, (77, 1234, 5678))


@as_root
@pytest.mark.root
def test_more_groups_than_python_would_read(listening: tuple[socket.socket, str]) -> None:
    sock, path = listening
    groups = tuple(range(10_000, 11_500))
    with client(path, uid=NOBODY, gid=10_000, groups=groups):
        peer = look(sock, LinuxKernel())
    assert peer.groups == groups


def test_a_peer_that_left_before_it_was_looked_at(
    listening: tuple[socket.socket, str], kernel: LinuxKernel
) -> None:
    sock, path = listening
    with client(path):
        pass
    peer = look(sock, kernel)
    assert not peer.verified
    assert "exited" in peer.unreadable
    assert peer.uid == os.getuid()


def test_a_peer_that_left_and_was_not_yet_buried(
    listening: tuple[socket.socket, str], kernel: LinuxKernel
) -> None:
    sock, path = listening
    with client(path) as child:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        peer = look(sock, kernel)
    assert not peer.verified
    assert "exited" in peer.unreadable


@pytest.mark.parametrize("option", [True, False])
@pytest.mark.parametrize("buried", [True, False])
def test_a_peer_that_leaves_while_it_is_looked_at(
    listening: tuple[socket.socket, str], buried: bool, option: bool
) -> None:
    sock, path = listening
    with client(path) as child:

        class Interrupted(LinuxKernel):
            def read(self, path: str) -> bytes:
                content = super().read(path)
                if path.endswith("/cgroup"):
                    child.kill()
                    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
                    if buried:
                        child.wait()
                return content

        peer = look(sock, Interrupted(peer_pidfd_option=option))
    assert not peer.verified
    assert "exited" in peer.unreadable


@as_root
@pytest.mark.root
def test_a_pid_that_is_now_another_users(listening: tuple[socket.socket, str]) -> None:
    sock, path = listening
    with client(path, uid=NOBODY, gid=NOBODY, groups=[]) as heir:
        sock.accept()[0].close()

        class Reused(LinuxKernel):
            def credentials(self, sock: socket.socket) -> tuple[int, int, int]:
                return (heir.pid, *super().credentials(sock)[1:])

        with client(path):
            peer = look(sock, Reused(peer_pidfd_option=False))
    assert not peer.verified
    assert "another user" in peer.unreadable


def test_facts_of_this_machine_lead_to_a_class(
    listening: tuple[socket.socket, str], kernel: LinuxKernel
) -> None:
    sock, path = listening
    text = f'[[grant]]\nuid = {os.getuid()}\nceiling = "batch"\n'
    rules = compile_rules(check(text), lambda name: None)
    with client(path):
        peer = look(sock, kernel)
    decision = classify(peer, rules, None, "")
    assert isinstance(decision, Decision)
    assert decision.class_ == "batch"
    assert isinstance(classify(peer, rules, "interactive", ""), ClassNotAllowed)


def test_what_is_no_connected_unix_socket(kernel: LinuxKernel) -> None:
    with socket.socket(socket.AF_INET) as sock, pytest.raises(OSError):  # noqa: PT011
        identify(sock, kernel)
