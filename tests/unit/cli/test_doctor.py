"""Everything that can be wrong, put together."""

import json
from pathlib import Path
from typing import Any

import pytest

from onegate.cli import doctor as doctor_module
from onegate.cli.checkup import Check, Machine, Verdict
from onegate.cli.doctor import examine, lines
from onegate.cli.main import run


def finding(verdict: Verdict, command: str | None = None, name: str = "x") -> Check:
    return Check(name, verdict, f"this is {verdict}", command)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What is found instead of looking."""
    findings: list[Check] = []
    monkeypatch.setattr(doctor_module, "examine", lambda machine, socket: findings)
    return findings


@pytest.mark.parametrize(
    ("verdicts", "worst", "code"),
    [
        ([Verdict.OK], "ok", 0),
        ([Verdict.SKIP, Verdict.OK], "skip", 0),
        ([Verdict.WARN, Verdict.SKIP, Verdict.OK], "warn", 0),
        ([Verdict.OK, Verdict.FAIL, Verdict.WARN], "fail", 69),
    ],
)
def test_the_worst_decides(
    found: list[Check], capsys: Any, verdicts: list[Verdict], worst: str, code: int
) -> None:
    found += map(finding, verdicts)
    assert run(["doctor", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == worst
    assert [check["verdict"] for check in document["checks"]] == verdicts
    assert set(document["checks"][0]) == {"name", "verdict", "sentence", "command"}
    assert run(["doctor"]) == code


def test_each_bad_finding_has_its_command_below_it() -> None:
    bad = finding(Verdict.FAIL, "sudo mend it", "socket")
    assert lines([finding(Verdict.OK), bad]) == [
        "ok    x       this is ok",
        "fail  socket  this is fail",
        "              type: sudo mend it",
        "1 of 2 checks fail, 0 more are worth a look",
    ]
    assert lines([finding(Verdict.OK)])[-1] == "all is well"
    assert lines([finding(Verdict.WARN)])[-1] == "0 of 1 checks fail, 1 more are worth a look"


def nothing_runs(*command: str) -> None:
    return None


def machine(root: Path, **more: Any) -> Machine:
    fields = {"root": root, "environ": {}, "uid": 1000, "gids": frozenset({1000})}
    fields |= {"run": nothing_runs, "group_of": lambda name: None, "listener": lambda path: None}
    return Machine(**(fields | more))


def test_on_a_bare_machine_every_check_has_a_verdict(tmp_path: Path) -> None:
    found = examine(machine(tmp_path), str(tmp_path / "none.sock"))
    assert {check.name: check.verdict for check in found} == {
        "install": Verdict.OK,
        "config": Verdict.OK,
        "model": Verdict.SKIP,
        "units": Verdict.SKIP,
        "group": Verdict.SKIP,
        "socket": Verdict.FAIL,
    }
    assert all(c.command for c in found if c.verdict in (Verdict.FAIL, Verdict.WARN))


def test_a_daemon_that_answers_is_asked_on(tmp_path: Path, gate: Any, given: Any) -> None:
    import socket

    from tests.unit.cli.test_checkup_daemon import whoami

    gate.answers |= {"status": given.status(), "whoami": whoami()}
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        found = examine(machine(tmp_path), str(path))
    assert [check.name for check in found][-4:] == ["socket", "daemon", "engine", "you"]


def test_the_way_to_the_engine_is_looked_at(tmp_path: Path, monkeypatch: Any) -> None:
    config = tmp_path / "o.toml"
    config.write_text('[engine]\nkind = "ollama"\nollama.models = [{model = "m"}]\n')
    found = examine(machine(tmp_path, environ={"ONEGATE_CONFIG": str(config)}), None)
    assert found[-1].name == "port"


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), RuntimeError("Symlink loop")]
)
def test_what_may_not_be_looked_at_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def closed(machine: Machine) -> list[Check]:
        raise error

    monkeypatch.setattr(doctor_module, "installation", closed)
    first = examine(machine(tmp_path), str(tmp_path / "none.sock"))[0]
    assert (first.name, first.verdict, first.command) == (
        "install",
        Verdict.SKIP,
        "sudo onegate doctor",
    )
