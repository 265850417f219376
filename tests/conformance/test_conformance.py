"""PROTOCOL.md is enough: a client in another language, written from it alone, and its cases."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None,
    reason="node and npm are not installed",
)

# Bounds small enough that a run can meet each of them, an engine with few seats, and no floors:
# a class that is owed its floor would go before a higher one. No bounds on behaviour: one program
# starts more here in a minute than a class is meant for.
CONFIG = """
[engine]
kind = "scripted"
[[engine.scripted.pools]]
max_seqs = 4
[gate]
max_queued_tok = 16000
max_queued_requests = 40
max_frame_bytes = 524288
frame_timeout_s = 2
hello_timeout_s = 2
in_flight_per_session = 32
sessions_per_uid = 24
inbound_bytes_per_principal = 1048576
write_high_water_bytes = 65536
write_buffer_max_bytes = 262144
drain_timeout_s = 2
[[class]]
name = "interactive"
max_queued_tok = 16000
behaviour_live = "none"
behaviour_starts_per_min = "none"
[[class]]
name = "loop"
max_queued_tok = 16000
per_principal_share = 0.85
floor_share = 0
behaviour_live = "none"
behaviour_starts_per_min = "none"
[[class]]
name = "batch"
max_queued_tok = 12000
per_principal_share = 1.0
floor_share = 0
[[grant]]
uid = {uid}
{grant}
"""

GRANTS = {
    "member": 'ceiling = "loop"\nadmin = false',
    "administrator": 'ceiling = "interactive"\nadmin = true',
}


@pytest.fixture(scope="session")
def conformance_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this directory with its one package installed; the tree stays as it is."""
    folder = tmp_path_factory.mktemp("conformance")
    shutil.copytree(
        HERE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "*.py*")
    )
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"npm ci failed:\n{done.stdout}\n{done.stderr}"
    return folder


@contextmanager
def daemon(grant: str) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A daemon with the scripted engine on a socket of its own; ended on the way out."""
    with tempfile.TemporaryDirectory(prefix="onegate-") as folder:  # short: a socket's path is
        config = Path(folder) / "onegate.toml"
        config.write_text(CONFIG.format(uid=os.getuid(), grant=GRANTS[grant]))
        socket = Path(folder) / "socket"
        command = [sys.executable, "-m", "onegate.server.main"]
        command += ["--config", str(config), "--socket", str(socket)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ONEGATE_")}
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            while not socket.exists():
                assert process.poll() is None, (Path(folder) / "log").read_text()
                time.sleep(0.02)
            yield socket, process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            lines = (Path(folder) / "log").read_text(errors="replace").splitlines()
            sys.stdout.writelines(f"{line}\n" for line in lines if " INFO " not in line)


def _run(folder: Path, socket: Path, pid: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "ONEGATE_SOCKET": str(socket),
        "ONEGATE_PROTOCOL_PAGE": str(ROOT / "daemon/onegate/protocol/PROTOCOL.md"),
        "ONEGATE_GOLDEN": str(ROOT / "tests/wire/golden"),
        "ONEGATE_SMALL_BOUNDS": "1",
        "ONEGATE_DAEMON_PID": str(pid),
    }
    return subprocess.run(
        ["node", "run.mjs"], cwd=folder, env=environment, capture_output=True, text=True
    )


def _names(lines: list[str], verdict: str) -> set[str]:
    return {line[5:] for line in lines if line.startswith(verdict)}


@needs_node
def test_a_client_from_the_page_alone_passes_every_case(conformance_dir: Path) -> None:
    skipped: list[set[str]] = []
    for grant in GRANTS:
        with daemon(grant) as (socket, process):
            done = _run(conformance_dir, socket, process.pid)
            assert done.returncode == 0, f"as {grant}:\n{done.stdout}\n{done.stderr}"
            lines = done.stdout.splitlines()
            passed = _names(lines, "ok   ")
            assert len(passed) > 200, done.stdout
            assert lines[-1].startswith(f"{len(passed)} passed, 0 failed"), lines[-1]
            # The last case sent SIGTERM.
            assert process.wait(30) in (0, -signal.SIGTERM)
        skipped.append(_names(lines, "skip "))
    assert set.intersection(*skipped) == set(), "cases that nobody ran"


@needs_node
def test_a_run_without_a_daemon_fails(conformance_dir: Path, tmp_path: Path) -> None:
    done = _run(conformance_dir, tmp_path / "nobody", 0)
    assert done.returncode != 0
    assert "ENOENT" in done.stderr
