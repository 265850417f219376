"""Every mistake of a file, at once."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from onegate.cli.main import run
from onegate.client.errors import Unavailable

BAD = '[gate]\nmax_in_flight = 0\nmax_in_fligth = 3\n[[class]]\nname = "batch"\nrank = "high"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "onegate.toml"


def test_a_good_file(file: Path, capsys: Any) -> None:
    file.write_text("")
    assert run(["check-config", str(file)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"{file}: good\n", "")


def test_every_mistake_is_told_with_its_place(file: Path, capsys: Any) -> None:
    file.write_text(BAD)
    assert run(["check-config", str(file)]) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 3
    for place in ("gate.max_in_flight: ", "gate.max_in_fligth: ", "class.batch.rank: "):
        assert any(f"onegate: {file}: {place}" in line for line in lines)


def test_json_lists_them_too(file: Path, capsys: Any) -> None:
    file.write_text(BAD)
    assert run(["check-config", str(file), "--json"]) == 78
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    paths = {error["path"] for error in document["errors"]}
    assert paths == {"gate.max_in_flight", "gate.max_in_fligth", "class.batch.rank"}
    assert captured.err == ""


def test_a_warning_is_no_error(file: Path, capsys: Any) -> None:
    file.write_text("[gate]\nmax_in_flight = 2\n")
    assert run(["check-config", str(file)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{file}: usable, 1 warnings\n"
    assert "warning: gate.max_in_flight" in captured.err


def test_a_file_that_is_not_there(file: Path, capsys: Any) -> None:
    assert run(["check-config", str(file)]) == 78
    assert "No such file" in capsys.readouterr().err


def test_a_path_that_no_socket_can_have(file: Path, capsys: Any) -> None:
    file.write_text(f'[gate]\nsocket_path = "/{"x" * 120}"\n')
    assert run(["check-config", str(file)]) == 78
    assert "gate.socket_path" in capsys.readouterr().err


def test_the_environment_is_not_judged(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("ONEGATE_SOCKET", "relative")
    file.write_text("")
    assert run(["check-config", str(file)]) == 0


def test_a_pipe_is_no_configuration(file: Path, capsys: Any) -> None:
    os.mkfifo(file)
    assert run(["check-config", str(file)]) == 78
    assert "is no regular file" in capsys.readouterr().err


def test_the_null_device_is_the_defaults() -> None:
    assert run(["check-config", "/dev/null"]) == 0


HOSTED = '[engine]\nhost_socket = "/run/onegate-engine/host.sock"\n'


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (HOSTED, 0, "in an engine host at /run/onegate-engine/host.sock"),
        (f'{HOSTED}kind = "openai"', 1, "is a server of its own"),
        ("", 1, "engine.host_socket is not set"),
    ],
)
def test_whether_an_engine_host_is_needed(
    file: Path, capsys: Any, text: str, code: int, says: str
) -> None:
    file.write_text(text)
    assert run(["check-config", "--needs-host", str(file)]) == code
    captured = capsys.readouterr()
    assert says in captured.out
    assert captured.err == ""
    assert run(["check-config", "--needs-host", "--json", str(file)]) == code
    assert json.loads(capsys.readouterr().out)["needs_host"] is (code == 0)


def test_a_bad_file_needs_correcting_first(file: Path, capsys: Any) -> None:
    file.write_text(BAD)
    assert run(["check-config", "--needs-host", str(file)]) == 78
    assert len(capsys.readouterr().err.splitlines()) == 3


CLASSES = '[[class]]\nname = "night"\nrank = 3\n'


@pytest.mark.parametrize("json_too", [False, True])
def test_a_class_that_the_running_daemon_has_is_missed(
    file: Path, gate: Any, given: Any, capsys: Any, json_too: bool
) -> None:
    names = ("interactive", "loop", "batch", "night")
    gate.answers["status"] = given.status(classes=[given.cls(name=name) for name in names])
    more = ["--json"] if json_too else []
    file.write_text(CLASSES)
    assert run(["check-config", "--running", "--socket", "/s", str(file), *more]) == 0
    file.write_text("")
    capsys.readouterr()
    assert run(["check-config", "--running", "--socket", "/s", str(file), *more]) == 78
    captured = capsys.readouterr()
    assert "class.night" in (captured.out if json_too else captured.err)
    assert [opened["socket"] for opened in gate.opened] == ["/s", "/s"]


def test_without_a_daemon_nothing_is_known_of_it(file: Path, gate: Any, capsys: Any) -> None:
    gate.answers["open"] = Unavailable("no daemon")
    file.write_text("")
    assert run(["check-config", "--running", str(file)]) == 69
    file.write_text(BAD)
    assert run(["check-config", "--running", str(file)]) == 78
