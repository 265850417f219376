"""Where real servers are kept from run to run, and how one gets there."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def directory() -> Path:
    """Where `ONEGATE_LIVE_DIR` says, else in the user's cache."""
    base = os.environ.get("ONEGATE_LIVE_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) if base else Path(cache) / "onegate" / "live"


def prepared(name: str, prepare: Callable[[Path], None]) -> Path:
    """Once, by whoever comes first; the others wait for it. Raises what `prepare` raises."""
    home = directory() / name
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)  # left half done
            home.mkdir()
            prepare(home)
            (home / "ready").touch()
    return home
