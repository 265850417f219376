"""Published client libraries, each in an environment of its own that knows nothing of this one.

They are kept where `ONEGATE_LIVE_DIR` says, else in the user's cache.
"""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.integration.conftest import pytest_collection_modifyitems
from tests.live.prepared import prepared

__all__ = ["pytest_collection_modifyitems"]

HERE = Path(__file__).parent


def named(name: str, *parts: bytes) -> str:
    """What is prepared from these parts, and from no others."""
    return f"{name}-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"


def run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command[0]}:\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def client_python() -> Path:
    """A Python that has the libraries of requirements.txt."""
    wanted = HERE / "requirements.txt"

    def prepare(home: Path) -> None:
        venv.create(home, with_pip=True)
        pip = (home / "bin/python", "-m", "pip", "-q", "--disable-pip-version-check", "--no-input")
        run(*pip, "install", "-r", wanted)

    name = named("clients-python", wanted.read_bytes(), sys.version.encode())
    return prepared(name, prepare) / "bin/python"


@pytest.fixture(scope="session")
def client_node() -> Path:
    """A folder that has the packages of package-lock.json, and the program."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")

    def prepare(home: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, home / name)
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=home)

    home = prepared(named("clients-node", (HERE / "package-lock.json").read_bytes()), prepare)
    shutil.copy(HERE / "programs.mjs", home / "programs.mjs")
    return home
