"""Runs on the booted machine alone. Without an installation the other probes mean nothing."""

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and report.nodeid.endswith("::test_install"):
        pytest.exit("nothing was installed", returncode=1)
