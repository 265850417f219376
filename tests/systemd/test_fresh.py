"""What fresh.sh takes away from the copy of a machine, and what it leaves."""

import os
import re
import subprocess
from pathlib import Path

import pytest

FRESH = Path(__file__).with_name("fresh.sh")
INSTALLER = Path(__file__).parents[2] / "systemd/install.bash"

# By install.sh, by an administrator, by a package.
INSTALLED = (
    "opt/onegate/1.0/venv/bin/onegate",
    "etc/onegate/onegate.toml",
    "usr/local/bin/onegate",
    "usr/local/bin/onegated",
    "usr/local/lib/systemd/system/onegate.socket",
    "usr/local/lib/systemd/system/onegate-engine.service",
    "usr/local/lib/systemd/system/onegate-engine.service.d/nvidia.conf",
    "usr/local/lib/sysusers.d/onegate.conf",
    "usr/local/lib/tmpfiles.d/onegate.conf",
    "etc/systemd/system/onegate.service.d/override.conf",
    "etc/systemd/system/multi-user.target.wants/onegate.service",
    "etc/systemd/system/sockets.target.wants/onegate.socket",
    "usr/lib/systemd/system/onegate.service",
    "lib/systemd/system/onegate.socket",
    "run/onegate/onegate.sock",
    "run/onegate-engine/host.sock",
    "run/systemd/system/onegate.service.d/probe.conf",
    "var/lib/onegate/usage",
    "var/cache/onegate-engine/digests.json",
)
OTHERS = (
    "etc/systemd/system/other.service",
    "etc/systemd/system/multi-user.target.wants/other.service",
    "usr/local/bin/onegatekeeper",
    "usr/local/lib/tmpfiles.d/other.conf",
    "usr/lib/systemd/system/onegateway.service",
    "var/lib/other/onegate",
    "opt/other/x",
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path in (*INSTALLED, *OTHERS):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    link = root / "etc/systemd/system/sockets.target.wants/onegate.socket"
    link.unlink()
    link.symlink_to("/usr/local/lib/systemd/system/onegate.socket")
    return root


def fresh(
    root: Path | str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FRESH, root], capture_output=True, text=True, check=False, env=environment
    )


def left(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_symlink() or p.is_file()}


def test_nothing_of_an_installation_stays(machine: Path) -> None:
    assert fresh(machine).stderr == ""
    assert left(machine) == set(OTHERS)
    assert fresh(machine).returncode == 0, "once more is no error"


def test_users_and_groups_go_too(machine: Path) -> None:
    (machine / "etc/passwd").write_text(
        "root:x:0:0::/:/bin/sh\nonegate:x:9:9::/:/x\nann:x:1:1::/:\n"
    )
    (machine / "etc/shadow").write_text("root:*::\nonegate-engine:!::\n")
    (machine / "etc/group").write_text(
        "render:x:5:onegate-engine,ann\nvideo:x:6:ann,onegate-engine\nadm:x:4:onegate\n"
        "onegate-clients:x:7:ann\nonegate-admin:x:8:\nonegates:x:10:onegater\n"
    )
    assert fresh(machine).stderr == ""
    assert (machine / "etc/passwd").read_text() == "root:x:0:0::/:/bin/sh\nann:x:1:1::/:\n"
    assert (machine / "etc/shadow").read_text() == "root:*::\n"
    assert (machine / "etc/group").read_text() == (
        "render:x:5:ann\nvideo:x:6:ann\nadm:x:4:\nonegates:x:10:onegater\n"
    )


def test_every_place_of_the_installer_is_known() -> None:
    text = INSTALLER.read_text(encoding="utf-8")
    places = set(re.findall(r"(?:/opt|/etc|/run|/var/\w+|/usr/local/bin)/onegate[\w-]*", text))
    assert places
    covered = {f"/{path}" for path in INSTALLED}
    assert {p for p in places if not any(path.startswith(p) for path in covered)} == set()


@pytest.mark.parametrize("root", ["/", "/tmp/..", ""])
def test_the_machine_itself_is_left_alone(root: str, tmp_path: Path) -> None:
    for name in ("rm", "find", "sed"):  # which do nothing, should it come to them
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert fresh(root, environment).returncode != 0
