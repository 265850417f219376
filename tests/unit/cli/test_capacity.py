"""Would it be taken?"""

import json
from typing import Any

import pytest

from onegate.cli.capacity import verdict
from onegate.cli.main import run
from onegate.protocol import messages as m
from onegate.protocol.errors import LimitedBy, Reason

START = m.CapacityReport(id=1, verdict="start")
QUEUE = m.CapacityReport(
    id=1, verdict="queue", position=3, expected_wait_ms=4200, limited_by=LimitedBy.SEATS
)
REFUSE = m.CapacityReport(
    id=1, verdict="refuse", reason=Reason.TOKENS_FULL, limit=10, used=9, retry_after_ms=2500
)
NEVER = m.CapacityReport(id=1, verdict="refuse", reason=Reason.TOO_LARGE)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (START, "would start now"),
        (QUEUE, "would wait about 4.2 s, at place 3; limited by seats"),
        (
            m.CapacityReport(id=1, verdict="queue", position=1),
            "would wait for an unknown time, at place 1",
        ),
        (REFUSE, "would be refused: tokens_full (9 of 10 used); try again in 2.5 s"),
        (NEVER, "would be refused: too_large"),
    ],
)
def test_the_verdict_is_a_sentence(report: m.CapacityReport, text: str) -> None:
    assert verdict(report) == text


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (START, 0),
        (QUEUE, 0),
        (REFUSE, 75),
        (NEVER, 65),
        (m.CapacityReport(id=1, verdict="refuse", reason=Reason.CLASS_NOT_ALLOWED), 77),
        (m.CapacityReport(id=1, verdict="refuse"), 75),
    ],
)
def test_scripts_can_tell(gate: Any, report: m.CapacityReport, code: int) -> None:
    gate.answers["capacity"] = report
    assert run(["capacity"]) == code


def test_flags_arrive(gate: Any, capsys: Any) -> None:
    gate.answers["capacity"] = QUEUE
    line = "capacity --class batch --prompt-tok 9 --max-tokens 8 --model tiny --socket /s --json"
    assert run(line.split()) == 0
    name, arguments, keywords = gate.calls[0]
    assert (name, arguments) == ("capacity", (9, 8))
    assert keywords == {"model": "tiny", "class_": "batch"}
    assert json.loads(capsys.readouterr().out)["limited_by"] == "seats"
