"""The state of the daemon, for people and for scripts."""

import json
from datetime import datetime
from typing import Any

import pytest
from msgspec import structs

from onegate.cli.main import run
from onegate.cli.status import headlines, refusals, span
from onegate.protocol.status import StepModel


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.2 s"),
        (59.9, "59.9 s"),
        (61, "1 min 1 s"),
        (3661, "1 h 1 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_spans_are_readable(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_refusals_name_their_reasons() -> None:
    assert refusals({}) == "0"
    assert refusals({"paused": 0}) == "0"
    assert refusals({"tokens_full": 2, "paused": 1}) == "3 (tokens_full 2, paused 1)"


def test_what_is_wrong_comes_first(given: Any) -> None:
    status = given.status(
        notices=[given.notice(code="cold_cache", detail="it is", since_ms=1)],
        pools=[given.pool(state="failed", error="out of memory")],
    )
    text = headlines(status)
    assert "notice cold_cache: it is" in text
    assert "tiny: out of memory" in text


def test_what_is_closed_is_said_with_its_time(given: Any) -> None:
    until_ms = round(datetime(2030, 1, 31, 7).timestamp() * 1000)
    status = given.status(
        pools=[given.pool(state="released", released_until_ms=until_ms), given.pool(model="other")],
        classes=[given.cls(paused=True), given.cls(name="loop")],
    )
    assert headlines(status)[2:] == [
        "tiny is released until 2030-01-31 07:00:00",
        "class batch is paused until it is ended by hand",
    ]


def shown(gate: Any, given: Any, capsys: Any, **more: Any) -> str:
    gate.answers["status"] = given.status(**more)
    gate.answers["requests"] = [given.request(), given.request(rid="r2", mine=False, principal="8")]
    assert run(["status", "--socket", "/s"]) == 0
    return str(capsys.readouterr().out)


def test_a_person_sees_everything(gate: Any, given: Any, capsys: Any) -> None:
    cls = given.cls(
        ttft_ms=given.quantiles(p50=80.0, p95=110.0), expected_wait_ms=1500, paused=True
    )
    text = shown(gate, given, capsys, classes=[cls])
    for piece in (
        *("serving, up 1 d 1 h", "in flight 3 of 64", "3 of 16", "80 / 110", "1.5 s"),
        *("batch (paused)", "400 of 1000", "r1", "mine", "r2", "8"),
    ):
        assert piece in text
    assert gate.opened[0]["socket"] == "/s"


def test_an_unknown_figure_is_a_dash_and_not_zero(gate: Any, given: Any, capsys: Any) -> None:
    text = shown(gate, given, capsys)
    assert "- of -" in text
    row = next(line for line in text.splitlines() if line.lstrip().startswith("tiny"))
    assert row.split()[-2:] == ["-", "-"]


def test_what_was_learned_is_shown_on_demand(gate: Any, given: Any, capsys: Any) -> None:
    known = StepModel(
        step_ms=15.25,
        prefill_ms_per_tok=0.5,
        decode_ms_per_seq=0.125,
        error=0.07,
        steps=300,
        age_ms=2500,
    )
    part = structs.replace(known, prefill_ms_per_tok=None, error=None, steps=20)
    gate.answers["status"] = given.status(
        pools=[
            given.pool(step_model=known),
            given.pool(model="part", step_model=part),
            given.pool(model="other"),
        ],
        classes=[given.cls(prompt_tok=901, recomputed_tok=902, output_tok=903, discarded_tok=904)],
    )
    gate.answers["requests"] = []
    assert run(["status"]) == 0
    brief = capsys.readouterr().out
    assert "15.25" not in brief
    assert run(["status", "-v"]) == 0
    text = capsys.readouterr().out.removeprefix(brief)
    rows = [line.split() for line in text.splitlines()]
    assert ["tiny", "15.25", "0.5000", "0.125", "7.0%", "300", "2.5", "s", "ago"] in rows
    assert ["part", "15.25", "-", "0.125", "-", "20", "2.5", "s", "ago"] in rows
    assert ["other", *"------"] in rows
    assert ["batch", "901", "-", "902", "903", "904"] in rows


def test_names_cannot_write_on_the_terminal(gate: Any, given: Any, capsys: Any) -> None:
    text = shown(gate, given, capsys, pools=[given.pool(model="[red]\x1b[2J")])
    assert "\x1b" not in text
    assert "[red]␛[2J" in text


def test_json_is_the_document_and_asks_once(gate: Any, given: Any, capsys: Any) -> None:
    gate.answers["status"] = given.status()
    assert run(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gate"]["limited_by"] is None
    assert document["pools"][0]["tok_per_s"] is None
    assert [name for name, _, _ in gate.calls] == ["status"]
