"""The unit files as they are in the checkout: what systemd makes of them without running them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from onegate import config
from onegate.server.listener import FD_NAME
from onegate_ollama_proxy import config as proxy_config

UNITS = Path(__file__).parents[2] / "systemd"
PROXY = Path(__file__).parents[2] / "contrib" / "ollama-proxy" / "systemd"
PROXY_NAMES = ("onegate-ollama-proxy.socket", "onegate-ollama-proxy.service")
NAMES = ("onegate.socket", "onegate.service", "onegate-engine.service", *PROXY_NAMES)

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def place(name: str) -> Path:
    """Where a file of the installation is in the checkout."""
    return (PROXY if name in PROXY_NAMES else UNITS) / name


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units where their programs exist."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in NAMES:
        text = place(name).read_text(encoding="utf-8")
        for program in re.findall(r"/opt/onegate/current/\S*/(\S+)", text):
            (programs / program).write_text("#!/bin/sh\n")
            (programs / program).chmod(0o755)
        text = re.sub(r"/opt/onegate/current/(venv/bin|libexec)", str(programs), text)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SYSTEMD_COLORS": "0"},
    )


def settings(name: str) -> dict[str, list[str]]:
    """Every value of every setting, by name, in the order of the file."""
    found: dict[str, list[str]] = {}
    for line in place(name).read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_systemd_has_no_complaint(installed: Path) -> None:
    """It exits with 0 for a key that it does not know, and tells only in words."""
    done = analyze("verify", "--man=no", *(installed / name for name in NAMES))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_key_that_systemd_does_not_know_would_be_noticed(installed: Path) -> None:
    unit = installed / "onegate.service"
    unit.write_text(unit.read_text().replace("KillMode=", "KilMode="), encoding="utf-8")
    assert "KilMode" in analyze("verify", "--man=no", unit).stderr


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".service")])
def test_the_sandbox_does_not_erode(installed: Path, name: str) -> None:
    done = analyze("security", "--offline=yes", "--threshold=20", "--no-pager", installed / name)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_drop_in_for_a_gpu(installed: Path) -> None:
    place = installed / "onegate-engine.service.d"
    place.mkdir()
    shutil.copy(UNITS / "nvidia.conf", place)
    done = analyze("verify", "--man=no", installed / "onegate-engine.service")
    assert (done.returncode, done.stderr) == (0, "")
    done = analyze(
        "security",
        "--offline=yes",
        "--threshold=30",
        "--no-pager",
        installed / "onegate-engine.service",
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "char-nvidia" in done.stdout, "the drop-in counts"


def test_what_would_blind_the_gate_is_not_there() -> None:
    gate = settings("onegate.service")
    assert not gate.keys() & {"PrivateUsers", "ProtectProc", "ProcSubset"}
    assert "MemoryDenyWriteExecute" not in settings("onegate-engine.service")


def test_the_proxy_can_be_told_who_its_clients_are() -> None:
    proxy = settings("onegate-ollama-proxy.service")
    assert not proxy.keys() & {"PrivateUsers", "PrivateNetwork"}
    (families,) = proxy["RestrictAddressFamilies"]
    assert "AF_NETLINK" in families
    assert proxy["SupplementaryGroups"] == ["onegate-clients"]


def test_the_proxys_socket_is_the_one_that_ollamas_clients_and_its_listener_have() -> None:
    (listener,) = proxy_config.Config().listeners
    assert settings("onegate-ollama-proxy.socket")["ListenStream"] == [listener.address]


def test_the_gate_knows_the_proxy_by_its_unit() -> None:
    shipped = config.Config().shipped_grants
    (grant,) = [grant for grant in shipped if grant.delegate]
    assert grant.unit in PROXY_NAMES


def test_a_restart_leaves_the_socket_and_its_directory_alone() -> None:
    for name in NAMES:
        found = settings(name)
        assert not found.keys() & {"PartOf", "BindsTo", "RuntimeDirectory"}, name
    assert settings("onegate.service")["KillMode"] == ["mixed"]
    assert settings("onegate.service")["StartLimitIntervalSec"] == ["0"]
    assert settings("onegate.socket")["TriggerLimitIntervalSec"] == ["0"]


def test_the_socket_is_the_one_that_the_daemon_and_its_clients_look_for() -> None:
    socket = settings("onegate.socket")
    assert socket["ListenStream"] == ["/run/onegate/onegate.sock"]
    assert FD_NAME == "onegate.socket"
    gate = config.load(str(UNITS / "onegate.toml"), environ={}).gate
    assert socket["SocketMode"] == [f"{gate.socket_mode:04o}"]
    assert socket["Backlog"] == [str(gate.socket_backlog)]


def test_the_installed_configuration_is_good_and_lives_beside_the_engine() -> None:
    installed = config.load(str(UNITS / "onegate.toml"), environ={})
    assert config.warnings(installed) == []
    assert installed.engine.host_socket == "/run/onegate-engine/host.sock"
    (start,) = settings("onegate-engine.service")["ExecStart"]
    assert f"--listen {installed.engine.host_socket} " in start


@pytest.mark.parametrize("name", [*NAMES, "nvidia.conf"])
def test_each_block_of_settings_says_why(name: str) -> None:
    """Settings stand in blocks, and one without a word of explanation is a riddle."""
    blocks = place(name).read_text(encoding="utf-8").split("\n\n")
    silent = [
        block
        for block in blocks
        if "=" in block and "#" not in block and not block.startswith(("[Unit]", "[Install]"))
    ]
    assert silent == []
