"""What is known of the probes of a machine that was ended before it came to its end."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.systemd.test_boot import Ended, read_ended


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The conftest.py of the probes, which writes to another place here."""
    path = Path(__file__).with_name("probes") / "conftest.py"
    spec = importlib.util.spec_from_file_location("conftest_of_probes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ENDED", tmp_path / "ended.jsonl")
    return module


def report(name: str, when: str, outcome: str, longrepr: Any = None) -> pytest.TestReport:
    nodeid = f"tests/systemd/probes/probe_2.py::{name}"
    return pytest.TestReport(nodeid, ("", 0, ""), {}, outcome, longrepr, when)  # type: ignore[arg-type]


def test_each_probe_is_known_as_soon_as_it_ends(machine: ModuleType, tmp_path: Path) -> None:
    for one in (
        *(report("test_a", when, "passed") for when in ("setup", "call", "teardown")),
        report("test_b", "setup", "skipped", ("f.py", 3, "Skipped: no GPU")),
        report("test_b", "teardown", "passed"),
        report("test_c", "setup", "passed"),
        report("test_c", "call", "failed", "it is wrong"),
        report("test_d", "setup", "failed", "no fixture"),
        report("test_e", "setup", "passed"),
        report("test_e", "call", "passed"),
        report("test_e", "teardown", "failed", "left behind"),
        report("test_f", "setup", "passed"),
    ):
        machine.pytest_runtest_logreport(one)
    assert read_ended(tmp_path / "ended.jsonl") == {
        "probe_2::test_a": Ended("passed", ""),
        "probe_2::test_b": Ended("skipped", "Skipped: no GPU"),
        "probe_2::test_c": Ended("failed", "it is wrong"),
        "probe_2::test_d": Ended("failed", "no fixture"),
        "probe_2::test_e": Ended("failed", "left behind"),
    }


def test_a_line_that_was_cut_short_is_no_end(tmp_path: Path) -> None:
    path = tmp_path / "ended.jsonl"
    assert read_ended(path) == {}
    whole = json.dumps({"name": "p::a", "how": "passed", "words": ""}) + "\n"
    path.write_text(whole + whole.replace("p::a", "p::b")[:-1])
    assert read_ended(path) == {"p::a": Ended("passed", "")}
