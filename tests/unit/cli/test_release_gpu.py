"""Lending the device, and taking it back."""

import json
import threading
from datetime import datetime
from typing import Any

import msgspec
import pytest

from onegate.cli import waiting
from onegate.cli.closed import warn
from onegate.cli.main import run
from onegate.protocol.status import GateStatus

NOW = datetime(2030, 1, 31, 12, 0, 30)
UNTIL = datetime(2030, 1, 31, 14, 0, 30)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onegate.cli.release_gpu.wall_ms", lambda: round(NOW.timestamp() * 1000))


def ready(gate: Any, given: Any, *, in_flight: int = 0, free: bool = True) -> None:
    figures = GateStatus(
        in_flight=in_flight,
        max_in_flight=64,
        queued=0,
        queued_tok=0,
        max_queued_tok=1000,
        inbound_bytes=0,
        sessions=1,
    )
    gate.answers |= {"status": given.status(gate=figures), "release_engine": free}


def asked(gate: Any) -> dict[str, Any]:
    (keywords,) = [kw for name, _, kw in gate.calls if name == "release_engine"]
    found: dict[str, Any] = keywords
    return found


def test_for_a_time(gate: Any, given: Any, capsys: Any) -> None:
    ready(gate, given)
    assert run(["release-gpu", "--for", "2h"]) == 0
    assert asked(gate) == {"until": UNTIL.timestamp(), "now": False, "on_notice": warn}
    out, err = capsys.readouterr()
    assert "free until 2030-01-31 14:00:30" in out
    assert "--end" in out
    assert err == ""


def test_until_it_is_taken_back(gate: Any, given: Any, capsys: Any) -> None:
    ready(gate, given)
    assert run(["release-gpu", "--now"]) == 0
    assert asked(gate) == {"until": None, "now": True, "on_notice": warn}
    assert "the device is free; " in capsys.readouterr().out


@pytest.mark.parametrize(("flags", "said"), [([], True), (["--now"], False), (["--json"], False)])
def test_what_is_waited_for_is_said(
    gate: Any, given: Any, capsys: Any, flags: list[str], said: bool
) -> None:
    ready(gate, given, in_flight=3)
    assert run(["release-gpu", *flags]) == 0
    assert ("3 requests run; waiting" in capsys.readouterr().err) is said


@pytest.mark.parametrize(
    ("in_flight", "said"),
    [
        (1, "1 request runs; waiting"),
        (0, "until the engine says that nothing is loaded (tiny: it does not answer)"),
    ],
)
def test_what_takes_long_is_said_while_it_does(
    gate: Any, given: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch, in_flight: int, said: str
) -> None:
    monkeypatch.setattr(waiting, "LOOK_S", 0)
    ready(gate, given, in_flight=in_flight)
    pools = [given.pool(state="released", error="it does not answer")]
    gate.answers["status"] = msgspec.structs.replace(gate.answers["status"], pools=pools)
    asked, complained = threading.Event(), []

    def complain(text: str) -> None:
        complained.append(text)
        asked.set()

    def release(**_: object) -> bool:
        assert asked.wait(60), "nothing is said"
        return True

    monkeypatch.setattr(waiting, "complain", complain)
    gate.release_engine = release
    assert run(["release-gpu", "--now"]) == 0
    assert len(complained) == 1
    assert said in complained[0]


def test_taken_back_by_somebody_else_meanwhile(gate: Any, given: Any, capsys: Any) -> None:
    ready(gate, given, free=False)
    assert run(["release-gpu"]) == 75
    assert "took it back" in capsys.readouterr().err
    assert run(["release-gpu", "--for", "2h", "--json"]) == 75
    assert json.loads(capsys.readouterr().out) == {"released": False, "released_until_ms": None}


def test_as_a_document(gate: Any, given: Any, capsys: Any) -> None:
    ready(gate, given)
    assert run(["release-gpu", "--for", "2h", "--json"]) == 0
    until_ms = round(UNTIL.timestamp() * 1000)
    assert json.loads(capsys.readouterr().out) == {"released": True, "released_until_ms": until_ms}


@pytest.mark.parametrize(
    ("applied", "text"), [(True, "it is taken back"), (False, "it was not released")]
)
def test_taking_it_back(gate: Any, capsys: Any, applied: bool, text: str) -> None:
    gate.answers["take_back"] = applied
    assert run(["release-gpu", "--end"]) == 0
    assert text in capsys.readouterr().out
    assert run(["release-gpu", "--end", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"released": False, "applied": applied}
    assert {name for name, _, _ in gate.calls} == {"take_back"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--for", "soon"], "--for 'soon' is no time"),
        (["--for", "0s"], "--for 0s has passed"),
        (["--for", "9999-12-31"], "--for 9999-12-31 is more than 30 days ahead"),
        (
            ["--for", "31d"],
            "--for 31d is more than 30 days ahead: leave it out, and end it by hand",
        ),
        (["--end", "--for", "2h"], "--end takes"),
        (["--end", "--now"], "--end takes"),
    ],
)
def test_what_makes_no_sense_is_found_before_the_daemon_is_asked(
    gate: Any, capsys: Any, arguments: list[str], said: str
) -> None:
    assert run(["release-gpu", *arguments]) == 64
    assert gate.opened == []
    assert said in capsys.readouterr().err
