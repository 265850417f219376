"""Says before anything runs why no machine is going to be booted."""

from pathlib import Path

import pytest
from tests.systemd.needs import lacks


def pytest_report_header(config: pytest.Config) -> list[str]:
    """For who watches: the reason of the skips stands at the end only."""
    if "test_*.py" not in config.getini("python_files"):
        return []  # the probes, on the machine that was booted
    found = lacks(Path(__file__).with_name("needs.sh"))
    return [f"NO BOOT, its probes are skipped: {sentence}" for sentence in found]
