"""The command line and its exit codes."""

import os
import sys
from pathlib import Path

import pytest

from onegate_ollama_proxy.__main__ import main, parser


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["onegate-ollama-proxy", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_a_configuration_is_only_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("")
    assert run(monkeypatch, "--check", "--config", str(file)) == os.EX_OK


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", os.EX_CONFIG),
        ('[[listener]]\nkey_file = "/nowhere/at/all"', os.EX_CONFIG),
        ('[[listener]]\naddress = "nowhere.invalid:1"', os.EX_UNAVAILABLE),
    ],
)
def test_what_cannot_be_started_says_so(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    code: int,
) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    # What pytest captures has no descriptor.
    with (tmp_path / "err").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert run(monkeypatch, "--config", str(file)) == code
    assert "_error detail=" in (tmp_path / "err").read_text()


def test_a_wrong_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "--nonsense") == os.EX_USAGE
    assert run(monkeypatch, "--help") == os.EX_OK


def test_the_help_has_an_example() -> None:
    assert "example:" in parser().format_help()
