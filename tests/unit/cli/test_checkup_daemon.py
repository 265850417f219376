"""Whether the daemon answers, and what it says of itself and its engine."""

import dataclasses
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from onegate import __version__
from onegate.cli import checkup_socket
from onegate.cli.checkup import Listening, Machine, Verdict
from onegate.cli.checkup_daemon import Answers, caller, connection, daemon, engine
from onegate.client import connect
from onegate.client.errors import ProtocolError, Unavailable, error_of
from onegate.protocol import messages as m
from onegate.protocol.errors import Reason
from onegate.source import build

UNTIL = "2030-01-31 07:00:00"
UNTIL_MS = round(datetime.fromisoformat(UNTIL).timestamp() * 1000)


def whoami(**more: Any) -> m.WhoamiReport:
    fields: dict[str, Any] = {
        "id": 1,
        "peer": m.PeerFacts(uid=7, gid=7, pid=7),
        "principal": "uid:7",
        "class_": "loop",
        "ceiling": "interactive",
        "allowed": ["interactive"],
        "why": [],
    }
    return m.WhoamiReport(**(fields | more))


def answers(given: Any, **more: Any) -> Answers:
    status = given.status(**({"version": build(__version__)} | more))
    return Answers(status, whoami(), "", "start it anew", "read the journal")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(
        root=tmp_path, uid=1000, user_name=lambda uid: "anna", listener=lambda path: None
    )


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        yield path


# --- socket ---------------------------------------------------------------------------------------


def test_a_daemon_that_answers(machine: Machine, listening: str, gate: Any, given: Any) -> None:
    gate.answers |= {"status": given.status(), "whoami": whoami()}
    (check,), found = connection(machine, listening)
    assert check.verdict is Verdict.OK
    assert found is not None
    assert (found.status, found.whoami) == (given.status(), whoami())
    assert gate.opened[0]["retry"] == "never"


@pytest.mark.parametrize(("booted", "command"), [(True, "systemctl"), (False, "onegated &")])
def test_no_socket_where_the_systems_should_be(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, booted: bool, command: str
) -> None:
    path = str(tmp_path / "system.sock")
    monkeypatch.setattr(checkup_socket, "SYSTEM_SOCKET", path)
    if booted:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
        (tmp_path / "opt/onegate/current").mkdir(parents=True)
    (check,), found = connection(machine, path)
    assert (check.verdict, found) == (Verdict.FAIL, None)
    assert check.command is not None
    assert command in check.command


def test_no_socket_where_it_was_said_to_be(machine: Machine, tmp_path: Path) -> None:
    (check,), _ = connection(machine, str(tmp_path / "none"))
    assert check.command == f"onegated --socket {tmp_path}/none &"


