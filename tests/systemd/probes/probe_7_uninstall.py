"""Taken away again: the machine is as it was, but for the configuration."""

import os
from pathlib import Path

from tests.systemd.machine import CONFIG, active, install, left_behind, sh, systemctl


def test_uninstall_leaves_the_configuration_and_nothing_else() -> None:
    done = install("uninstall")
    assert "kept in /etc/onegate" in done.stdout
    assert done.stderr == ""
    assert sorted(left_behind()) == ["/etc/onegate", str(CONFIG)]
    everywhere = sh("find", "/run", "/var", "/etc/systemd", "/usr/local", "-name", "*onegate*")
    known = ("onegate-probes.service", "/run/systemd/system/", "/var/log/")
    assert [x for x in everywhere.stdout.splitlines() if not any(k in x for k in known)] == []
    for database in ("passwd", "group", "shadow", "gshadow"):
        assert "onegate" not in Path("/etc", database).read_text(encoding="utf-8"), database
    for unit in ("onegate.socket", "onegate.service", "onegate-engine.service"):
        assert not active(unit)
    assert "onegate" not in systemctl("list-units", "--all", "--failed").stdout
    assert sh("pgrep", "-f", "/opt/onegate", check=False).stdout == ""


def test_purge_takes_the_configuration_too() -> None:
    install("uninstall", "--purge")
    assert left_behind() == []


def test_once_more_is_no_error() -> None:
    assert "removed" in install("uninstall").stdout


def test_an_interrupted_installation_is_completed_by_the_next() -> None:
    trap = Path("/srv/trap")
    trap.mkdir()
    (trap / "systemctl").write_text(
        '#!/bin/sh\n[ "$1" != daemon-reload ] || kill -9 $PPID\nexec /usr/bin/systemctl "$@"\n',
        encoding="utf-8",
    )
    (trap / "systemctl").chmod(0o755)
    done = install(check=False, PATH=f"{trap}:{os.environ['PATH']}")
    assert done.returncode != 0
    assert not active("onegate.socket")
    assert "is installed" in install().stdout
    for unit in ("onegate.socket", "onegate.service"):
        assert active(unit)
        assert systemctl("is-enabled", unit).stdout == "enabled\n"
    install("uninstall", "--purge")
    sh("rm", "-r", trap)
    assert left_behind() == []
