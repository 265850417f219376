"""README.md's section about engines: a server behind the gate, with a stand-in for Ollama; and an
engine whose interpreter is its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.systemd.machine import (
    CHECKOUT,
    CONFIG,
    PREFIX,
    active,
    install,
    left_behind,
    measured,
    now,
    onegate,
    pool,
    prop,
    ready,
    sh,
    until,
)
from tests.systemd.probes.probe_8_readme import README, blocks, typed

SECTION = README.partition("\n## Engines\n")[2].partition("\n## ")[0]
INSTALL, CLOSE = blocks("sh", SECTION)
OLLAMA = ("127.0.0.1", "11434")
_OLLAMA = """
import asyncio
from tests.contract.ollama_stand_in import StandIn

async def serve():
    await StandIn().start(11434)
    await asyncio.Event().wait()

asyncio.run(serve())
"""
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
SERVING: list[subprocess.Popen[bytes]] = []


def serve() -> None:
    """Until the last probe ends it."""
    command = [sys.executable, "-c", _OLLAMA]
    SERVING.append(subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL))
    until(lambda: reached_by(None), "an Ollama")


def reached_by(user: str | None) -> bool:
    return sh("/usr/bin/python3", "-c", _CONNECT, *OLLAMA, user=user, check=False).returncode == 0


def doctor(name: str) -> list[dict[str, Any]]:
    """What the doctor finds under this name, as root."""
    done = onegate("doctor", "--json", user=None, check=False)
    return [check for check in json.loads(done.stdout)["checks"] if check["name"] == name]


def test_an_installed_gate_serves_an_ollama() -> None:
    serve()
    began = now()
    said = typed(INSTALL)
    measured("install.sh --engine ollama", now() - began)
    assert "Ollama has: tiny other" in said
    assert [model in CONFIG.read_text("utf-8") for model in ('"tiny"', '"other"')] == [True, True]
    sh("usermod", "--append", "--groups=onegate-clients", "ann")
    ready()
    assert onegate("ask", "Name a colour.", "--max-tokens", "2").stdout.strip() == "w0 w1"


def test_the_engines_service_is_passed_over() -> None:
    assert prop("onegate-engine.service", "Result") == "exec-condition"
    assert not active("onegate-engine.service")
    assert all(check["verdict"] == "ok" for check in doctor("units"))


def test_its_port_is_open_until_it_is_closed() -> None:
    assert reached_by("bob")
    (found,) = doctor("port")
    assert (found["verdict"], found["command"]) == ("warn", CLOSE.strip())
    typed(CLOSE)
    assert not reached_by("bob")
    assert reached_by(None), "root"
    (found,) = doctor("port")
    assert found["verdict"] == "ok", found
    assert onegate("ask", "Name a colour.", "--max-tokens", "2").stdout.strip() == "w0 w1"
    sh("nft", "delete", "table", "inet", "onegate_engine")
    assert reached_by("bob")


def test_an_engine_has_its_own_interpreter() -> None:
    """TensorRT-LLM is not there, which that interpreter says."""
    own, model = Path("/srv/own/bin/python"), Path("/srv/models/some")
    sh("/usr/bin/python3", "-m", "venv", "--without-pip", "/srv/own")
    model.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (model / name).write_text("{}", "utf-8")
    CONFIG.unlink()
    arguments = ["--engine", "tensorrt-llm", "--model", str(model), "--python", str(own)]
    install(*arguments)
    assert doctor("engine"), "of its pool, and nothing about its interpreter"
    assert "started with" not in json.dumps(doctor("engine"))
    until(lambda: pool()["state"] == "failed", "an engine that lacks its package", 60)
    assert f"not installed for {own}" in pool()["error"]
    # It is known for what it is by the next installation, whose version it is of.
    place = os.readlink(PREFIX / "current")
    assert "started anew" not in install().stdout
    assert os.readlink(PREFIX / "current") == place
    CONFIG.write_text(CONFIG.read_text("utf-8").replace(f'python = "{own}"\n', ""), "utf-8")
    assert "is started with" in doctor("engine")[0]["sentence"]
    assert "started anew" in install().stdout
    assert "started with" not in json.dumps(doctor("engine"))


def test_and_it_is_gone_again() -> None:
    install("uninstall", "--purge")
    assert left_behind() == []
    (server,) = SERVING
    server.kill()
    server.wait()
