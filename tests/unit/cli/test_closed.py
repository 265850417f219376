"""What administrators have closed, in words."""

from datetime import datetime
from typing import Any

import pytest

from onegate.cli.closed import paused, released, warn
from onegate.protocol.messages import Notice

UNTIL_MS = round(datetime(2030, 1, 31, 22, 0).timestamp() * 1000)


@pytest.mark.parametrize("off_ms", [-2, 0, 2])
def test_a_class(given: Any, off_ms: int) -> None:
    assert paused(given.cls(paused=True)) == "paused until it is ended by hand"
    until = given.cls(paused=True, paused_until_ms=UNTIL_MS + off_ms)
    assert paused(until) == "paused until 2030-01-31 22:00:00"


def test_a_device(given: Any) -> None:
    assert released(given.pool(state="released")) == "released until it is ended by hand"
    until = given.pool(state="released", released_until_ms=UNTIL_MS)
    assert released(until) == "released until 2030-01-31 22:00:00"


def test_beyond_the_calendar(given: Any) -> None:
    assert "for longer than" in paused(given.cls(paused=True, paused_until_ms=2**60))


def test_a_warning_is_what_it_says(capsys: Any) -> None:
    warn(Notice(code="closed_unwritten", detail="a restart would not know"))
    out, err = capsys.readouterr()
    assert out == ""
    assert "a restart would not know" in err
