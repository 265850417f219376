"""Ollama's API in front of the gate: installed and idle, started by its first client, and told by
the kernel who that is. Here control groups are of version 2, so the unit is known too."""

import json
import signal
from pathlib import Path
from typing import Any

from tests.systemd.machine import (
    active,
    journal,
    pid,
    prop,
    run_as_unit,
    send,
    sh,
    systemctl,
    until,
)

SOCKET_UNIT, UNIT = "onegate-ollama-proxy.socket", "onegate-ollama-proxy.service"
URL = "http://127.0.0.1:11434"
ANSWER = Path("/srv/results/ollama.json")
PROGRAM = Path("/srv/ollama_client.py")
# The standard library alone, for the system's own Python.
CLIENT = f"""
import json, sys, urllib.request
with urllib.request.urlopen("{URL}/api/tags", timeout=60) as answer:
    model = json.load(answer)["models"][0]["name"]
turns = [{{"role": "user", "content": "Hello"}}]
body = {{"model": model, "messages": turns, "stream": False, "options": {{"num_predict": 2}}}}
request = urllib.request.Request("{URL}/api/chat", json.dumps(body).encode())
with urllib.request.urlopen(request, timeout=120) as answer:
    print(json.dumps(json.load(answer)))
"""


def ask(**settings: str) -> dict[str, Any]:
    """A chat by a unit of the system's."""
    PROGRAM.write_text(CLIENT, encoding="utf-8")
    unit = settings.pop("unit", "something.service")
    command = {"User": "nobody", "ExecStart": f"/usr/bin/python3 {PROGRAM}", **settings}
    said: dict[str, Any] = json.loads(run_as_unit(unit, command, ANSWER))
    return said


def test_it_is_installed_and_waits_for_whoever_wants_it() -> None:
    for unit in (SOCKET_UNIT, UNIT):
        assert not active(unit)
        assert systemctl("is-enabled", unit, check=False).stdout.strip() == "disabled"
    done = sh("systemd-analyze", "verify", SOCKET_UNIT, UNIT)
    assert done.stderr == ""


def test_its_first_client_starts_it() -> None:
    systemctl("enable", "--now", SOCKET_UNIT)
    assert not active(UNIT)
    said = ask()
    assert said["done"] is True
    assert active(UNIT)
    assert prop(UNIT, "NRestarts") == "0"


def test_a_client_is_known_by_user_and_unit() -> None:
    ask(unit="cron.service")
    lines = [line for line in journal(UNIT).splitlines() if "path=/api/chat" in line]
    assert "unit=cron.service" in lines[-1]
    assert "class=batch" in lines[-1]
    assert "unit=something.service" in lines[0]
    assert "class=loop" in lines[0]
    uid = sh("id", "-u", "nobody").stdout.strip()
    assert f"client=uid:{uid}" in lines[-1]


def test_a_crash_leaves_the_socket_open() -> None:
    died = send(signal.SIGKILL, UNIT)
    assert ask()["done"] is True
    assert pid(UNIT) not in (0, died)


def test_a_loop_that_stands_still_is_started_anew() -> None:
    stood = send(signal.SIGSTOP, UNIT)
    until(lambda: pid(UNIT) not in (0, stood), "the watchdog ends it", timeout_s=60)
    assert ask()["done"] is True


def test_it_is_stopped_again() -> None:
    systemctl("disable", "--now", SOCKET_UNIT, UNIT)
    for unit in (SOCKET_UNIT, UNIT):
        assert not active(unit)
    assert prop(UNIT, "Result") == "success"
