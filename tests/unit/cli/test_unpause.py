"""Opening a class."""

import json
from typing import Any

import pytest

from onegate.cli.closed import warn
from onegate.cli.main import run


@pytest.mark.parametrize(("applied", "text"), [(True, "is open"), (False, "was not paused")])
def test_it_says_whether_there_was_anything_to_do(
    gate: Any, capsys: Any, applied: bool, text: str
) -> None:
    gate.answers["unpause"] = applied
    assert run(["unpause", "batch"]) == 0
    assert text in capsys.readouterr().out
    assert run(["unpause", "batch", "--json"]) == 0
    document = {"class": "batch", "paused": False, "applied": applied}
    assert json.loads(capsys.readouterr().out) == document
    assert gate.calls[0] == ("unpause", ("batch",), {"on_notice": warn})
