"""The listening socket: bound here beside other daemons, live and dead, or passed by systemd."""

import contextlib
import grp
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onegate.server import listener
from onegate.server.listener import FD_NAME, AlreadyRunning, Listener, ListenError

# Binds, says how it went, and stays until its input ends.
BINDER = """
import sys
from onegate.server.listener import AlreadyRunning, bind
sys.stdin.readline()
try:
    bound = bind(sys.argv[1], mode=0o600, group=None, backlog=8)
except AlreadyRunning:
    print("already", flush=True)
else:
    print("bound", flush=True)
sys.stdin.readline()
"""

# Serves what systemd passed to it, and tells what it and its child see.
ACTIVATED = """
import json, os, subprocess, sys
from onegate.server.listener import ListenError, adopt, take_inherited
from onegate.server.notify import Notifier
told = Notifier.from_environ(os.environ, os.getpid())
inherited = take_inherited(os.environ, os.getpid())
try:
    listener = adopt(inherited)
except ListenError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit(1)
child = subprocess.run(
    [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'), dict(os.environ))"],
    capture_output=True, text=True, check=True, close_fds=False,
)
told.ready("serving")
listener.sock.setblocking(True)
connection = listener.sock.accept()[0]
connection.sendall(b"hello")
listener.close()
print(json.dumps({
    "path": listener.path, "inherited": listener.inherited, "there": os.path.exists(listener.path),
    "environ": dict(os.environ), "child": child.stdout,
    "interval": told.watchdog_interval_s, "lost": told.lost,
}), flush=True)
"""

needs_activate = pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None, reason="no systemd-socket-activate"
)


def bind(path: Path, *, mode: int = 0o660, group: str | None = None, backlog: int = 8) -> Listener:
    return listener.bind(str(path), mode=mode, group=group, backlog=backlog)


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate.sock"


