"""Who connected, under everything that can happen while it is being found out."""

import socket
from collections.abc import Callable
from typing import cast

import pytest

from onegate.server.peercred import identify

SOCK = cast(socket.socket, object())
CRON = b"0::/system.slice/cron.service\n"


def stat(*, tty: int = 0, started: int = 500, name: str = "sh") -> bytes:
    fields = ["S", "1", "7", "7", str(tty), "-1", *["0"] * 13, str(started), "1000", "5"]
    return f"7 ({name}) {' '.join(fields)}\n".encode()


class FakeKernel:
    """One process. `at(path, action)` runs an action before a file is read."""

    def __init__(self, *, option: bool = True) -> None:
        self.option = option
        self.pid, self.uid, self.gid = 7, 1000, 100
        self.supplementary: tuple[int, ...] = ()
        self.living = True
        self.files = {
            "/proc/7/stat": stat(),
            "/proc/7/status": b"Name:\tsh\nUid:\t0\t1000\t0\t0\n",
            "/proc/7/cgroup": CRON,
            "/proc/uptime": b"10.00 20.00\n",
        }
        self.actions: dict[str, Callable[[], None]] = {}
        self.gone = False
        self.error: OSError | None = None
        self.opened = 0

    def credentials(self, sock: socket.socket) -> tuple[int, int, int]:
        return self.pid, self.uid, self.gid

    def groups(self, sock: socket.socket) -> tuple[int, ...]:
        return self.supplementary

    def peer_pidfd(self, sock: socket.socket) -> int | None:
        if not self.option:
            return None
        return self.open_pidfd(self.pid)

    def open_pidfd(self, pid: int) -> int:
        if self.error is not None:
            raise self.error
        if self.gone:
            raise ProcessLookupError(3, "No such process")
        self.opened += 1
        return 99

    def close(self, pidfd: int) -> None:
        assert pidfd == 99
        self.opened -= 1

    def alive(self, pidfd: int) -> bool:
        return self.living

    def read(self, path: str) -> bytes:
        if path in self.actions:
            self.actions[path]()
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory")
        return self.files[path]

    def die(self) -> None:
        self.living = False


@pytest.fixture(params=[True, False], ids=["SO_PEERPIDFD", "pidfd_open"])
def kernel(request: pytest.FixtureRequest) -> FakeKernel:
    return FakeKernel(option=request.param)


def test_facts_of_a_living_peer(kernel: FakeKernel) -> None:
    kernel.supplementary = (30, 100, 20, 30)
    peer = identify(SOCK, kernel)
    assert peer.verified
    assert (peer.pid, peer.uid, peer.gid, peer.groups) == (7, 1000, 100, (20, 30, 100))
    assert (peer.unit, peer.slice, peer.user_unit) == ("cron.service", "system.slice", None)
    assert (peer.tty, peer.started_ticks) == (False, 500)
    assert peer.cgroup == "/system.slice/cron.service"
    assert peer.source == ("peer_pidfd" if kernel.option else "pidfd_open")
    assert kernel.opened == 0


def test_a_terminal_and_a_name_full_of_parentheses(kernel: FakeKernel) -> None:
    kernel.files["/proc/7/stat"] = stat(tty=34816, name="a) S 1 2 3 0 (b")
    assert identify(SOCK, kernel).tty


def test_a_peer_in_a_session(kernel: FakeKernel) -> None:
    kernel.files["/proc/7/cgroup"] = (
        b"0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-x-1.scope\n"
    )
    peer = identify(SOCK, kernel)
    assert (peer.owner_uid, peer.user_unit) == (1000, "app-x-1.scope")


def nothing_known(kernel: FakeKernel, why: str) -> None:
    peer = identify(SOCK, kernel)
    assert not peer.verified
    assert why in peer.unreadable
    assert (peer.unit, peer.slice, peer.user_unit, peer.tty, peer.owner_uid, peer.cgroup) == (
        None,
        None,
        None,
        False,
        None,
        "",
    )
    assert (peer.uid, peer.gid) == (1000, 100)
    assert kernel.opened == 0


def test_a_peer_that_is_gone_already(kernel: FakeKernel) -> None:
    kernel.gone = True
    nothing_known(kernel, "has exited")


def test_a_peer_that_is_a_zombie(kernel: FakeKernel) -> None:
    kernel.die()
    nothing_known(kernel, "has exited")


@pytest.mark.parametrize("path", ["/proc/7/stat", "/proc/7/status", "/proc/7/cgroup"])
def test_a_peer_that_exits_while_it_is_looked_at(kernel: FakeKernel, path: str) -> None:
    # Its pid may be another's from here on, so nothing that was read counts.
    kernel.actions[path] = kernel.die
    nothing_known(kernel, "exited while")


@pytest.mark.parametrize("path", ["/proc/7/stat", "/proc/7/status", "/proc/7/cgroup"])
def test_files_that_cannot_be_read(kernel: FakeKernel, path: str) -> None:
    del kernel.files[path]
    nothing_known(kernel, f"cannot read {path}")


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/proc/7/stat", b""),
        ("/proc/7/stat", b"7 (sh) S 1"),
        ("/proc/7/stat", b"7 (sh) " + b"x " * 30),
        ("/proc/7/status", b""),
        ("/proc/7/status", b"Uid:\t1\n"),
        ("/proc/7/status", b"Uid:\tx\ty\tz\n"),
    ],
)
def test_files_that_make_no_sense(kernel: FakeKernel, path: str, content: bytes) -> None:
    kernel.files[path] = content
    nothing_known(kernel, path.replace("7", "PID"))


def test_a_peer_of_another_pid_namespace(kernel: FakeKernel) -> None:
    kernel.pid = 0
    nothing_known(kernel, "another pid namespace")


def test_a_kernel_that_gives_no_pidfd(kernel: FakeKernel) -> None:
    kernel.error = OSError(24, "Too many open files")
    nothing_known(kernel, "Too many open files")


def test_a_pid_taken_over_by_another_user() -> None:
    kernel = FakeKernel(option=False)
    kernel.files["/proc/7/status"] = b"Uid:\t1000\t1001\t1000\t1000\n"
    nothing_known(kernel, "another user's process")


def test_a_pid_taken_over_by_a_younger_process() -> None:
    kernel = FakeKernel(option=False)
    kernel.files["/proc/7/stat"] = stat(started=1001)
    nothing_known(kernel, "younger process")
    kernel.files["/proc/7/stat"] = stat(started=1000)
    assert identify(SOCK, kernel).verified


def test_the_age_is_taken_before_the_pid_is_opened() -> None:
    # Else a process that starts in between would look old enough.
    kernel = FakeKernel(option=False)
    kernel.gone = True
    seen: list[str] = []
    kernel.actions["/proc/uptime"] = lambda: seen.append("uptime")
    nothing_known(kernel, "has exited")
    assert seen == ["uptime"]


@pytest.mark.parametrize("content", [b"", b"x y", b"12 3"])
def test_an_uptime_that_makes_no_sense(content: bytes) -> None:
    kernel = FakeKernel(option=False)
    kernel.files["/proc/uptime"] = content
    nothing_known(kernel, "/proc/uptime")


def test_with_the_option_age_and_user_need_not_be_compared() -> None:
    # A peer that changed its user since is still the very process that connected.
    kernel = FakeKernel()
    kernel.files["/proc/7/status"] = b"Uid:\t1000\t1001\t1000\t1000\n"
    kernel.files["/proc/7/stat"] = stat(started=5000)
    assert identify(SOCK, kernel).verified
