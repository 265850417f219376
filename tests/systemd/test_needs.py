"""What is missing for a boot is said at once, and by its name."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.systemd import conftest
from tests.systemd.needs import lacks

NEEDS = Path(__file__).with_name("needs.sh")


@pytest.fixture(autouse=True)
def asked_anew():
    lacks.cache_clear()
    yield
    lacks.cache_clear()


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, with systemd-nspawn installed."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def script(folder: Path, body: str) -> Path:
    path = folder / "script"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_plain_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert lacks(NEEDS) == ["booting a machine needs root"]


def test_no_nspawn(monkeypatch: pytest.MonkeyPatch, able: None) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (found,) = lacks(NEEDS)
    assert "apt install systemd-container" in found


def test_mounts_that_are_not_allowed_are_named(
    tmp_path: Path, able: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lacks(script(tmp_path, "true")) == []
    found = lacks(script(tmp_path / "..", "echo no overlay; echo no cgroup2"))
    assert [line.rpartition(": ")[2] for line in found] == ["no overlay", "no cgroup2"]


@pytest.mark.parametrize(
    ("fails", "names"),
    [
        ("overlay", ["overlayfs"]),
        ("cgroup2", ["cgroup2"]),
        ("tmpfs", ["tmpfs", "overlayfs"]),
        ("unshare", ["unshare", "tmpfs", "overlayfs", "cgroup2"]),
        ("nothing", []),
    ],
)
def test_each_attempt_is_its_own(tmp_path: Path, fails: str, names: list[str]) -> None:
    """A machine on which one of them is refused, played by commands."""
    for name, body in {
        "unshare": '[ "$0" != "$FAILS" ] && shift 2 && exec "$@"',
        "mount": 'for word; do [ "$word" != "$FAILS" ] || exit 32; done',
        "mkdir": "true",
    }.items():
        body = body.replace('"$0"', f'"{name}"')
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILS": fails}
    done = subprocess.run([NEEDS], env=environment, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert len(said) == len(names)
    assert all(name in line for name, line in zip(names, said, strict=True))


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (["test_*.py"], ["NO BOOT, its probes are skipped: no overlay"]),
        (["probe_*.py"], []),  # these are booted already
    ],
)
def test_it_is_said_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, patterns: list[str], says: list[str]
) -> None:
    class Config:
        def getini(self, name: str) -> list[str]:
            return patterns

    monkeypatch.setattr(conftest, "lacks", lambda script: ["no overlay"])
    assert conftest.pytest_report_header(Config()) == says  # type: ignore[arg-type]
