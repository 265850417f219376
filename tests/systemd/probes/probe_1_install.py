"""The installer on a machine that has never seen onegate; then once more, which changes nothing."""

import os
import stat
from pathlib import Path

from tests.systemd.machine import (
    BEFORE,
    CONFIG,
    PREFIX,
    SOCKET,
    UNITS,
    active,
    files,
    install,
    journal,
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

# Whoever must stay the same when the installer runs again.
KEPT = (
    *(Path("/usr/local/lib/systemd/system", unit) for unit in UNITS),
    *(CONFIG, PREFIX / "current", Path("/usr/local/bin/onegate")),
)


def test_nothing_is_here_yet() -> None:
    BEFORE.write_text("\n".join(files()), encoding="utf-8")
    assert not PREFIX.exists()
    # Neither does the machine have what it was copied from, where that had an installation.
    ours = "onegate-probes.service"
    assert [x for x in files() if "onegate" in x.rpartition("/")[2] and not x.endswith(ours)] == []
    for database in ("passwd", "group", "shadow", "gshadow"):
        assert "onegate" not in Path("/etc", database).read_text(encoding="utf-8"), database


def test_a_plain_user_is_told_to_use_sudo() -> None:
    done = sh("/srv/onegate/install.sh", user="nobody", check=False)
    assert done.returncode == 77
    assert "sudo ./install.sh" in done.stderr


def test_a_login_of_that_name_does_not_become_the_daemon() -> None:
    sh("useradd", "onegate")
    done = install(check=False)
    sh("userdel", "onegate")
    assert done.returncode == 73
    assert "a user 'onegate' that is not from here" in done.stderr


def test_install() -> None:
    began = now()
    done = install()
    measured("install.sh on a bare machine", now() - began)
    assert "is installed" in done.stdout, done.stdout
    told = [line for line in done.stderr.splitlines() if not line.startswith("Creating ")]
    assert told == [], "systemd-sysusers alone says what it does"
    for name, groups in (
        ("ann", "onegate-clients"),
        ("bob", ""),
        ("eve", "onegate-clients,onegate-admin"),
    ):
        sh("useradd", "--create-home", "--shell=/bin/bash", f"--groups={groups}", name)


def test_it_runs_and_is_enabled() -> None:
    for unit in UNITS:
        # The engine's is only wanted, so that install.sh has not waited for it.
        until(lambda unit=unit: active(unit), systemctl("status", unit, check=False).stdout)
    for unit in ("onegate.socket", "onegate.service"):
        assert systemctl("is-enabled", unit).stdout.strip() == "enabled"


def test_no_unit_makes_systemd_complain() -> None:
    done = sh("systemd-analyze", "verify", *UNITS)
    assert done.stderr == ""


def test_owners_and_modes() -> None:
    def seen(path: Path | str) -> tuple[str, str, str]:
        path = Path(path)
        return stat.filemode(path.lstat().st_mode), path.owner(), path.group()

    assert seen(SOCKET) == ("srw-rw----", "onegate", "onegate-clients")
    assert seen(SOCKET.parent) == ("drwxr-xr-x", "root", "root")
    assert seen("/run/onegate-engine") == ("drwxr-s---", "onegate-engine", "onegate")
    assert seen("/run/onegate-engine/host.sock") == ("srw-rw----", "onegate-engine", "onegate")
    assert seen("/var/lib/onegate") == ("drwx------", "onegate", "onegate")
    assert seen(CONFIG) == ("-rw-r--r--", "root", "root")
    for path in PREFIX.rglob("*"):
        owner = path.lstat()
        assert owner.st_uid == 0, path
        assert path.is_symlink() or not owner.st_mode & 0o022, path


def test_a_question_gets_real_text() -> None:
    ready()
    text = onegate("ask", "Name a colour.", "--max-tokens", "8").stdout
    assert text.strip()
    assert "telemetry" not in journal("onegate-engine.service")


def test_from_a_cold_start_to_the_first_token() -> None:
    systemctl("stop", "onegate.socket", "onegate.service", "onegate-engine.service")
    began = now()
    systemctl("start", "onegate.service")
    measured("systemctl start, until the gate answers", now() - began)
    # Loading takes seconds, and systemd has not waited for it.
    assert pool()["state"] in ("cold", "loading")
    text = onegate("ask", "Name a colour.", "--max-tokens", "1").stdout
    measured("systemctl start, until the first real token", now() - began)
    assert text.strip()


def test_installed_twice_is_installed_once() -> None:
    before = [(path.lstat().st_mtime_ns, path.lstat().st_ino) for path in KEPT]
    places = sorted(os.listdir(PREFIX))
    pids = [pid(unit) for unit in UNITS[1:]]
    began = now()
    done = install()
    measured("install.sh once more", now() - began)
    assert "Making" not in done.stdout
    assert [(path.lstat().st_mtime_ns, path.lstat().st_ino) for path in KEPT] == before
    assert sorted(os.listdir(PREFIX)) == places
    assert [pid(unit) for unit in UNITS[1:]] == pids
    assert prop("onegate.service", "NRestarts") == "0"


def test_a_damaged_model_is_mended() -> None:
    (model,) = PREFIX.glob("models/*/*/*.gguf")
    with model.open("r+b") as file:
        file.seek(1_000_000)
        byte = file.read(1)[0]
        file.seek(1_000_000)
        file.write(bytes([byte ^ 1]))
    assert "is damaged and is fetched again" in install().stdout
    sh(PREFIX / "current/venv/bin/python", "-m", "onegate.engines.models", "verify")
