"""For the probes: commands, units, users and figures of the booted machine."""

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Done = subprocess.CompletedProcess[str]

CHECKOUT = Path("/srv/onegate")
MEASURED = Path("/srv/results/measured.txt")
PREFIX = Path("/opt/onegate")
CONFIG = Path("/etc/onegate/onegate.toml")
SOCKET = Path("/run/onegate/onegate.sock")
# What was on the disk before the installation, one path a line.
BEFORE = Path("/srv/results/before.txt")
UNITS = ("onegate.socket", "onegate.service", "onegate-engine.service")
DROP_INS = Path("/run/systemd/system")

PATIENCE = float(os.environ.get("ONEGATE_TIMEOUT_FACTOR", "1"))
# Written by the system while the probes run, and by the users that the probes made.
OTHERS = (
    "/var/log/", "/var/lib/systemd/", "/run/systemd/", "/run/log/", "/run/dbus", "/run/udev/",
    "/run/faillock", "/var/mail", "/var/spool/mail/", "/var/cache/", "/run/utmp", "/etc/.pwd.lock",
    "/etc/subuid-", "/etc/subgid-",
)  # fmt: skip


def as_user(user: str) -> list[str]:
    """What to put before a command so that it runs as this user, with the groups that it has."""
    # Not runuser, which would open a session and so choose the class.
    return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups"]


def sh(
    *command: str | Path, user: str | None = None, check: bool = True, timeout_s: float = 60
) -> Done:
    """Run to the end. `user`: as that one, with the groups that it has."""
    before = as_user(user) if user else []
    done = subprocess.run(
        [*before, *map(str, command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s * PATIENCE,
        cwd="/",
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def start(*command: str | Path, user: str | None = None) -> subprocess.Popen[str]:
    """Start and go on. Whoever starts it takes its end."""
    before = as_user(user) if user else []
    return subprocess.Popen(
        [*before, *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def finish(running: subprocess.Popen[str], timeout_s: float = 60) -> Done:
    """The end of what `start` began."""
    out, err = running.communicate(timeout=timeout_s * PATIENCE)
    return subprocess.CompletedProcess(running.args, running.returncode, out, err)


def until(found: Callable[[], T], what: str, timeout_s: float = 30) -> T:
    """Ask again until the answer is true."""
    ends = now() + timeout_s * PATIENCE
    while not (answer := found()):
        assert now() < ends, f"it did not happen in time: {what}"
        time.sleep(0.05)
    return answer


def now() -> float:
    """Seconds, for guards and for figures that are printed and never judged."""
    return time.monotonic()  # noqa: TID251


def measured(what: str, seconds: float) -> None:
    """A figure for the summary."""
    with MEASURED.open("a", encoding="utf-8") as file:
        file.write(f"{what}: {seconds:.2f} s\n")


def install(*arguments: str, check: bool = True, **environment: str) -> Done:
    """install.sh of the checkout."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    return sh("env", *settings, CHECKOUT / "install.sh", *arguments, check=check, timeout_s=300)


def systemctl(*arguments: str, check: bool = True, timeout_s: float = 60) -> Done:
    """`systemctl`, as root."""
    return sh("systemctl", "--no-pager", *arguments, check=check, timeout_s=timeout_s)


def prop(unit: str, name: str) -> str:
    """One property of a unit."""
    return systemctl("show", f"--property={name}", "--value", unit).stdout.strip()


def pid(unit: str) -> int:
    """The main process, 0 where there is none."""
    return int(prop(unit, "MainPID"))


def send(number: signal.Signals, unit: str) -> int:
    """Send a signal to the main process, which must be there; returns its id."""
    main = pid(unit)
    assert main > 0, f"{unit} does not run"  # 0 would be ourselves and all around us
    os.kill(main, number)
    return main


def active(unit: str) -> bool:
    """Whether it runs."""
    return systemctl("is-active", unit, check=False).returncode == 0


def onegate(*arguments: str, user: str | None = "ann", check: bool = True) -> Done:
    """The command that was installed, as one who may connect."""
    return sh("/usr/local/bin/onegate", *arguments, user=user, check=check)


def status() -> dict[str, Any]:
    """The status document."""
    document: dict[str, Any] = json.loads(onegate("status", "--json").stdout)
    return document


def pool() -> dict[str, Any]:
    """The one model's part of the status."""
    (found,) = status()["pools"]
    assert isinstance(found, dict)
    return found


def ready() -> None:
    """Wait until a model is loaded."""
    onegate("wait-ready", "--timeout", "60")


def journal(unit: str) -> str:
    """What a unit has said, and what systemd has said about it."""
    sh("journalctl", "--sync")
    return sh("journalctl", "-o", "cat", "-u", unit).stdout


def configure(text: str, *, restart: bool = True) -> None:
    """Another configuration, from now on."""
    CONFIG.write_text(text, encoding="utf-8")
    if restart:
        systemctl("restart", "onegate.service")


def drop_in(unit: str, settings: Sequence[str]) -> Path:
    """Settings of a unit until the file is removed and `daemon-reload` is done."""
    path = DROP_INS / f"{unit}.d" / "probe.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["[Service]", *settings, ""]), encoding="utf-8")
    systemctl("daemon-reload")
    return path


def remove_drop_in(path: Path) -> None:
    """Take a `drop_in` away."""
    path.unlink()
    path.parent.rmdir()
    systemctl("daemon-reload")


def run_as_unit(name: str, settings: Mapping[str, str], output: Path) -> str:
    """Run one command as a unit of this name, whatever unit of that name there is, and return what
    it wrote. `settings` are those of [Service]."""
    path = DROP_INS / name
    output.unlink(missing_ok=True)
    lines = [f"{key}={value}" for key, value in settings.items()]
    path.write_text(
        "\n".join(["[Service]", "Type=oneshot", *lines, f"StandardOutput=file:{output}", ""]),
        encoding="utf-8",
    )
    systemctl("daemon-reload")
    try:
        systemctl("start", name)
        return output.read_text(encoding="utf-8")
    finally:
        path.unlink()
        systemctl("daemon-reload")


def files() -> list[str]:
    """Every path where an installation could put something."""
    return sh("find", "/etc", "/usr", "/opt", "/var", "/run", "-print").stdout.splitlines()


def left_behind() -> list[str]:
    """Files that were not there before the first installation."""
    before = set(BEFORE.read_text(encoding="utf-8").splitlines())
    return [path for path in files() if path not in before and not path.startswith(OTHERS)]
