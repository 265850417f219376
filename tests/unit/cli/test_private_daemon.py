"""Starting a daemon for a short time, and leaving nothing behind however that ends."""

import os
import signal
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from onegate.cli import private_daemon
from onegate.cli.endings import Endings
from onegate.cli.private_daemon import DaemonEnded, PrivateDaemon


class FakeProcess:
    """A child that ends on SIGTERM unless it is stubborn."""

    def __init__(self, arguments: list[Any], **options: Any) -> None:
        self.stdin = None
        self.arguments = [str(argument) for argument in arguments]
        self.options = options
        self.pid = 4242
        self.code: int | None = None
        self.stubborn = False
        self.waits: list[float | None] = []

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if not self.stubborn:
            self.code = 0

    def wait(self, timeout: float | None = None) -> int:
        self.waits.append(timeout)
        if self.code is None:
            raise subprocess.TimeoutExpired("onegated", timeout or 0)
        return self.code


class Started:
    def __init__(self) -> None:
        self.process: FakeProcess | None = None
        self.error: BaseException | None = None

    def __call__(self, arguments: list[Any], **options: Any) -> FakeProcess:
        if self.error is not None:
            raise self.error
        self.process = FakeProcess(arguments, **options)
        return self.process


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    made = Started()
    monkeypatch.setattr(private_daemon.subprocess, "Popen", made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return made


def test_it_listens_where_nobody_else_can_enter(started: Started, tmp_path: Path) -> None:
    with PrivateDaemon("[engine]\n") as daemon:
        directory = Path(daemon.socket).parent
        assert directory.parent == tmp_path
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert (directory / "onegate.toml").read_text() == "[engine]\n"
        assert started.process is not None
        assert daemon.socket in started.process.arguments
        assert str(directory / "onegate.toml") in started.process.arguments
    assert list(tmp_path.iterdir()) == []
    assert started.process.code == 0


def test_neither_the_terminals_signals_nor_a_managers_variables_reach_it(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ONEGATE_SOCKET", "NOTIFY_SOCKET", "LISTEN_FDS"):
        monkeypatch.setenv(name, "x")
    with PrivateDaemon(""):
        assert started.process is not None
        assert started.process.options["start_new_session"] is True
        environment = started.process.options["env"]
        assert {"ONEGATE_SOCKET", "NOTIFY_SOCKET", "LISTEN_FDS"} & environment.keys() == set()
        assert environment["PATH"] == os.environ["PATH"]


def test_an_interrupt_in_the_block_cleans_up(started: Started, tmp_path: Path) -> None:
    def interrupted() -> None:
        with PrivateDaemon(""):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    assert started.process is not None
    assert started.process.code == 0


def test_one_that_cannot_be_started_leaves_nothing(started: Started, tmp_path: Path) -> None:
    started.error = OSError("no such interpreter")
    with pytest.raises(OSError, match="no such interpreter"):
        PrivateDaemon("").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_listen_is_killed_with_its_children(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, int]] = []

    def killpg(pid: int, number: int) -> None:
        assert started.process is not None
        started.process.code = -number
        killed.append((pid, number))

    monkeypatch.setattr(os, "killpg", killpg)
    with PrivateDaemon(""):
        assert started.process is not None
        started.process.stubborn = True
    assert killed == [(4242, signal.SIGKILL)]
    assert list(tmp_path.iterdir()) == []


def test_stopping_twice_is_stopping(started: Started) -> None:
    with PrivateDaemon("") as daemon:
        daemon.stop()


def test_signals_mean_what_they_meant_afterwards(started: Started) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Endings(), PrivateDaemon(""):
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    after = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert before == after


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_ended_cleans_up(started: Started, tmp_path: Path, number: int) -> None:
    def ended() -> None:
        with Endings(), PrivateDaemon(""):
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as caught:
        ended()
    assert caught.value.code == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_ended_is_noticed_and_quoted(started: Started) -> None:
    with PrivateDaemon("") as daemon:
        daemon.check()
        assert started.process is not None
        (Path(daemon.socket).parent / "log").write_text("\n".join("abcdefg"))
        started.process.code = 78
        with pytest.raises(DaemonEnded, match="exit code 78: c; d; e; f; g"):
            daemon.check()


def test_a_daemon_that_ended_without_a_word(started: Started) -> None:
    with PrivateDaemon("") as daemon:
        assert started.process is not None
        started.process.code = 1
        with pytest.raises(DaemonEnded, match="it said nothing"):
            daemon.check()
