"""Who ends a child whose command is gone."""

import signal
import sys
from pathlib import Path

import pytest

from onegate.cli import guardian

pytestmark = pytest.mark.usefixtures("own_signals")


def python(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def test_a_child_that_ends_is_told_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian, "_left_alone", lambda pid: False)
    assert guardian.main([str(tmp_path), *python("raise SystemExit(7)")]) == 7
    assert tmp_path.exists()
    kill = "import os; os.kill(os.getpid(), 9)"
    assert guardian.main([str(tmp_path), *python(kill)]) == 128 + signal.SIGKILL


def test_a_command_that_is_gone_takes_both_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardian, "_left_alone", lambda pid: True)
    forever = "import signal; signal.pause()"
    assert guardian.main([str(tmp_path), *python(forever)]) == 128 + signal.SIGTERM
    assert not tmp_path.exists()


def test_a_child_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardian, "_left_alone", lambda pid: True)
    monkeypatch.setattr(guardian, "STOP_TIMEOUT_S", 0.0)
    # What was ignored before the child began still is.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = guardian.main([str(tmp_path), *python("import signal; signal.pause()")])
    assert code == 128 + signal.SIGKILL


def test_being_terminated_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(pid: int) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return False

    monkeypatch.setattr(guardian, "_left_alone", terminated)
    forever = "import signal; signal.pause()"
    assert guardian.main([str(tmp_path), *python(forever)]) == 128 + signal.SIGTERM
