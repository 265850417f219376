"""The installation, its units, the caller's groups."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onegate.cli.checkup import Check, Machine, Ran, Verdict
from onegate.cli.checkup_machine import (
    INSTALL,
    NVIDIA,
    NVIDIA_DROP_INS,
    devices,
    installation,
    membership,
    units,
)
from onegate.config import Config, check

UNITS = ("onegate.socket", "onegate.service", "onegate-engine.service")


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    def make(**more: Any) -> Machine:
        fields = {"root": tmp_path, "environ": {}, "uid": 1000, "gids": frozenset({1000})}
        fields |= {"user_name": lambda uid: "anna", "python": "/elsewhere/bin/python"}
        return Machine(**(fields | more))

    return make


# --- install --------------------------------------------------------------------------------------


def installed(root: Path, name: str = "1.2-abc") -> Path:
    """A version with its links, as install.sh makes them."""
    version = root / "opt/onegate" / name
    (version / "venv/bin").mkdir(parents=True)
    (root / "opt/onegate/current").symlink_to(name)
    (root / "usr/local/bin").mkdir(parents=True)
    for command in ("onegate", "onegated"):
        (version / "venv/bin" / command).write_text("")
        link = root / "usr/local/bin" / command
        link.symlink_to(root / "opt/onegate/current/venv/bin" / command)
    return version


def test_a_checkout_is_no_fault(machine: Any) -> None:
    (check,) = installation(machine())
    assert check.verdict is Verdict.OK
    assert "not installed" in check.sentence


def test_an_installation_whose_links_lead_to_it(machine: Any, tmp_path: Path) -> None:
    version = installed(tmp_path)
    checks = installation(machine(python=str(version / "venv/bin/python")))
    assert [(check.verdict, "1.2-abc" in check.sentence) for check in checks] == [
        (Verdict.OK, True)
    ]


def test_another_command_than_the_installed_one(machine: Any, tmp_path: Path) -> None:
    installed(tmp_path)
    checks = installation(machine())
    assert [check.verdict for check in checks] == [Verdict.OK, Verdict.WARN]
    assert checks[1].command == "/usr/local/bin/onegate doctor"


@pytest.mark.parametrize("harm", ["no version", "no link", "another place", "dangling"])
def test_an_installation_that_is_broken(machine: Any, tmp_path: Path, harm: str) -> None:
    version = installed(tmp_path)
    link = tmp_path / "usr/local/bin/onegated"
    match harm:
        case "no version":
            version.rename(version.with_name("other"))
        case "no link":
            link.unlink()
        case "another place":
            link.unlink()
            link.write_text("")
        case "dangling":
            (version / "venv/bin/onegated").unlink()
    (check,) = installation(machine())
    assert (check.verdict, check.command) == (Verdict.FAIL, INSTALL)


# --- group ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "uid", "gids", "served", "verdict", "command"),
    [
        (None, 1000, {1000}, False, Verdict.SKIP, None),
        ((50, []), 0, {0}, False, Verdict.OK, None),
        ((50, []), 1000, {50}, False, Verdict.OK, None),
        ((50, []), 1000, {1000}, False, Verdict.FAIL, "sudo usermod -aG onegate-clients anna"),
        ((50, ["anna"]), 1000, {1000}, False, Verdict.FAIL, "newgrp onegate-clients"),
        ((50, []), 1000, {1000}, True, Verdict.SKIP, None),
    ],
)
def test_membership(
    machine: Any,
    group: Any,
    uid: int,
    gids: set[int],
    served: bool,
    verdict: Verdict,
    command: str | None,
) -> None:
    found = machine(group_of=lambda name: group, uid=uid, gids=frozenset(gids))
    (check,) = membership(found, served=served)
    assert (check.verdict, check.command) == (verdict, command)


# --- units ----------------------------------------------------------------------------------------

GOOD = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success"}


def shown(**changes: dict[str, str]) -> str:
    """What `systemctl show` prints; keywords are the units' first words."""
    blocks = []
    for unit in UNITS:
        state = {"Id": unit, **GOOD, "UnitFileState": "enabled", "ConditionResult": "yes"}
        state |= changes.get(unit.replace("-", "_").replace(".", "_"), {})
        blocks.append("\n".join(f"{key}={value}" for key, value in state.items()))
    return "\n\n".join(blocks) + "\n"


def looked(machine: Any, tmp_path: Path, out: str, code: int = 0) -> list[Check]:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    asked: list[tuple[str, ...]] = []

    def run(*command: str) -> Ran:
        asked.append(command)
        return Ran(code, out, "Failed to connect to bus\nand more")

    found = units(machine(run=run))
    assert asked[0][:2] == ("systemctl", "show")
    assert asked[0][-3:] == UNITS
    return found


def test_where_systemd_does_not_run(machine: Any) -> None:
    (check,) = units(machine(run=lambda *_: pytest.fail("nobody is to be asked")))
    assert check.verdict is Verdict.SKIP


