"""Runs on the booted machine alone. Without an installation the other probes mean nothing."""

import json
from pathlib import Path

import pytest

# Beside junit.xml, which is written at the end alone: a line for each probe as soon as it ends.
ENDED = Path("/srv/results/ended.jsonl")


def line_of(report: pytest.TestReport) -> str | None:
    """How a probe ended, None while it has not: its name, passed, skipped or failed, and words."""
    if report.when != "call" and report.passed:
        return None
    file, _, name = report.nodeid.partition("::")
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    ended = {"name": f"{Path(file).stem}::{name}", "how": report.outcome, "words": words}
    return json.dumps(ended) + "\n"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if (line := line_of(report)) is not None:
        with ENDED.open("a", encoding="utf-8") as file:
            file.write(line)
    if report.failed and report.nodeid.endswith("::test_install"):
        pytest.exit("nothing was installed", returncode=1)
