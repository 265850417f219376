"""Small JSON files of what costs time to find out, and nothing but time to lose."""

import json
import os
import sys
from pathlib import Path


def default_cache(name: str) -> Path:
    """Where this user's caches are, by the XDG rules."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".cache"
    return base / "onegate" / name


def recall(cache: Path) -> dict[str, object]:
    """What the file says; nothing where it is missing, broken or may not be read."""
    try:
        known = json.loads(cache.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def remember(cache: Path, known: dict[str, object], *, what: str) -> None:
    """Write it whole or not at all; where that fails, say on stderr that `what` is not kept."""
    beside = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(known), encoding="utf-8")
        beside.replace(cache)
    except OSError as error:
        sys.stderr.write(f"{what} is not remembered: {error}\n")
