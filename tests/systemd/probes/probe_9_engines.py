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
    configure,
    install,
    left_behind,
    measured,
    now,
    onegate,
    pid,
    pool,
    prop,
    ready,
    sh,
    systemctl,
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
OWN = Path("/srv/own/bin/python")
SCRIPTED = f"""
[engine]
kind = "scripted"
host_socket = "/run/onegate-engine/host.sock"
python = "{OWN}"
"""
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


def test_tensorrt_llm_has_its_own_interpreter() -> None:
    """The package is not there, which that interpreter says."""
    model = Path("/srv/models/some")
    sh("/usr/bin/python3", "-m", "venv", "--without-pip", OWN.parents[1])
    model.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (model / name).write_text("{}", "utf-8")
    CONFIG.unlink()
    install("--engine", "tensorrt-llm", "--model", str(model), "--python", str(OWN))
    # Until it listens the daemon says that.
    said = f"not installed for {OWN}"
    until(lambda: said in (pool()["error"] or ""), "an engine that lacks its package", 60)
    assert pool()["state"] == "failed"
    assert "started with" not in json.dumps(doctor("engine"))


def test_an_interpreter_is_changed_by_the_next_installation() -> None:
    configure(SCRIPTED, restart=False)
    systemctl("restart", "onegate-engine.service", "onegate.service")
    ready()
    assert onegate("ask", "hello", "--max-tokens", "1").stdout.strip()
    host = pid("onegate-engine.service")
    assert Path(f"/proc/{host}/cmdline").read_bytes().startswith(os.fsencode(OWN))
    # It is known as one of this version, which is left alone.
    assert "started anew" not in install().stdout
    assert pid("onegate-engine.service") == host
    configure(SCRIPTED.replace("python", "# python"), restart=False)
    assert "is started with /srv/own/bin/python" in doctor("engine")[0]["sentence"]
    assert "started anew" in install().stdout
    assert "started with" not in json.dumps(doctor("engine"))
    ready()
    host = pid("onegate-engine.service")
    assert Path(f"/proc/{host}/cmdline").read_bytes().startswith(os.fsencode(PREFIX))


def test_and_it_is_gone_again() -> None:
    install("uninstall", "--purge")
    assert left_behind() == []
    (server,) = SERVING
    server.kill()
    server.wait()