def test_a_file_in_its_place(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    (check,), _ = connection(machine, str(path))
    assert (check.verdict, check.command) == (Verdict.FAIL, f"ls -l {path}")


def test_a_path_that_may_not_be_looked_at(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", closed)
    (check,), _ = connection(machine, "/closed/s.sock")
    assert (check.verdict, check.command) == (Verdict.FAIL, "namei -l /closed/s.sock")


@pytest.mark.parametrize("system", [True, False])
def test_a_socket_that_is_not_for_this_user(
    machine: Machine, listening: str, gate: Any, system: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system:
        monkeypatch.setattr("onegate.cli.checkup_daemon.SYSTEM_SOCKET", listening)
    gate.answers["open"] = connect._explained(listening, PermissionError(13, "denied"))
    (check,), found = connection(machine, listening)
    assert (check.verdict, found) == (Verdict.FAIL, None)
    wanted = "sudo usermod -aG onegate-clients anna" if system else f"ls -l {listening}"
    assert check.command == wanted


def test_a_socket_at_which_nobody_answers(machine: Machine, listening: str, gate: Any) -> None:
    gate.answers["open"] = Unavailable("nobody listens")
    (check,), found = connection(machine, listening)
    assert (check.verdict, check.sentence, found) == (Verdict.FAIL, "nobody listens", None)
    assert check.command == f"onegated --socket {listening} &"


@pytest.mark.parametrize("error", [Unavailable("no answer"), ProtocolError("what?")])
def test_a_live_socket_is_never_answered_by_a_second_daemon(
    machine: Machine, listening: str, gate: Any, error: Exception
) -> None:
    gate.answers["open"] = error
    (check,), found = connection(
        dataclasses.replace(machine, listener=lambda path: Listening(0, 0)), listening
    )
    assert (check.verdict, found) == (Verdict.FAIL, None)
    assert "onegated" not in (check.command or "")


def test_a_daemon_that_refuses(machine: Machine, listening: str, gate: Any, given: Any) -> None:
    failed = given.failed(Reason.SHUTTING_DOWN)
    gate.answers["open"] = error_of(failed, started=False)
    (check,), found = connection(machine, listening)
    assert (check.verdict, check.command, found) == (Verdict.FAIL, "onegate wait-ready", None)


# --- daemon ---------------------------------------------------------------------------------------


def test_a_daemon_in_good_order(given: Any) -> None:
    (check,) = daemon(answers(given))
    assert check.verdict is Verdict.OK
    assert "3 run, 4 wait" in check.sentence


@pytest.mark.parametrize(
    ("change", "command"),
    [
        ({"version": "0.0.9"}, "start it anew"),
        ({"version": __version__}, "start it anew"),
        ({"version": f"{__version__}+00000000"}, "start it anew"),
        ({"state": "draining"}, "onegate wait-ready"),
    ],
)
def test_a_daemon_that_is_not(given: Any, change: dict[str, str], command: str) -> None:
    (check,) = daemon(answers(given, **change))
    assert (check.verdict, check.command) == (Verdict.WARN, command)


def test_what_it_complains_about_is_passed_on(given: Any) -> None:
    notice = given.notice(code="usage_unwritten", detail="no room", since_ms=1)
    night = given.cls(name="night", paused=True, paused_until_ms=UNTIL_MS)
    found = daemon(answers(given, notices=[notice], classes=[given.cls(paused=True), night]))
    assert [(check.verdict, check.command) for check in found] == [
        (Verdict.WARN, "onegate status"),
        (Verdict.WARN, "onegate unpause batch"),
        (Verdict.WARN, "onegate unpause night"),
    ]
    assert found[1].sentence == "class batch is paused until it is ended by hand"
    assert found[2].sentence == f"class night is paused until {UNTIL}"
    assert "no room" in found[0].sentence


# --- engine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "verdict", "word"),
    [
        ({"state": "ready"}, Verdict.OK, None),
        ({"state": "cold"}, Verdict.OK, None),
        ({"state": "loading"}, Verdict.WARN, "wait-ready"),
        ({"state": "loading", "error": "killed"}, Verdict.WARN, "wait-ready"),
        ({"state": "released"}, Verdict.WARN, "release-gpu --end"),
        ({"state": "failed", "error": "killed"}, Verdict.FAIL, "read the journal"),
        ({"state": "ready", "seats": 4, "seats_quarantined": 4}, Verdict.WARN, "status"),
    ],
)
def test_a_pool(given: Any, fields: dict[str, Any], verdict: Verdict, word: str | None) -> None:
    (check,) = engine(answers(given, pools=[given.pool(**fields)]))
    assert check.verdict is verdict
    assert (word or "") in (check.command or "")
    assert fields.get("error", "") in check.sentence
    assert (check.command is None) is (verdict is Verdict.OK)


def test_until_when_it_is_released(given: Any) -> None:
    pool = given.pool(state="released", released_until_ms=UNTIL_MS)
    (check,) = engine(answers(given, pools=[pool]))
    assert f"tiny is released until {UNTIL}" in check.sentence


def test_an_engine_without_a_model(given: Any) -> None:
    (check,) = engine(answers(given, pools=[]))
    assert check.verdict is Verdict.WARN


def test_an_engine_that_is_not_there_fails_with_its_reason(given: Any) -> None:
    notice = given.notice(code="engine_down", detail="nobody answers", since_ms=1)
    for pools in ([], [given.pool(state="loading")]):
        (check,) = engine(answers(given, pools=pools, notices=[notice]))
        assert (check.verdict, check.command) == (Verdict.FAIL, "read the journal")
        assert check.sentence == "nobody answers"
        (check,) = daemon(answers(given, pools=pools, notices=[notice]))
        assert check.verdict is Verdict.OK  # it is said once


def test_every_pool_is_judged(given: Any) -> None:
    pools = [given.pool(), given.pool(model="other", state="failed")]
    assert [c.verdict for c in engine(answers(given, pools=pools))] == [Verdict.OK, Verdict.FAIL]


@pytest.mark.parametrize("admin", [True, False])
def test_who_one_is(given: Any, admin: bool) -> None:
    (check,) = caller(Answers(given.status(), whoami(admin=admin), "", "", ""))
    assert "uid:7, class loop, ceiling interactive" in check.sentence
    assert ("administrator" in check.sentence) is admin
