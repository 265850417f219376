"""Who you are."""

import json
from typing import Any

import pytest

from onegate.cli.main import run
from onegate.cli.whoami import lines
from onegate.protocol import messages as m

REPORT = m.WhoamiReport(
    id=1,
    peer=m.PeerFacts(uid=7, gid=8, pid=9, unit="cron.service", slice="system.slice"),
    principal="7",
    class_="batch",
    ceiling="batch",
    allowed=["batch"],
    why=["grant: unit cron.service -> batch"],
)


def test_a_person_sees_facts_decision_and_reason() -> None:
    text = "\n".join(lines(REPORT))
    assert "uid 7, gid 8, pid 9, unit cron.service, slice system.slice, without a terminal" in text
    assert "class      batch" in text
    assert "  - grant: unit cron.service -> batch" in text
    assert "rights" not in text


def test_rights_are_shown_where_there_are_any() -> None:
    import msgspec

    report = msgspec.structs.replace(REPORT, admin=True, delegate=True)
    assert "rights     administrator, delegate" in lines(report)


def test_what_the_program_does_shows_in_the_class() -> None:
    import msgspec

    report = msgspec.structs.replace(REPORT, class_="interactive", treated_as="loop")
    assert lines(report)[0] == "class      interactive, treated as loop now"


def test_rations_of_the_day_are_shown() -> None:
    import msgspec

    use = m.DailyUse(limit_tok=5000, used_tok=1200, resets_in_ms=3 * 3_600_000)
    shown = lines(msgspec.structs.replace(REPORT, daily={"batch": use}))
    assert "today      batch: 1200 of 5000 tokens, the day ends in 3 h 0 min" in shown
    assert not any("today" in line for line in lines(REPORT))


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_verb(gate: Any, capsys: Any, flags: list[str]) -> None:
    gate.answers["whoami"] = REPORT
    assert run(["whoami", *flags, "--socket", "/s"]) == 0
    out = capsys.readouterr().out
    assert gate.opened[0]["socket"] == "/s"
    if flags:
        assert json.loads(out)["class"] == "batch"
    else:
        assert out.startswith("class      batch\n")
