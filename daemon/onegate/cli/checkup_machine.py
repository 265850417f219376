"""What of the machine can be wrong: the installation, its units, the caller's groups."""

import os

from onegate import __version__
from onegate.cli.checkup import Check, Machine, Verdict
from onegate.config import Config

PREFIX = "/opt/onegate"
COMMANDS = "/usr/local/bin"
CLIENTS = "onegate-clients"
SOCKET_UNIT, GATE_UNIT, ENGINE_UNIT = "onegate.socket", "onegate.service", "onegate-engine.service"
INSTALL = "sudo ./install.sh"
# What install.sh looks for, and where it or an administrator puts what opens the devices.
NVIDIA = ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia")
NVIDIA_DROP_INS = tuple(
    f"{place}/systemd/system/{ENGINE_UNIT}.d/nvidia.conf" for place in ("/usr/local/lib", "/etc")
)


def is_installed(machine: Machine) -> bool:
    """Is this command the installed one, and no checkout's?"""
    version = machine.at(f"{PREFIX}/current").resolve()
    return os.path.realpath(os.path.dirname(machine.python)).startswith(f"{version}/")


def is_present(machine: Machine) -> bool:
    """Is there an installation on this machine, whether or not this command is of it?"""
    return os.path.lexists(machine.at(f"{PREFIX}/current"))


def installation(machine: Machine) -> list[Check]:
    """Which version this is, and whether the links of an installed one lead to it."""
    name, current = "install", machine.at(f"{PREFIX}/current")
    if not is_present(machine):
        text = f"onegate {__version__} of {machine.python}; not installed as a system service"
        return [Check(name, Verdict.OK, text)]
    version = current.resolve()
    if not (version / "venv").is_dir():
        text = f"{PREFIX}/current leads to {version}, which holds no version"
        return [Check(name, Verdict.FAIL, text, INSTALL)]
    astray = []
    for command in ("onegate", "onegated"):
        link = machine.at(f"{COMMANDS}/{command}")
        if not link.resolve().is_relative_to(version) or not link.exists():
            astray.append(f"{COMMANDS}/{command}")
    if astray:
        text = f"{' and '.join(astray)} do not lead to the installed version {version.name}"
        return [Check(name, Verdict.FAIL, text, INSTALL)]
    found = [Check(name, Verdict.OK, f"version {version.name} is installed")]
    if not is_installed(machine):
        text = f"this command is another one, {__version__} of {machine.python}"
        found.append(Check(name, Verdict.WARN, text, f"{COMMANDS}/onegate doctor"))
    return found


def membership(machine: Machine, *, served: bool) -> list[Check]:
    """May this user connect to the system's daemon? `served`: a daemon has let it in just now."""
    name = "group"
    group = machine.group_of(CLIENTS)
    if group is None:
        text = f"there is no group {CLIENTS}: only an installed daemon has one"
        return [Check(name, Verdict.SKIP, text)]
    gid, members = group
    if machine.uid == 0:
        return [Check(name, Verdict.OK, "root may connect without being in a group")]
    if gid in machine.gids:
        return [Check(name, Verdict.OK, f"you are in {CLIENTS} and may connect")]
    user = machine.user_name(machine.uid)
    if served:
        return [
            Check(name, Verdict.SKIP, f"{user} is not in {CLIENTS}, and is served all the same")
        ]
    if user in members:
        text = f"{user} is in {CLIENTS}, and this session began before that: a new login mends it"
        return [Check(name, Verdict.FAIL, text, f"newgrp {CLIENTS}")]
    text = f"{user} is not in {CLIENTS}, and may not connect to the system's daemon"
    return [Check(name, Verdict.FAIL, text, f"sudo usermod -aG {CLIENTS} {user}")]


