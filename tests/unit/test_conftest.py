"""The rules of tests/conftest.py, seen from outside: a pytest of its own in an empty folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def run_pytest(where: Path, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, where)
    (where / "test_it.py").write_text(source)
    inherited = {k: v for k, v in os.environ.items() if k not in ("CI", "ONEGATE_TEST_TALLY")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", where, where],
        env=inherited | environment,
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )


EVERY_OUTCOME = """
import pytest

def test_passes(): pass
def test_fails(): assert 0
def test_errors(broken): pass
def test_skips(): pytest.skip("no node\\nhere")

@pytest.mark.skipif(True, reason="no npm here")
def test_skips_by_mark(): pass

@pytest.mark.skipif(True, reason="absent traces: set ONEGATE_TRACES")
def test_skips_for_an_allowed_reason(): pass

@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail(): assert 0

@pytest.fixture
def broken(): raise ValueError
"""


def test_outside_ci_a_skip_is_a_skip_and_the_tally_counts_it(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    tally.write_text("passed 5\n")
    run_pytest(tmp_path, EVERY_OUTCOME, ONEGATE_TEST_TALLY=str(tally))
    assert tally.read_text().splitlines() == [
        "passed 5",
        "passed 1",
        "failed 2",
        "skipped no node here",
        "skipped no npm here",
        "skipped absent traces: set ONEGATE_TRACES",
    ]


def test_in_ci_a_skip_fails_unless_its_reason_is_allowed(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    done = run_pytest(tmp_path, EVERY_OUTCOME, ONEGATE_TEST_TALLY=str(tally), CI="true")
    assert tally.read_text().splitlines() == [
        "passed 1",
        "failed 4",
        "skipped absent traces: set ONEGATE_TRACES",
    ]
    assert "only these reasons may skip" in done.stdout
    assert "The reason given: no npm here" in done.stdout


def test_in_ci_a_module_that_skips_itself_fails(tmp_path: Path) -> None:
    source = "import pytest\npytest.skip('no node here', allow_module_level=True)\n"
    done = run_pytest(tmp_path, source, CI="true")
    assert done.returncode == 2
    assert "The reason given: no node here" in done.stdout


def test_a_second_copy_of_the_package_fails_the_run(tmp_path: Path) -> None:
    copy = tmp_path / "daemon"
    copy.mkdir()
    (copy / "onegate.py").write_text("")
    source = "def test_a():\n    import importlib; importlib.import_module('daemon.onegate')\n"
    done = run_pytest(tmp_path, source)
    assert done.returncode == 1
    assert "was imported as a package" in done.stdout
