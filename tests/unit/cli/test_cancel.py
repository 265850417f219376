"""Ending a request."""

import json
from typing import Any

import pytest

from onegate.cli.main import run


@pytest.mark.parametrize(("applied", "text"), [(True, "is cancelled"), (False, "was over")])
def test_it_says_whether_there_was_anything_to_do(
    gate: Any, capsys: Any, applied: bool, text: str
) -> None:
    gate.answers["cancel_any"] = applied
    assert run(["cancel", "r1"]) == 0
    assert text in capsys.readouterr().out
    assert run(["cancel", "r1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rid": "r1", "applied": applied}
    assert gate.calls[0] == ("cancel_any", ("r1",), {})
