"""What this process holds in memory."""

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rss_bytes() -> int | None:
    """Resident memory of this process, None where /proc does not say."""
    try:
        fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(fields[1]) * _PAGE_BYTES
