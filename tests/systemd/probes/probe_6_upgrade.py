"""A newer checkout over the running one."""

import os
import re
from pathlib import Path

from tests.systemd.clients import ask, knock, stopped
from tests.systemd.machine import (
    CHECKOUT,
    CONFIG,
    PREFIX,
    install,
    measured,
    now,
    onegate,
    pid,
    pool,
    prop,
    ready,
    systemctl,
)

NVIDIA = "/dev/nvidia0"
DROP_IN = Path("/usr/local/lib/systemd/system/onegate-engine.service.d/nvidia.conf")
NOTE = "\n# a note of the administrator's\n"


def versions() -> list[str]:
    return sorted(
        path.parent.name for path in PREFIX.glob("*/venv") if not path.parent.is_symlink()
    )


def renumber(number: str) -> None:
    project = CHECKOUT / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    project.write_text(re.sub(r'^version = ".*"$', f'version = "{number}"', text, flags=re.M))


def test_a_new_daemon_takes_over_and_the_model_stays() -> None:
    ready()
    CONFIG.write_text(CONFIG.read_text(encoding="utf-8") + NOTE, encoding="utf-8")
    daemon, host, loads = pid("onegate.service"), pid("onegate-engine.service"), pool()["loads"]
    before = os.readlink(PREFIX / "current")
    renumber("9.8.7")
    knocking, asking = knock(), ask()
    began = now()
    install()
    measured("upgrade over a running system", now() - began)
    assert stopped(knocking) > 10
    assert stopped(asking) > 0
    assert os.readlink(PREFIX / "current").startswith("9.8.7-")
    assert os.readlink(PREFIX / "previous") == before
    running = Path(f"/proc/{pid('onegate.service')}/cmdline").read_bytes()
    assert os.fsencode(os.readlink(PREFIX / "current")) in running
    assert pid("onegate.service") != daemon
    assert pid("onegate-engine.service") == host
    assert pool()["loads"] == loads
    assert CONFIG.read_text(encoding="utf-8").endswith(NOTE)


def test_a_configuration_that_it_cannot_read_stops_an_upgrade() -> None:
    before, good = os.readlink(PREFIX / "current"), CONFIG.read_text(encoding="utf-8")
    renumber("9.8.8")
    host_code = CHECKOUT / "daemon/onegate/engines/host/wire.py"
    host_code.write_text(host_code.read_text(encoding="utf-8") + NOTE, encoding="utf-8")
    CONFIG.write_text(good + "nonsense = 1\n", encoding="utf-8")
    done = install(check=False)
    assert done.returncode == 78
    assert "nonsense" in done.stderr
    assert os.readlink(PREFIX / "current") == before
    CONFIG.write_text(good, encoding="utf-8")
    assert onegate("whoami").stdout


def test_a_new_engine_is_started_anew_and_the_oldest_version_goes() -> None:
    host = pid("onegate-engine.service")
    previous = os.readlink(PREFIX / "current")
    done = install()
    assert "The engine has changed" in done.stdout
    ready()
    assert onegate("ask", "hello", "--max-tokens", "1").stdout.strip()
    assert pid("onegate-engine.service") not in (0, host)
    assert versions() == sorted([os.readlink(PREFIX / "current"), previous])


def test_a_gpu_is_opened_to_the_engine_alone_and_closed_again() -> None:
    host, daemon, device = pid("onegate-engine.service"), pid("onegate.service"), Path(NVIDIA)
    assert not DROP_IN.exists()
    device.touch()
    try:
        assert "Found: an NVIDIA GPU" in install().stdout
        assert DROP_IN.read_bytes() == (CHECKOUT / "systemd/nvidia.conf").read_bytes()
        assert prop("onegate-engine.service", "PrivateDevices") == "no"
        assert "char-nvidia" in prop("onegate-engine.service", "DeviceAllow")
        assert prop("onegate.service", "PrivateDevices") == "yes"
        opened = pid("onegate-engine.service")
        assert opened not in (0, host)
        assert pid("onegate.service") == daemon
        ready()
        assert onegate("ask", "hello", "--max-tokens", "1").stdout.strip()
        assert "Found: an NVIDIA GPU" not in install().stdout
        assert pid("onegate-engine.service") == opened
    finally:
        device.unlink()
    install()
    assert not DROP_IN.parent.exists()
    assert prop("onegate-engine.service", "PrivateDevices") == "yes"
    assert pid("onegate-engine.service") not in (0, opened)
    # And once more, for uninstall to take away.
    device.touch()
    install()
    device.unlink()
    assert DROP_IN.exists()
    ready()


def test_what_is_disabled_stays_so() -> None:
    systemctl("disable", "--now", "onegate.socket", "onegate.service")
    done = install()
    assert "is disabled and stays so" in done.stdout
    assert pid("onegate.service") == 0
    systemctl("enable", "--now", "onegate.socket", "onegate.service")
