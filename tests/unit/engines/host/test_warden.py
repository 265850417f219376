import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from onegate.engines.host import warden as module
from onegate.engines.host.processes import MARK, is_alive, kill, marked
from onegate.engines.host.warden import Warden

# A host: a warden, a worker in another session, and no end of its own.
HOST = """
import subprocess, sys
from onegate.engines.host.warden import Warden
warden = Warden()
worker = subprocess.Popen(["sleep", "3600"], start_new_session=True)
print(warden.pid, worker.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host():
    environment = {**os.environ, MARK: "of this host"}
    with subprocess.Popen(
        [sys.executable, "-c", HOST],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        yield process
        process.kill()
        kill(marked("of this host"))


def ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("ends", ["kill", "terminate", "communicate"])
def test_what_a_host_had_started_ends_with_it_however_it_ends(host, ends):
    warden, worker = (int(pid) for pid in host.stdout.readline().split())
    known = {process.pid: process for process in marked("of this host")}
    assert known.keys() == {host.pid, warden, worker}
    getattr(host, ends)()
    host.wait()
    while is_alive(known[worker]) or is_alive(known[warden]):
        pass
    assert marked("of this host") == []


def test_as_long_as_the_host_lives_nothing_is_ended(host):
    warden, worker = (int(pid) for pid in host.stdout.readline().split())
    known = {process.pid: process for process in marked("of this host")}
    while not ignores(warden, signal.SIGTERM):
        pass
    # What ends a group, or a session, is not meant for it.
    os.kill(warden, signal.SIGTERM)
    os.kill(warden, signal.SIGHUP)
    assert host.poll() is None
    assert is_alive(known[worker])
    assert is_alive(known[warden])


def test_without_a_mark_there_is_none(monkeypatch):
    monkeypatch.delenv(MARK, raising=False)
    assert Warden().pid is None


def test_one_that_cannot_be_started_is_said(monkeypatch, capsys):
    monkeypatch.setenv(MARK, "x")
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    assert Warden().pid is None
    assert "nobody will end" in capsys.readouterr().err


def test_it_ends_what_appears_while_it_does(monkeypatch):
    found = iter([["one"], ["two"], []])
    killed = []
    monkeypatch.setenv(MARK, "x")
    monkeypatch.setattr(module, "_PAUSE_S", 0)
    monkeypatch.setattr(module, "marked", lambda mark: next(found) if mark == "x" else [])
    monkeypatch.setattr(module, "kill", killed.append)
    monkeypatch.setattr(module.signal, "signal", lambda number, does: None)
    monkeypatch.setattr(module.sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    module.main()
    assert killed == [["one"], ["two"]]
