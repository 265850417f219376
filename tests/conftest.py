"""For every tier: honest skips, a tally for install.sh, one factor for slow machines."""

import asyncio
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest

# With CI=true a skip fails the run unless its reason begins with one of these: things that a
# build machine is not expected to have. Everything else it can install, so a skip hides a gap.
SKIPS_ALLOWED_IN_CI = ("absent traces", "absent tensorrt-llm")

_SKIP_NOT_ALLOWED = (
    "skipped in CI, where only these reasons may skip: "
    + ", ".join(SKIPS_ALLOWED_IN_CI)
    + ". The reason given: "
)


@pytest.fixture(scope="session")
def timeout_factor() -> float:
    """Every timeout of a test is multiplied by this; ONEGATE_TIMEOUT_FACTOR for slow machines."""
    return float(os.environ.get("ONEGATE_TIMEOUT_FACTOR", "1"))


@pytest.fixture(scope="session", autouse=True)
def _one_copy_of_the_package() -> Iterator[None]:
    """Fails the run when something imported `daemon.onegate`, a second copy with its own state."""
    yield
    copies = [name for name in sys.modules if name.partition(".")[0] == "daemon"]
    assert not copies, f"daemon/ is a source root and was imported as a package: {copies}"


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """asyncio's own loop, or with ONEGATE_TEST_LOOP=uvloop the one that the daemon runs on."""
    if os.environ.get("ONEGATE_TEST_LOOP") == "uvloop":
        import uvloop

        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


def _skip_is_a_failure(report: pytest.TestReport | pytest.CollectReport) -> bool:
    return (
        report.skipped
        and not hasattr(report, "wasxfail")
        and os.environ.get("CI") == "true"
        and not _skip_reason(report).startswith(SKIPS_ALLOWED_IN_CI)
    )


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # A skip's longrepr is (path, line, "Skipped: reason").
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _skip_is_a_failure(report):
        report.outcome = "failed"
        report.longrepr = _SKIP_NOT_ALLOWED + _skip_reason(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _skip_is_a_failure(report):
        report.outcome = "failed"
        report.longrepr = _SKIP_NOT_ALLOWED + _skip_reason(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Appends `passed N`, `failed N` and `skipped REASON` lines to the file ONEGATE_TEST_TALLY."""
    tally = os.environ.get("ONEGATE_TEST_TALLY")
    if not tally or hasattr(terminalreporter.config, "workerinput"):
        return  # of tests side by side the one that spreads them counts
    stats = terminalreporter.stats
    failed = len(stats.get("failed", ())) + len(stats.get("error", ()))
    lines = [f"passed {len(stats.get('passed', ()))}", f"failed {failed}"]
    lines += [f"skipped {_skip_reason(report)}" for report in stats.get("skipped", ())]
    with Path(tally).open("a", encoding="utf-8") as file:
        file.writelines(" ".join(line.split()) + "\n" for line in lines)