def units(machine: Machine) -> list[Check]:
    """Does systemd hold the socket, and is what it started in order?"""
    name = "units"
    if not machine.booted:
        return [Check(name, Verdict.SKIP, "systemd does not run here")]
    fields = "Id,LoadState,ActiveState,SubState,UnitFileState,Result,ConditionResult"
    fields += ",NeedDaemonReload"
    asked = (SOCKET_UNIT, GATE_UNIT, ENGINE_UNIT)
    ran = machine.run("systemctl", "show", "--property", fields, *asked)
    if ran is None or ran.code != 0:
        why = "there is no systemctl" if ran is None else _first_line(ran.err)
        return [Check(name, Verdict.SKIP, f"systemd cannot be asked: {why}")]
    shown = {unit["Id"]: unit for unit in map(_properties, ran.out.split("\n\n")) if "Id" in unit}
    known = [unit for unit in asked if shown.get(unit, {}).get("LoadState") == "loaded"]
    if not known:
        return [Check(name, Verdict.SKIP, "no units are installed: it is no system service here")]
    found = []
    for unit in asked:
        if unit not in known:
            state = shown.get(unit, {}).get("LoadState", "not-found")
            found.append(Check(name, Verdict.FAIL, f"{unit} is {state}", INSTALL))
        else:
            found.append(_unit(unit, shown[unit]))
    if any(unit.get("NeedDaemonReload") == "yes" for unit in shown.values()):
        text = "a unit file has changed since systemd read it"
        found.append(Check(name, Verdict.WARN, text, "sudo systemctl daemon-reload"))
    return found


def devices(machine: Machine, config: Config | None) -> list[Check]:
    """May the engine's service open the GPU that the configured engine computes on?"""
    name, engine = "devices", None if config is None else config.engine
    if engine is None or not is_present(machine):
        return []  # an engine that the daemon starts is in no sandbox
    on_openvino = engine.kind == "openvino" and engine.device.upper().startswith("NVIDIA")
    if engine.kind != "tensorrt-llm" and not on_openvino:
        return []
    if not any(os.path.exists(machine.at(place)) for place in NVIDIA):
        text = f'engine "{engine.kind}" needs an NVIDIA GPU, and no driver shows one'
        return [Check(name, Verdict.FAIL, text, "nvidia-smi")]
    if any(os.path.exists(machine.at(place)) for place in NVIDIA_DROP_INS):
        return [Check(name, Verdict.OK, f"{ENGINE_UNIT} may open the NVIDIA devices")]
    text = f"{ENGINE_UNIT} may not open the NVIDIA devices: its drop-in nvidia.conf is not there"
    return [Check(name, Verdict.FAIL, text, INSTALL)]


def _unit(unit: str, state: dict[str, str]) -> Check:
    active = state.get("ActiveState", "")
    text = f"{unit} is {active} ({state.get('SubState', '')})"
    command = f"journalctl -u {unit} -n 50 --no-pager"
    if active == "failed":
        result = state.get("Result", "")
        return Check("units", Verdict.FAIL, f"{unit} has failed: {result}", command)
    if state.get("SubState") == "auto-restart":
        text = f"{unit} has just ended ({state.get('Result', '')}) and is started again"
        return Check("units", Verdict.FAIL, text, command)
    if unit == SOCKET_UNIT:
        if active != "active":
            return Check("units", Verdict.FAIL, text, f"sudo systemctl enable --now {unit}")
        if state.get("UnitFileState") not in ("enabled", "enabled-runtime", "linked", "static"):
            text = f"{unit} is active, and not enabled: after a boot nobody listens"
            return Check("units", Verdict.WARN, text, f"sudo systemctl enable {unit}")
    elif unit == GATE_UNIT and active == "inactive":
        return Check("units", Verdict.OK, f"{text}: the first connection starts it")
    elif unit == ENGINE_UNIT and active == "inactive":
        if state.get("ConditionResult") == "no":
            why = "the configured engine needs no host"
            return Check("units", Verdict.OK, f"{text}: {why}")
        return Check("units", Verdict.OK, f"{text}: it starts with {GATE_UNIT}")
    return Check("units", Verdict.OK, text)


def _properties(block: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block.splitlines() if "=" in line)
    return {key: value for key, _, value in pairs}


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[0][:200]
