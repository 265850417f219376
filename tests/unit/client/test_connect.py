"""Finding the socket, and what the kernel's refusals mean."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from onegate.client import connect
from onegate.client.errors import InvalidRequest, NotPermitted, OnegateError, Unavailable


class FakeSocket:
    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.blocking = True
        self.closed = False

    def setblocking(self, flag: bool) -> None:
        self.blocking = flag

    def connect(self, path: str) -> None:
        assert not self.blocking, "a full backlog would block here"
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed = True


def given(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> FakeSocket:
    fake = FakeSocket(error)
    monkeypatch.setattr(connect.socket, "socket", lambda *_: fake)
    return fake


def test_a_connected_socket_is_returned_open(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = given(monkeypatch, None)
    result: Any = connect.try_connect("/s")
    assert result is fake
    assert not fake.closed


def test_a_process_without_descriptors_has_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(connect.socket, "socket", none_left)
    with pytest.raises(Unavailable, match="cannot connect to /s: Too many open files"):
        connect.try_connect("/s")


def test_a_full_backlog_is_worth_waiting_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = given(monkeypatch, BlockingIOError(errno.EAGAIN, "again"))
    assert connect.try_connect("/s") is None
    assert fake.closed


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), Unavailable, "no socket at /s"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), Unavailable, "nobody listens"),
        (PermissionError(errno.EACCES, "x"), NotPermitted, "may not connect to /s"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), Unavailable, "Not a directory"),
        (OSError("AF_UNIX path too long"), InvalidRequest, "too long"),
        (ValueError("embedded null byte"), InvalidRequest, "null byte"),
    ],
)
def test_every_refusal_of_the_kernel_is_explained(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[OnegateError], text: str
) -> None:
    fake = given(monkeypatch, error)
    with pytest.raises(kind, match=text):
        connect.try_connect("/s")
    assert fake.closed


def test_an_interrupt_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = given(monkeypatch, None)

    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "connect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connect.try_connect("/s")
    assert fake.closed


def test_waits_grow_and_are_bounded_and_are_not_all_the_same() -> None:
    for attempt in range(1, 100):
        longest = min(connect.LONGEST_WAIT_S, connect.FIRST_WAIT_S * 2 ** (attempt - 1))
        waits = {connect.backoff_s(attempt) for _ in range(20)}
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(waits) > 1


def test_waiting_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr(connect, "monotonic_ns", lambda: now_ns)
    waits = connect.Waits("/s", deadline_ns=5_000_000_000)
    while now_ns < 4_000_000_000:
        now_ns += round(waits.next_s() * 1e9)
    now_ns = 4_999_999_999
    with pytest.raises(Unavailable, match="/s has more connections than it can take"):
        waits.next_s()


def test_a_path_that_is_given_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEGATE_SOCKET", "/from/environment")
    assert connect.socket_path(Path("/given")) == "/given"
    assert connect.socket_path(None) == "/from/environment"


def test_without_one_the_usual_places_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ONEGATE_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.fspath(tmp_path))
    (tmp_path / "onegate.sock").touch()
    assert connect.socket_path(None) == str(tmp_path / "onegate.sock")
