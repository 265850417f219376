"""What to do about a socket, by who listens there."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from onegate.cli.checkup import Listening, Machine, Ran, Verdict
from onegate.cli.checkup_socket import alike, anew, journal, start, unanswered
from onegate.protocol.address import SYSTEM_SOCKET

OWN = "/run/user/1000/my own.sock"
DAEMON = Listening(77, 1000)


def machine(
    root: Path,
    who: Listening | OSError | None,
    *,
    booted: bool = False,
    units: dict[str, str] | None = None,
    **more: Any,
) -> Machine:
    """`units`: what `systemctl is-active` says of them."""
    if booted:
        (root / "run/systemd/system").mkdir(parents=True)

    def listener(path: str) -> Listening | None:
        if isinstance(who, OSError):
            raise who
        return who

    def run(*command: str) -> Ran | None:
        assert command[:2] == ("systemctl", "is-active")
        state = (units or {}).get(command[2])
        return None if state is None else Ran(0 if state == "active" else 3, f"{state}\n", "")

    return Machine(root=root, uid=1000, listener=listener, run=run, **more)


def process(root: Path, state: str, pid: int = 77) -> None:
    (root / f"proc/{pid}").mkdir(parents=True)
    (root / f"proc/{pid}/stat").write_text(f"{pid} (a (b) c) {state} 1 1\n")


def test_where_nobody_listens_somebody_is_started(tmp_path: Path) -> None:
    found = unanswered(machine(tmp_path, None), OWN, "nobody listens")
    assert (found.verdict, found.sentence) == (Verdict.FAIL, "nobody listens")
    assert found.command == start(machine(tmp_path, None), OWN) == f"onegated --socket '{OWN}' &"


@pytest.mark.parametrize(
    ("booted", "present", "command"),
    [
        (True, True, "sudo systemctl start onegate.socket"),
        (True, False, "onegated &"),
        (False, True, "onegated &"),
    ],
)
def test_the_systems_socket_is_systemds_to_open(
    tmp_path: Path, booted: bool, present: bool, command: str
) -> None:
    if present:
        (tmp_path / "opt/onegate/current").mkdir(parents=True)
    found = unanswered(machine(tmp_path, None, booted=booted), SYSTEM_SOCKET, "nobody listens")
    assert found.command == command


@pytest.mark.parametrize(
    ("service", "command"),
    [
        ("active", "journalctl -u onegate.service -n 50 --no-pager"),
        ("activating", "journalctl -u onegate.service -n 50 --no-pager"),
        ("inactive", "sudo systemctl start onegate.service"),
        ("failed", "sudo systemctl start onegate.service"),
        (None, "sudo systemctl start onegate.service"),
    ],
)
def test_where_systemd_listens_its_service_is_looked_at(
    tmp_path: Path, service: str | None, command: str
) -> None:
    process(tmp_path, "S", 1)
    units = {"onegate.socket": "active"} | ({"onegate.service": service} if service else {})
    found = unanswered(
        machine(tmp_path, Listening(1, 0), booted=True, units=units), SYSTEM_SOCKET, "no answer"
    )
    assert (found.verdict, found.command) == (Verdict.FAIL, command)
    assert (service or "unknown") in found.sentence
    assert "no answer" in found.sentence


@pytest.mark.parametrize(
    ("state", "uid", "command"),
    [
        ("S", 1000, "kill 77"),
        ("R", 0, "sudo kill 77"),
        ("T", 1000, "kill -CONT 77"),
        ("t", 0, "sudo kill -CONT 77"),
    ],
)
@pytest.mark.parametrize("path", [OWN, SYSTEM_SOCKET])
def test_a_daemon_in_the_foreground_that_hangs_is_named(
    tmp_path: Path, state: str, uid: int, command: str, path: str
) -> None:
    process(tmp_path, state)
    units = {"onegate.socket": "inactive"}
    found = unanswered(
        machine(tmp_path, Listening(77, uid), booted=True, units=units), path, "no answer"
    )
    assert (found.verdict, found.command) == (Verdict.FAIL, command)
    assert "process 77" in found.sentence


@pytest.mark.parametrize("pid", [0, -1, 77])
def test_one_that_cannot_be_seen_is_looked_for(tmp_path: Path, pid: int) -> None:
    found = unanswered(machine(tmp_path, Listening(pid, 1000)), OWN, "no answer")
    assert (found.verdict, found.command) == (Verdict.FAIL, f"sudo ss -xlp src '{OWN}'")


def test_a_socket_that_may_not_be_looked_at(tmp_path: Path) -> None:
    closed = PermissionError(13, "Permission denied")
    found = unanswered(machine(tmp_path, closed), OWN, "no answer")
    assert found.command == f"namei -l '{OWN}'"


def test_where_more_of_its_words_are(tmp_path: Path) -> None:
    ours = machine(tmp_path, DAEMON, booted=True, units={"onegate.socket": "active"})
    assert journal(ours, OWN) == "onegate status"  # no service has a journal of it
    assert "-u onegate.service -u onegate-engine.service" in journal(ours, SYSTEM_SOCKET)


def test_what_starts_a_daemon_anew(tmp_path: Path) -> None:
    active = {"onegate.socket": "active"}
    ours = machine(tmp_path, DAEMON, booted=True, units=active)
    assert anew(ours, SYSTEM_SOCKET) == "sudo systemctl restart onegate.service"
    assert anew(ours, OWN) == f"sudo ss -xlp src '{OWN}'"
    process(tmp_path, "S")
    gone = "kill 77 && tail --pid=77 -f /dev/null &&"
    assert anew(ours, OWN) == f"{gone} onegated --socket '{OWN}' &"
    (tmp_path / "proc/77/cmdline").write_bytes(b"/v/python\0/v/onegated\0--config\0/my own.toml\0")
    again = "/v/python /v/onegated --config '/my own.toml' &"
    assert anew(ours, OWN) == f"{gone} {again}"
    theirs = dataclasses.replace(ours, listener=lambda _: Listening(77, 0), user_name=lambda _: "r")
    assert anew(theirs, OWN) == f"sudo {gone} sudo -u r {again}"
    assert anew(machine(tmp_path, OSError(5, "gone")), OWN) == f"sudo ss -xlp src '{OWN}'"


def test_a_checkout_is_not_what_a_restart_of_the_service_makes_run(tmp_path: Path) -> None:
    units = {"onegate.socket": "active"}
    (tmp_path / "opt/onegate/1.0/venv/bin").mkdir(parents=True)
    (tmp_path / "opt/onegate/current").symlink_to("1.0")
    mine = str(tmp_path / "opt/onegate/1.0/venv/bin/python")
    installed = machine(tmp_path, DAEMON, booted=True, units=units, python=mine)
    assert alike(installed, SYSTEM_SOCKET, "again") == "again"
    checkout = dataclasses.replace(installed, python="/home/anna/.venv/bin/python")
    assert alike(checkout, SYSTEM_SOCKET, "again") == "/usr/local/bin/onegate doctor"
    assert alike(checkout, OWN, "again") == "again"