def make_stale(path: Path) -> None:
    """What a killed daemon leaves behind."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def test_bound_served_and_taken_away_again(path: Path) -> None:
    umask = os.umask(0o022)
    try:
        bound = bind(path, mode=0o640)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (bound.path, bound.inherited) == (str(path), False)
    assert not os.get_inheritable(bound.sock.fileno())
    assert bound.sock.getblocking() is False
    assert connects(path)
    bound.close()
    bound.close()
    assert os.listdir(path.parent) == []


def test_its_folder_is_made_but_not_a_whole_tree(tmp_path: Path) -> None:
    bound = bind(tmp_path / "new" / "gate.sock")
    assert connects(tmp_path / "new" / "gate.sock")
    bound.close()
    with pytest.raises(ListenError, match="No such file or directory: make its folder"):
        bind(tmp_path / "a" / "b" / "gate.sock")


def test_a_socket_that_cannot_be_finished_is_taken_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(target: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refused)
    with pytest.raises(ListenError, match="Operation not permitted"):
        bind(path)
    assert os.listdir(path.parent) == []


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="not root: cannot give files to any group")
def test_the_group_is_set(path: Path) -> None:
    other = next(entry for entry in grp.getgrall() if entry.gr_gid != os.getgid())
    bound = bind(path, group=other.gr_name)
    assert path.stat().st_gid == other.gr_gid
    bound.close()


def test_a_group_that_does_not_exist(path: Path) -> None:
    with pytest.raises(ListenError, match="there is no group 'no-such-group'"):
        bind(path, group="no-such-group")
    assert os.listdir(path.parent) == []


def test_nobody_else_can_connect_before_mode_and_group_are_set(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    chmod = os.chmod

    def recording(target: str, mode: int) -> None:
        seen.append(stat.S_IMODE(os.stat(target).st_mode))
        chmod(target, mode)

    monkeypatch.setattr(os, "chmod", recording)
    bind(path, mode=0o666).close()
    assert seen == [0o600]


def test_what_a_dead_daemon_left_is_replaced(path: Path) -> None:
    make_stale(path)
    assert not connects(path)
    bound = bind(path)
    assert connects(path)
    bound.close()


def test_a_live_daemon_is_left_alone(path: Path) -> None:
    first = bind(path)
    with pytest.raises(AlreadyRunning, match="another onegated holds"):
        bind(path)
    assert connects(path)
    first.close()
    bind(path).close()


@pytest.mark.parametrize("backlog_full", [False, True])
def test_another_program_that_serves_the_path_is_left_alone(path: Path, backlog_full: bool) -> None:
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(socket.socket(socket.AF_UNIX))
        other.bind(str(path))
        other.listen(0)
        while backlog_full:
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            backlog_full = waiting.connect_ex(str(path)) == 0
        inode = path.stat().st_ino
        with pytest.raises(AlreadyRunning, match="another program serves"):
            bind(path)
        assert path.stat().st_ino == inode
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_removed(path: Path, kind: str) -> None:
    match kind:
        case "file":
            path.write_text("precious", encoding="utf-8")
        case "folder":
            path.mkdir()
        case _:
            make_stale(path.parent / "elsewhere")
            path.symlink_to(path.parent / "elsewhere")
    with pytest.raises(ListenError, match="is not a socket; it is left alone"):
        bind(path)
    assert os.path.lexists(path)
    assert not os.path.lexists(f"{path}.lock")


def test_a_datagram_socket_in_use_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(ListenError, match="cannot tell whether"):
            bind(path)
        assert path.exists()


def test_a_lock_that_is_a_link_is_not_followed(path: Path) -> None:
    Path(f"{path}.lock").symlink_to(path.parent / "target")
    with pytest.raises(ListenError, match="cannot lock"):
        bind(path)
    assert not (path.parent / "target").exists()


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    with pytest.raises(ListenError, match="too long"):
        bind(folder / "gate.sock")
    assert os.listdir(folder) == []


def test_a_file_that_took_our_place_is_not_taken_away(path: Path) -> None:
    bound = bind(path)
    path.unlink()
    path.write_text("somebody else's", encoding="utf-8")
    bound.close()
    assert path.read_text(encoding="utf-8") == "somebody else's"


def test_a_path_that_was_taken_away_already(path: Path) -> None:
    bound = bind(path)
    path.unlink()
    bound.close()
    assert os.listdir(path.parent) == []


@contextlib.contextmanager
def binders(path: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    with contextlib.ExitStack() as stack:
        children = []
        for _ in range(count):
            child = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", BINDER, str(path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(child.kill)
            children.append(child)
        yield children


def say_go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def answer(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_after_a_kill_the_next_daemon_can_start(path: Path) -> None:
    with binders(path, 1) as (child,):
        say_go(child)
        assert answer(child) == "bound"
        with pytest.raises(AlreadyRunning):
            bind(path)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert path.exists()
        bound = bind(path)
        assert connects(path)
        bound.close()


def test_of_many_that_start_at_once_exactly_one_serves(path: Path) -> None:
    make_stale(path)
    with binders(path, 6) as children:
        for child in children:
            say_go(child)
        assert sorted(answer(child) for child in children) == ["already"] * 5 + ["bound"]
        assert connects(path)


def test_a_lock_that_is_given_up_while_it_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The holder takes its lock file away between our open and our flock: what we have locked
    # then has no name, and a third daemon would make and lock a new one.
    first = bind(path)
    flock = listener.fcntl.flock
    calls = []

    def late(fd: int, operation: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            first.close()
        flock(fd, operation)

    monkeypatch.setattr(listener.fcntl, "flock", late)
    second = bind(path)
    assert len(calls) == 2
    monkeypatch.undo()
    with pytest.raises(AlreadyRunning):
        bind(path)
    second.close()


@contextlib.contextmanager
def activated(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """ACTIVATED under systemd-socket-activate, which starts it at the first connection."""
    command = ["systemd-socket-activate", *options, sys.executable, "-c", ACTIVATED]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stderr is not None
            for line in child.stderr:
                if "Listening on" in line:
                    break
            yield child
        finally:
            child.kill()


def test_who_waits_is_turned_away(path: Path) -> None:
    listener = bind(path)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        for sock in waiting:
            sock.connect(str(path))
        listener.turn_away()
        assert [sock.recv(1) for sock in waiting] == [b""] * 3
    assert connects(path), "it listens on"
    listener.close()


@needs_activate
def test_a_socket_from_systemd(path: Path) -> None:
    notify = path.parent / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        manager.settimeout(30)
        environ = (f"NOTIFY_SOCKET={notify}", "WATCHDOG_USEC=4000000")
        options = [f"--listen={path}", f"--fdname={FD_NAME}"]
        with (
            activated(path, *options, *(f"--setenv={e}" for e in environ)) as child,
            socket.socket(socket.AF_UNIX) as link,
        ):
            link.settimeout(30)
            link.connect(str(path))
            assert link.recv(10) == b"hello"
            assert manager.recv(1000) == b"READY=1\nSTATUS=serving"
            told = json.loads(answer(child))
    assert (told["path"], told["inherited"], told["there"]) == (str(path), True, True)
    assert (told["interval"], told["lost"]) == (2.0, 0)
    unset = ("LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_")
    assert [name for name in told["environ"] if name.startswith(unset)] == []
    # Descriptors of the child: its own three, and the one it lists the folder through.
    assert told["child"].startswith("['0', '1', '2', '3'] ")
    assert not any(name in told["child"] for name in unset)


@needs_activate
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fdname=other"], "systemd passed 'other'; expected one socket named onegate.socket"),
        (["--fdname=onegate.socket", "--seqpacket"], "is not a Unix stream socket"),
        (["--fdname=onegate.socket", "--accept"], "does not listen: set Accept=no"),
    ],
)
def test_a_socket_that_is_not_as_expected(path: Path, options: list[str], message: str) -> None:
    kind = socket.SOCK_SEQPACKET if "--seqpacket" in options else socket.SOCK_STREAM
    with (
        activated(path, f"--listen={path}", *options) as child,
        socket.socket(socket.AF_UNIX, kind) as link,
    ):
        link.connect(str(path))
        assert message in json.loads(answer(child))["error"]
