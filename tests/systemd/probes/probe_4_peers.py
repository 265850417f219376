"""Who gets which class, by where systemd put them. `whoami` says why."""

import json
import os
from pathlib import Path
from typing import Any

from tests.systemd.machine import as_user, onegate, run_as_unit, sh, until

ANSWER = Path("/srv/results/whoami.json")
WHOAMI = "/usr/local/bin/onegate whoami --json"


def whoami_in(unit: str, **settings: str) -> dict[str, Any]:
    said = run_as_unit(unit, {"User": "ann", "ExecStart": WHOAMI, **settings}, ANSWER)
    report: dict[str, Any] = json.loads(said)
    assert report["peer"]["unit"] == unit
    return report


def test_a_job_of_cron_is_batch_and_is_told_why() -> None:
    report = whoami_in("cron.service")
    assert (report["class"], report["ceiling"]) == ("batch", "batch")
    assert any("cron.service" in why for why in report["why"]), report["why"]


def test_a_job_of_cron_cannot_raise_itself() -> None:
    ask = "/bin/sh -c '/usr/local/bin/onegate ask hello --class interactive; echo code $?'"
    assert "code 77" in run_as_unit("cron.service", {"User": "ann", "ExecStart": ask}, ANSWER)


def test_a_nightly_job_is_answered_or_told_when_to_come_back() -> None:
    ask = "/bin/sh -c '/usr/local/bin/onegate ask hello --max-tokens 2 2>&1; echo code $?'"
    assert "code 0" in run_as_unit("cron.service", {"User": "ann", "ExecStart": ask}, ANSWER)
    onegate("pause", "batch", "--until", "2h", user="eve")
    refused = run_as_unit("cron.service", {"User": "ann", "ExecStart": ask}, ANSWER)
    onegate("unpause", "batch", user="eve")
    assert "code 75" in refused
    assert "try again in" in refused


def test_a_container_is_loop() -> None:
    name = f"docker-{'a1' * 32}.scope"
    inside = [*as_user("ann"), *WHOAMI.split()]
    said = sh("systemd-run", "--quiet", "--scope", f"--unit={name}", *inside).stdout
    report = json.loads(said)
    assert report["peer"]["unit"] == name
    assert report["ceiling"] == "loop"


def test_a_login_is_interactive() -> None:
    """A real one: PAM, logind, a session scope, a terminal."""
    command = f"{WHOAMI} >/home/ann/whoami.json"
    sh("su", "--pty", "--login", "ann", "--command", command)
    report = json.loads(Path("/home/ann/whoami.json").read_text(encoding="utf-8"))
    assert report["peer"]["slice"] == f"user-{os.stat('/home/ann').st_uid}.slice", report
    assert report["peer"]["unit"].startswith("session-")
    assert (report["class"], report["ceiling"]) == ("interactive", "interactive")


def test_a_service_that_nobody_knows_is_not_interactive() -> None:
    assert whoami_in("something.service")["ceiling"] != "interactive"


def test_administrators_and_nobody_else_may_pause() -> None:
    assert onegate("pause", "batch", user="ann", check=False).returncode == 77
    onegate("pause", "batch", user="eve")
    assert onegate("ask", "hello", "--class", "batch", check=False).returncode == 75
    onegate("unpause", "batch", user="eve")
    until(lambda: onegate("ask", "a", "--class", "batch", "--max-tokens", "1").stdout, "an answer")
