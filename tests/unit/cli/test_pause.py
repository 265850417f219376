"""Closing a class, and reading times."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from onegate.cli.closed import warn
from onegate.cli.exits import UsageError
from onegate.cli.main import run
from onegate.cli.pause import moment
from onegate.protocol import messages as m

NOW = datetime(2030, 1, 31, 12, 0, 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13:05", datetime(2030, 1, 31, 13, 5)),
        ("7:00", datetime(2030, 2, 1, 7, 0)),
        ("12:00", datetime(2030, 2, 1, 12, 0)),
        ("90s", datetime(2030, 1, 31, 12, 2)),
        ("30m", datetime(2030, 1, 31, 12, 30, 30)),
        ("2h", datetime(2030, 1, 31, 14, 0, 30)),
        ("1d", datetime(2030, 2, 1, 12, 0, 30)),
        ("2030-02-03T04:05", datetime(2030, 2, 3, 4, 5)),
    ],
)
def test_times_that_people_write(text: str, expected: datetime) -> None:
    assert moment(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:60", "-1h", "1w", "2030-13-01"])
def test_what_is_no_time_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is no time: try 07:00"):
        moment(text, NOW)


def test_the_option_that_it_was_given_by_is_named() -> None:
    for text in ("soon", "0s"):
        with pytest.raises(UsageError, match=r"^--for "):
            moment(text, NOW, "--for")


@pytest.mark.parametrize("text", ["2030-01-31T12:00", "1999-01-01", "0s", "0001-01-01T00:00:00"])
def test_what_has_passed_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="has passed"):
        moment(text, NOW)


@pytest.mark.parametrize(
    "text", ["9999-12-31", "9999-12-31T23:59:59", "31d", "2030-03-02T12:00:31"]
)
def test_what_is_too_far_ahead_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"30 days ahead|too far ahead"):
        moment(text, NOW)
    assert moment("30d", NOW) == datetime(2030, 3, 2, 12, 0, 30)


# --- nights in which the clocks are changed -------------------------------------------------------


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Summer time from 2027-03-28 01:00 to 2027-10-31 01:00, both UTC."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    """Local time, at that time of 2027 in UTC."""
    return datetime.fromtimestamp(datetime(2027, month, day, hour, minute, tzinfo=UTC).timestamp())


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    "now",
    [(3, 28, 0, 30), (3, 10, 12), (10, 30, 23, 30), (10, 31, 0, 50), (10, 31, 1, 10), (10, 10, 12)],
)
@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("30d", 30 * 86_400)]
)
def test_a_span_is_so_many_seconds(now: Any, text: str, seconds: int) -> None:
    assert moment(text, utc(*now)).timestamp() - utc(*now).timestamp() == seconds


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        ((3, 28, 0, 30), "07:00", (3, 28, 5)),
        ((3, 27, 20), "07:00", (3, 28, 5)),
        ((10, 30, 20), "07:00", (10, 31, 6)),
        ((10, 31, 0, 10), "02:30", (10, 31, 0, 30)),
        ((10, 31, 0, 50), "02:30", (10, 31, 1, 30)),  # the clocks show it a second time
        ((10, 31, 1, 10), "02:30", (10, 31, 1, 30)),
        ((10, 31, 1, 40), "02:30", (11, 1, 1, 30)),
        ((3, 27, 23, 30), "02:30", (3, 28, 1, 30)),  # they never show it
    ],
)
def test_a_time_of_the_clock_is_the_next_one(now: Any, text: str, expected: Any) -> None:
    assert moment(text, utc(*now)).timestamp() == utc(*expected).timestamp()


def test_pausing_without_an_end(gate: Any, capsys: Any) -> None:
    gate.answers["pause"] = True
    assert run(["pause", "batch"]) == 0
    assert gate.calls == [("pause", ("batch",), {"until": None, "on_notice": warn})]
    assert "until `onegate unpause batch`" in capsys.readouterr().out


def test_pausing_until_a_time(gate: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onegate.cli.pause.wall_ms", lambda: round(NOW.timestamp() * 1000))
    gate.answers["pause"] = True
    assert run(["pause", "batch", "--until", "2h", "--json"]) == 0
    until = datetime(2030, 1, 31, 14, 0, 30).timestamp()
    assert gate.calls == [("pause", ("batch",), {"until": until, "on_notice": warn})]
    document = json.loads(capsys.readouterr().out)
    assert document == {"class": "batch", "paused": True, "paused_until_ms": until * 1000}
    run(["pause", "batch", "--until", "2h"])
    assert "2030-01-31 14:00:30" in capsys.readouterr().out


def test_a_bad_time_is_found_before_the_daemon_is_asked(gate: Any, capsys: Any) -> None:
    assert run(["pause", "batch", "--until", "soon"]) == 64
    assert gate.opened == []
    assert "is no time" in capsys.readouterr().err


def test_what_a_restart_would_not_know_is_said(gate: Any, given: Any, capsys: Any) -> None:
    notice = m.Notice(code="closed_unwritten", detail="a restart of the daemon would not know: x")

    def done(*_: object, on_notice: Any, **__: object) -> bool:
        on_notice(notice)
        return True

    gate.pause = gate.unpause = gate.take_back = gate.release_engine = done
    gate.status = lambda: given.status()
    for verb in (
        ["pause", "batch"],
        ["unpause", "batch"],
        ["release-gpu"],
        ["release-gpu", "--end"],
    ):
        assert run(verb) == 0
        assert "onegate: a restart of the daemon would not know: x\n" in capsys.readouterr().err
