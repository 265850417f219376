"""What a machine has to have and to allow, so that a copy of it can be booted."""

import functools
import os
import shutil
import subprocess
from pathlib import Path


@functools.cache
def lacks(script: Path) -> list[str]:
    """What is missing, a sentence each. `script` tries the mounts."""
    if os.geteuid() != 0:
        return ["booting a machine needs root"]
    if shutil.which("systemd-nspawn") is None:
        return ["systemd-nspawn is not installed (apt install systemd-container)"]
    done = subprocess.run([script], capture_output=True, text=True, check=True)
    return [f"this machine boots no copy of itself: {line}" for line in done.stdout.splitlines()]
