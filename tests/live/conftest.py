"""Real servers, prepared from PyPI once and kept where `ONEGATE_LIVE_DIR` says, else in the user's
cache. A server of one's own is taken instead where its URL is given."""

import os
from pathlib import Path

import pytest
from tests.contract.conftest import box, new_box, pytest_collection_modifyitems, shared, started
from tests.live.llama_server import prepare

__all__ = ["box", "new_box", "pytest_collection_modifyitems", "shared", "started"]


@pytest.fixture(scope="session")
def llama_home(live_directory: Path) -> Path:
    """A prepared llama.cpp server."""
    home = live_directory / "llama"
    prepare(home)
    return home


@pytest.fixture(scope="session")
def live_directory() -> Path:
    """Where prepared servers are kept from run to run."""
    base = os.environ.get("ONEGATE_LIVE_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) if base else Path(cache) / "onegate" / "live"
