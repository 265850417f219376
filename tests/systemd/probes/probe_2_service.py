"""The installed units: activation, who may connect, what systemctl shows, the sandbox."""

import os
from pathlib import Path

from tests.systemd.machine import (
    CONFIG,
    SOCKET,
    Done,
    active,
    configure,
    journal,
    now,
    onegate,
    pid,
    prop,
    ready,
    sh,
    status,
    systemctl,
    until,
)

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"


def in_the_sandbox(*command: str) -> Done:
    """What the daemon's own user sees from the daemon's place."""
    inside = ["nsenter", f"--target={pid('onegate.service')}", "--mount", "--ipc"]
    user = ["setpriv", "--reuid=onegate", "--regid=onegate", "--clear-groups", "--no-new-privs"]
    return sh(*inside, *user, *command, check=False)


def test_the_first_connection_starts_it() -> None:
    systemctl("stop", "onegate.service")
    assert not active("onegate.service")
    assert active("onegate.socket")
    assert onegate("whoami").stdout.startswith("class")
    assert active("onegate.service")


def test_an_outsider_may_not_connect() -> None:
    done = sh("/usr/bin/python3", "-c", CONNECT, SOCKET, user="bob", check=False)
    assert "PermissionError: [Errno 13]" in done.stderr
    asked = onegate("ask", "hello", user="bob", check=False)
    assert asked.returncode == 77
    assert "names the group to join" in asked.stderr


def test_nobody_but_the_daemon_reaches_the_engine() -> None:
    host = Path("/run/onegate-engine/host.sock")
    for user in ("ann", "bob", "eve"):
        done = sh("/usr/bin/python3", "-c", CONNECT, host, user=user, check=False)
        assert "PermissionError: [Errno 13]" in done.stderr, user


def test_systemctl_shows_what_it_does() -> None:
    shown = until(
        lambda: "0 running, 0 waiting" in systemctl("status", "onegate.service").stdout,
        "the status text",
    )
    assert shown
    assert "serves the daemon" in systemctl("status", "onegate-engine.service").stdout


def test_what_the_sandbox_grants() -> None:
    for path in ("/proc/pressure/memory", "/proc/pressure/cpu", "/proc/1/cgroup", "/proc/1/stat"):
        assert in_the_sandbox("cat", path).stdout, path
    assert in_the_sandbox("ls", "/sys/fs/cgroup/system.slice").stdout
    assert in_the_sandbox("touch", "/var/lib/onegate/probe").returncode == 0
    assert in_the_sandbox("rm", "/var/lib/onegate/probe").returncode == 0


def test_what_the_sandbox_denies() -> None:
    for path in ("/etc/onegate/x", "/run/onegate/x", "/opt/onegate/x", "/var/x", "/dev/shm2"):
        done = in_the_sandbox("touch", path)
        assert "denied" in done.stderr or "Read-only" in done.stderr, (path, done.stderr)
    assert in_the_sandbox("ls", "/home").stdout == ""
    assert in_the_sandbox("ls", "/root").returncode != 0
    for unit in ("onegate.service", "onegate-engine.service"):
        lines = Path(f"/proc/{pid(unit)}/status").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert int(fields["CapBnd"], 16) == 0, unit
        assert int(fields["CapEff"], 16) == 0, unit
        assert fields["NoNewPrivs"] == "1", unit
        assert fields["Seccomp"] == "2", unit
        assert fields["Uid"].split()[0] != "0", unit


def test_a_bug_in_the_sandbox_would_be_seen_as_another_users_peer() -> None:
    # PrivateUsers= would make every peer 65534, and the next three questions meaningless.
    assert f"uid {os.stat('/home/ann').st_uid}" in onegate("whoami").stdout


def test_the_journal_has_a_line_for_each_request() -> None:
    ready()
    onegate("ask", "hello", "--max-tokens", "2", "--class", "batch")
    (line, *_) = [x for x in journal("onegate.service").splitlines()[::-1] if "request_end" in x]
    for word in ("rid=", "class=batch", "outcome=finished", "ttft_ms="):
        assert word in line, line


def test_reload_takes_a_good_file_and_refuses_a_broken_one() -> None:
    before = CONFIG.read_text(encoding="utf-8")
    daemon = pid("onegate.service")
    configure(before.replace("[gate]", "[gate]\nmax_in_flight = 17"), restart=False)
    systemctl("reload", "onegate.service")
    until(lambda: status()["gate"]["max_in_flight"] == 17, "the new limit")
    configure(before + "\nnonsense = 1\n", restart=False)
    done = systemctl("reload", "onegate.service", check=False)
    assert done.returncode != 0
    assert "nonsense" in journal("onegate.service")
    assert status()["gate"]["max_in_flight"] == 17
    more = before + '\n[[class]]\nname = "later"\nrank = 7\n'
    configure(more, restart=False)
    systemctl("reload", "onegate.service")
    until(lambda: len(status()["classes"]) == 4, "another class")
    configure(before, restart=False)
    done = systemctl("reload", "onegate.service", check=False)
    assert done.returncode != 0, "a class can't be taken away from requests that are in it"
    assert "class.later" in journal("onegate.service")
    assert len(status()["classes"]) == 4
    systemctl("restart", "onegate.service")
    ready()
    assert len(status()["classes"]) == 3
    daemon = pid("onegate.service")
    assert pid("onegate.service") == daemon
    assert prop("onegate.service", "ActiveState") == "active"


def test_a_bad_file_at_a_start_fails_it_and_not_the_socket() -> None:
    before = CONFIG.read_text(encoding="utf-8")
    configure("nonsense = 1\n", restart=False)
    assert systemctl("restart", "onegate.service", check=False).returncode != 0
    assert prop("onegate.service", "ExecMainStatus") == "78"
    for _ in range(25):  # more than systemd starts within its usual limits
        began = now()
        assert onegate("whoami", check=False).returncode == 69
        assert now() - began < 30, "turned away, and not left waiting"
    assert prop("onegate.service", "NRestarts") == "0"
    assert active("onegate.socket"), systemctl("status", "onegate.socket", check=False).stdout
    configure(before, restart=False)
    assert onegate("whoami").stdout.startswith("class")
