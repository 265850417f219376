"""What breaks, and who does not notice."""

import signal
import socket
from pathlib import Path

from tests.systemd.clients import ask, knock, stopped
from tests.systemd.machine import (
    SOCKET,
    journal,
    measured,
    now,
    onegate,
    pid,
    pool,
    prop,
    ready,
    send,
    status,
    systemctl,
    until,
)


def test_a_killed_daemon_comes_back_to_a_warm_engine() -> None:
    ready()
    host, before = pid("onegate-engine.service"), pool()
    restarts = int(prop("onegate.service", "NRestarts"))
    assert before["loads"] >= 1
    knocking = knock()
    began = now()
    daemon = send(signal.SIGKILL, "onegate.service")
    # Meanwhile: the socket is systemd's, and who connects now waits and is served.
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(SOCKET))
    assert onegate("ask", "hello", "--max-tokens", "1").stdout.strip()
    measured("kill -9 of the daemon, until the next first token", now() - began)
    assert stopped(knocking) > 0
    assert pid("onegate.service") not in (0, daemon)
    assert int(prop("onegate.service", "NRestarts")) >= restarts
    assert pid("onegate-engine.service") == host
    assert pool()["loads"] == before["loads"]


def test_a_restart_under_load_refuses_nobody() -> None:
    host = pid("onegate-engine.service")
    knocking = [knock() for _ in range(2)]
    asking = [ask() for _ in range(2)]
    until(lambda: status()["gate"]["in_flight"] > 0, "answers under way")
    for _ in range(3):
        systemctl("restart", "onegate.service")
    assert all(stopped(one) > 10 for one in knocking)
    assert all(stopped(one) > 0 for one in asking)
    assert pid("onegate-engine.service") == host


def test_a_daemon_killed_under_load_loses_nobody_who_has_patience() -> None:
    asking, waiting = ask(), ask()
    for _ in range(3):
        until(lambda: status()["gate"]["in_flight"] > 0, "answers under way")
        killed = send(signal.SIGKILL, "onegate.service")
        until(lambda gone=killed: pid("onegate.service") not in (0, gone), "another daemon")
    assert stopped(asking) > 0
    assert stopped(waiting) > 0


def test_a_hung_loop_is_ended_by_the_watchdog() -> None:
    host = pid("onegate-engine.service")
    began = now()
    daemon = send(signal.SIGSTOP, "onegate.service")
    until(lambda: pid("onegate.service") not in (0, daemon), "another daemon", 60)
    measured("a hung daemon, until it is started anew", now() - began)
    assert onegate("whoami").stdout.startswith("class")
    said = journal("onegate.service")
    assert "Watchdog timeout" in said
    assert "most recent call first" in said, "the traceback of the loop"
    assert pid("onegate-engine.service") == host


def test_nothing_was_left_behind() -> None:
    for unit in ("onegate.service", "onegate-engine.service"):
        group = Path(f"/sys/fs/cgroup/system.slice/{unit}/cgroup.procs")
        assert group.read_text(encoding="ascii").split() == [str(pid(unit))]
    assert status()["pools"][0]["seats_used"] == 0