def test_where_systemctl_is_not_there(machine: Any, tmp_path: Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (check,) = units(machine(run=lambda *_: None))
    assert check.verdict is Verdict.SKIP
    assert "no systemctl" in check.sentence


def test_where_systemd_does_not_answer(machine: Any, tmp_path: Path) -> None:
    (check,) = looked(machine, tmp_path, "", code=1)
    assert check.verdict is Verdict.SKIP
    assert check.sentence.endswith("Failed to connect to bus")


def test_units_in_good_order(machine: Any, tmp_path: Path) -> None:
    found = looked(machine, tmp_path, shown())
    assert [check.verdict for check in found] == [Verdict.OK] * 3


def test_no_service_here(machine: Any, tmp_path: Path) -> None:
    gone = {"LoadState": "not-found", "ActiveState": "inactive"}
    out = shown(onegate_socket=gone, onegate_service=gone, onegate_engine_service=gone)
    (check,) = looked(machine, tmp_path, out)
    assert check.verdict is Verdict.SKIP


IDLE = {"ActiveState": "inactive", "SubState": "dead"}
JOURNAL = "journalctl -u {} -n 50 --no-pager"


@pytest.mark.parametrize(
    ("unit", "change", "verdict", "command"),
    [
        ("onegate.socket", IDLE, Verdict.FAIL, "sudo systemctl enable --now onegate.socket"),
        (
            "onegate.socket",
            {"UnitFileState": "disabled"},
            Verdict.WARN,
            "sudo systemctl enable onegate.socket",
        ),
        ("onegate.service", IDLE, Verdict.OK, None),
        (
            "onegate.service",
            {"ActiveState": "failed", "Result": "watchdog"},
            Verdict.FAIL,
            JOURNAL.format("onegate.service"),
        ),
        ("onegate-engine.service", IDLE, Verdict.OK, None),
        ("onegate-engine.service", IDLE | {"ConditionResult": "no"}, Verdict.OK, None),
        (
            "onegate-engine.service",
            {"ActiveState": "failed", "Result": "oom-kill"},
            Verdict.FAIL,
            JOURNAL.format("onegate-engine.service"),
        ),
        (
            "onegate.service",
            {"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code"},
            Verdict.FAIL,
            JOURNAL.format("onegate.service"),
        ),
        ("onegate-engine.service", {"LoadState": "not-found"}, Verdict.FAIL, INSTALL),
        ("onegate.service", {"LoadState": "masked"}, Verdict.FAIL, INSTALL),
    ],
)
def test_a_unit_that_is_not_as_the_others(
    machine: Any,
    tmp_path: Path,
    unit: str,
    change: dict[str, str],
    verdict: Verdict,
    command: str | None,
) -> None:
    key = unit.replace("-", "_").replace(".", "_")
    found = looked(machine, tmp_path, shown(**{key: change}))
    (check,) = [check for check in found if check.sentence.startswith(unit)]
    assert (check.verdict, check.command) == (verdict, command)
    others = [other.verdict for other in found if other is not check]
    assert others == [Verdict.OK] * 2
    assert "Result" not in change or change["Result"] in check.sentence


def test_unit_files_that_systemd_has_not_read(machine: Any, tmp_path: Path) -> None:
    found = looked(machine, tmp_path, shown(onegate_service={"NeedDaemonReload": "yes"}))
    assert (found[-1].verdict, found[-1].command) == (
        Verdict.WARN,
        "sudo systemctl daemon-reload",
    )


# --- devices --------------------------------------------------------------------------------------

ON_NVIDIA = (
    check('[engine]\nkind = "tensorrt-llm"\nmodel = "/m"\n'),
    check('[engine]\ndevice = "NVIDIA.0"\n'),
)


def put(root: Path, path: str) -> None:
    (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
    (root / path.lstrip("/")).write_text("")


@pytest.mark.parametrize("config", ON_NVIDIA)
@pytest.mark.parametrize("device", NVIDIA)
@pytest.mark.parametrize("drop_in", NVIDIA_DROP_INS)
def test_the_engine_may_open_its_gpu(
    machine: Any, tmp_path: Path, config: Config, device: str, drop_in: str
) -> None:
    installed(tmp_path)
    (check,) = devices(machine(), config)
    assert (check.verdict, check.command) == (Verdict.FAIL, "nvidia-smi")
    put(tmp_path, device)
    (check,) = devices(machine(), config)
    assert (check.verdict, check.command) == (Verdict.FAIL, INSTALL)
    put(tmp_path, drop_in)
    (check,) = devices(machine(), config)
    assert check.verdict is Verdict.OK


def test_where_no_gpu_is_needed_nothing_is_said(machine: Any, tmp_path: Path) -> None:
    assert devices(machine(), ON_NVIDIA[0]) == []  # not installed: in no sandbox
    installed(tmp_path)
    put(tmp_path, NVIDIA[0])
    for config in (None, Config(), check('[engine]\nkind = "scripted"\n')):
        assert devices(machine(), config) == []
