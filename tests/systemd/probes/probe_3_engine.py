"""The engine host beside the daemon, with an engine whose speed is known."""

import os
import signal
from pathlib import Path

from tests.systemd.machine import (
    CONFIG,
    active,
    configure,
    drop_in,
    finish,
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
    start,
    status,
    systemctl,
    until,
)

BEFORE_SCRIPTED = Path("/srv/results/onegate.toml")

SLOW = """
[engine]
kind = "scripted"
host_socket = "/run/onegate-engine/host.sock"
[[engine.scripted.pools]]
max_seqs = 4
a_ms = 20
"""

ONE_SEAT = """
[engine]
kind = "scripted"
host_socket = "/run/onegate-engine/host.sock"
[[engine.scripted.pools]]
max_seqs = 1
a_ms = 20
[[class]]
name = "loop"
ttft_timeout_ms = 120000
"""


def drains() -> None:
    """Four answers that take two seconds, a stop in the middle, and systemd in a hurry: it allows
    one second, and the daemon asks for more."""
    hurry = drop_in("onegate.service", ["TimeoutStopSec=1s"])
    asked = [
        start("onegate", "ask", f"[[tokens:80]] {i}", "--max-tokens", "80", user="ann")
        for i in range(4)
    ]
    until(lambda: status()["gate"]["in_flight"] == 4, "four answers under way")
    systemctl("stop", "onegate.service")
    for running in asked:
        done = finish(running)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.split()) > 10
    drained = [line for line in journal("onegate.service").splitlines() if "drained " in line]
    assert "4 finished, 0 rejected, 0 aborted" in drained[-1]
    assert prop("onegate.service", "Result") == "success"
    remove_drop_in(hurry)


def test_stop_lets_running_answers_finish() -> None:
    BEFORE_SCRIPTED.write_text(CONFIG.read_text(encoding="utf-8"), encoding="utf-8")
    configure(SLOW)
    ready()
    drains()


def test_a_child_of_the_daemon_gets_nothing_of_systemds() -> None:
    """Without an engine host of its own the daemon starts one: then that unit is passed over."""
    systemctl("stop", "onegate.service", "onegate-engine.service")
    configure(SLOW.replace("host_socket", "# host_socket"))
    ready()
    systemctl("start", "onegate-engine.service")
    assert prop("onegate-engine.service", "Result") == "exec-condition"
    assert not active("onegate-engine.service")
    daemon = pid("onegate.service")
    children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text(encoding="ascii").split()
    (child,) = children
    environ = Path(f"/proc/{child}/environ").read_bytes()
    for name in (b"NOTIFY_SOCKET", b"WATCHDOG", b"LISTEN_", b"INVOCATION_ID", b"STATE_DIRECTORY"):
        assert name not in environ, name
    passed = [os.readlink(fd) for fd in Path(f"/proc/{child}/fd").iterdir()]
    assert len([name for name in passed if name.startswith("socket:")]) == 1, passed
    drains()  # SIGTERM to the child, too, would have ended them


def test_a_hung_engine_host_is_ended_and_nobody_loses_an_answer() -> None:
    """What runs is taken up again on the new host, what waits keeps its place."""
    shorter = drop_in("onegate-engine.service", ["WatchdogSec=3s"])
    systemctl("restart", "onegate-engine.service")
    configure(ONE_SEAT)
    ready()
    daemon = pid("onegate.service")
    runs = start("onegate", "ask", "[[tokens:400]]", "--max-tokens", "400", user="ann")
    until(lambda: status()["gate"]["in_flight"] == 1, "an answer under way")
    waits = [
        start("onegate", "ask", f"[[tokens:5]] {i}", "--max-tokens", "5", user="ann")
        for i in range(3)
    ]
    until(lambda: status()["gate"]["queued"] == 3, "three in the queue")
    host = send(signal.SIGSTOP, "onegate-engine.service")
    until(lambda: pid("onegate-engine.service") not in (0, host), "another host", 60)
    assert "Watchdog timeout" in journal("onegate-engine.service")
    for one in (runs, *waits):
        done = finish(one)
        assert done.returncode == 0, done.stderr
    assert pid("onegate.service") == daemon
    remove_drop_in(shorter)
    systemctl("restart", "onegate-engine.service")


def test_a_killed_engine_host_is_attached_again() -> None:
    daemon = pid("onegate.service")
    host = send(signal.SIGKILL, "onegate-engine.service")
    until(lambda: pid("onegate-engine.service") not in (0, host), "another host")
    ready()
    assert onegate("ask", "hello", "--max-tokens", "1").stdout.strip()
    assert pid("onegate.service") == daemon


def test_back_to_the_real_engine() -> None:
    """Other settings are another engine: the host leaves and is started anew."""
    configure(BEFORE_SCRIPTED.read_text(encoding="utf-8"))
    began = now()
    ready()
    measured("systemctl restart with another model, until it is loaded", now() - began)
    assert pool()["model"] == "smollm2-135m-instruct"
    assert "other settings of the engine" in journal("onegate-engine.service")
