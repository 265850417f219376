"""Who used how much, shown by day."""

import json
from typing import Any

import pytest
from msgspec import structs

from onegate.cli.exits import UsageError
from onegate.cli.main import run
from onegate.cli.usage import cached, first_moment, other_ends
from onegate.protocol import messages as m

DAY_S = 86_400
ROW = m.UsageRow(
    day="2030-01-31",
    principal="uid:1000",
    class_="batch",
    requests={"finished": 7, "rejected": 2, "failed": 1, "cancelled": 3},
    prompt_tok=1200,
    output_tok=3400,
    queue_ms=61_000,
    run_ms=7_200_000,
)


def report(*rows: m.UsageRow, **fields: Any) -> m.UsageReport:
    return m.UsageReport(id=1, rows=list(rows), **({"everybody": True, "stored": True} | fields))


@pytest.mark.parametrize(
    ("since", "begins"),
    [("1d", 1e9), ("7d", 1e9 - 6 * DAY_S), ("99999d", 0.0), ("all", None)],
)
def test_how_far_back(since: str, begins: float | None) -> None:
    assert first_moment(since, 1e9) == begins


@pytest.mark.parametrize("since", ["", "7", "0d", "-1d", "1.5d", "week", "100000d", "7d "])
def test_what_is_no_number_of_days(since: str) -> None:
    with pytest.raises(UsageError, match="try 7d"):
        first_moment(since, 1e9)


def test_a_bad_number_is_found_before_the_daemon_is_asked(gate: Any) -> None:
    assert run(["usage", "--since", "soon"]) == 64
    assert gate.opened == []


def test_rows_are_a_table(gate: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onegate.cli.usage.wall_ms", lambda: 10**12)
    gate.answers["usage"] = report(ROW)
    assert run(["usage"]) == 0
    assert gate.calls == [("usage", (), {"since": 1e9 - 6 * DAY_S})]
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if "uid:1000" in line]
    for cell in ("2030-01-31", "batch", "7", "2", "1200", "3400", "1 min 1 s", "2 h 0 min"):
        assert f" {cell}" in f" {line}"
    assert "4 (cancelled 3, failed 1)" in line
    assert "own rows" not in out
    assert "memory" not in out


@pytest.mark.parametrize(
    ("told_tok", "cached_tok", "text"), [(0, None, "-"), (1200, 0, "0"), (900, 400, "400 of 900")]
)
def test_what_was_cached(told_tok: int, cached_tok: int | None, text: str) -> None:
    row = structs.replace(ROW, told_tok=told_tok, cached_tok=cached_tok)
    assert cached(row) == text


def test_what_was_computed_again_stands_beside_the_prompts(gate: Any, capsys: Any) -> None:
    row = structs.replace(ROW, told_tok=1200, cached_tok=850, recomputed_tok=77)
    gate.answers["usage"] = report(row)
    run(["usage"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "uid:1000" in line]
    cells = ["1200", "850", "77", "3400"]
    assert [cell for cell in line.split() if cell in cells] == cells


def test_a_control_character_in_a_name_is_shown(gate: Any, capsys: Any) -> None:
    gate.answers["usage"] = report(structs.replace(ROW, principal="a\x1b[31m"))
    run(["usage"])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("everybody", [True, False])
def test_whose_rows_these_are_and_where_they_are_kept(
    gate: Any, capsys: Any, everybody: bool
) -> None:
    gate.answers["usage"] = report(ROW, everybody=everybody, stored=False)
    run(["usage"])
    out = capsys.readouterr().out
    assert ("your own rows" in out) is not everybody
    assert "a restart of the daemon forgets them" in out


@pytest.mark.parametrize(
    ("everybody", "said"), [(True, "nothing was used"), (False, "you used nothing")]
)
def test_no_rows(gate: Any, capsys: Any, everybody: bool, said: str) -> None:
    gate.answers["usage"] = report(everybody=everybody)
    assert run(["usage"]) == 0
    assert said in capsys.readouterr().out


def test_json_is_the_report(gate: Any, capsys: Any) -> None:
    gate.answers["usage"] = report(ROW, stored=False)
    assert run(["usage", "--since", "all", "--json"]) == 0
    assert gate.calls == [("usage", (), {"since": None})]
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["class"] == "batch"
    assert document["rows"][0]["requests"]["finished"] == 7


@pytest.mark.parametrize(("ends", "text"), [({}, "0"), ({"failed": 2}, "2 (failed 2)")])
def test_other_ends(ends: dict[str, int], text: str) -> None:
    assert other_ends(ends) == text


def test_what_is_left_of_the_day_is_said(gate: Any, capsys: Any) -> None:
    use = m.DailyUse(limit_tok=5000, used_tok=1200, resets_in_ms=90_000)
    gate.answers["usage"] = report(daily={"batch": use})
    run(["usage"])
    out = capsys.readouterr().out
    assert "today, batch: 1200 of 5000 tokens, the day ends in 1 min 30 s" in out
