"""Metrics go out as they came in."""

from typing import Any

import pytest

from onegate.cli.main import run


@pytest.mark.parametrize("text", ["onegate_x 1\n", "onegate_x 1"])
def test_the_text_ends_with_one_newline(gate: Any, capsys: Any, text: str) -> None:
    gate.answers["metrics"] = text
    assert run(["metrics", "--socket", "/s"]) == 0
    assert capsys.readouterr().out == "onegate_x 1\n"
    assert gate.opened[0]["socket"] == "/s"
