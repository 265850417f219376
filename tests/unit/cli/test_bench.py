"""`onegate bench`, with a measurement that a test plays."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from onegate.bench import machine
from onegate.bench.compare import Ratio
from onegate.bench.conduct import Settings, Tell
from onegate.bench.figures import figures
from onegate.bench.frontier import Place
from onegate.bench.plan import Part
from onegate.bench.prompts import Rule
from onegate.bench.read import load_scenario
from onegate.bench.record import Outcome
from onegate.bench.report import Document, LoadReport, SideReport
from onegate.bench.scenario import Limits, Scenario
from onegate.bench.stats import Spread
from onegate.bench.targets.base import Facts, TargetError
from onegate.bench.targets.spec import Spec
from onegate.cli import bench as verb
from onegate.cli.bench import line
from onegate.cli.main import run


def report(*complaints: str) -> Document:
    scenario = load_scenario("smoke")
    ratio = Spread(n=3, median=1.5, low=1.2, high=2.0)
    row = Ratio(
        cls="chat",
        measure="TTFT p50",
        load=1.0,
        ratio=ratio,
        difference=Spread(n=3, median=4.0, low=1.0, high=9.0),
        repeats=3,
        noise=Spread(n=3, median=1.0, low=0.9, high=1.1),
    )
    empty = figures("chat", [], Limits(), 1.0)
    return Document(
        title="A title",
        scenario=scenario,
        repeats=3,
        machine=machine.facts(),
        sides=[
            SideReport(
                side="A",
                target="gate",
                facts=Facts(model="tiny", engine="scripted"),
                counting=Rule("words", 1, False),
            )
        ],
        rates_per_s={},
        loads=[LoadReport(side="A", load=1.0, together=[empty], alone=[empty])],
        ratios=[row],
        noise=[],
        interference={"A": [row]},
        parts=[],
        complaints=list(complaints),
        remarks=["A: prompts are not of exact lengths"],
        curves=[],
    )


def flooded() -> Document:
    """With a class that was held up."""
    some = figures("chat", [], Limits(), 1.0).ttft_ms
    one = Spread(n=1, median=1.0, low=1.0, high=1.0)
    place = Place(
        side="A",
        load=1.0,
        cls="chat",
        itl_ms=some,
        ttft_ms=some,
        alone_ttft_ms=some,
        added_ms=Spread(n=1, median=190.0, low=190.0, high=190.0),
        queue_ms=one,
        engine_ms=one,
        alone_engine_ms=one,
        step_ms=Spread(n=1, median=50.0, low=50.0, high=50.0),
        tok_per_s=one,
        kept=one,
    )
    side = structs.replace(report().sides[0], side="B", target="strict")
    sides = [*report().sides, side]
    return structs.replace(report(), sides=sides, frontier=[place])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    state: dict[str, Any] = {"answer": report()}

    def measure(scenario: Scenario, sides: dict[str, Spec], settings: Settings) -> Document:
        state.update(scenario=scenario, sides=sides, settings=settings)
        if isinstance(state["answer"], Exception):
            raise state["answer"]
        answer: Document = state["answer"]
        return answer

    monkeypatch.setattr(verb, "_measure", measure)
    return state


def test_a_report_is_a_table_with_definitions(measured: Any, capsys: Any) -> None:
    assert run(["bench", "smoke", "--socket", "/s"]) == 0
    text = capsys.readouterr().out
    for words in ("A title", "tiny on scripted", "chat, alone", "1.500 (1.200 to 2.000)"):
        assert words in text
    assert "beyond noise" in text
    assert "not of exact lengths" in text
    assert "TTFT: scheduled send" in text
    assert measured["sides"] == {"A": Spec("gate", "/s")}


def test_who_was_held_up_is_told(measured: Any, capsys: Any) -> None:
    measured["answer"] = flooded()
    assert run(["bench", "flood"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "The frontier: what a class waits" in text
    assert "+190 ms beside the others, at most 2 steps, 100 ms: missed; kept 1.000" in text


def test_what_is_asked_for_reaches_the_run(measured: Any) -> None:
    arguments = ["--on", "private:a.toml", "--vs", "host", "--aa", "--repeats", "5"]
    assert run(["bench", "chat", *arguments, "--duration", "7", "--generators", "2"]) == 0
    assert measured["sides"] == {"A": Spec("private", "a.toml"), "B": Spec("host")}
    settings = measured["settings"]
    assert (settings.repeats, settings.noise, settings.generators) == (5, True, 2)
    assert measured["scenario"].duration_s == 7


def test_a_setting_makes_a_side_of_each_value(measured: Any) -> None:
    arguments = ["--on", "embedded", "--vary", "interactive.itl_target_ms=60,none"]
    assert run(["bench", "flood", *arguments, "--vs", "host"]) == 0
    assert measured["sides"] == {
        "A": Spec("embedded", setting="interactive.itl_target_ms=60"),
        "B": Spec("embedded", setting="interactive.itl_target_ms=none"),
        "C": Spec("host"),
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vary", "interactive.preempt=never"], "--vary needs --on private or embedded"),
        (["--on", "private", "--vary", "a.b=1,2,3,4,5,6,7,8,9"], "at most 8 are measured"),
    ],
)
def test_what_cannot_be_varied(
    measured: Any, capsys: Any, arguments: list[str], words: str
) -> None:
    assert run(["bench", "smoke", *arguments]) == 64
    assert words in capsys.readouterr().err
    assert "scenario" not in measured


def test_what_varies_nothing_is_no_target(measured: Any, capsys: Any) -> None:
    assert run(["bench", "smoke", "--on", "private", "--vary", "preempt"]) == 69
    assert "it is CLASS.KEY=VALUE" in capsys.readouterr().err


def test_json_is_one_document(measured: Any, capsys: Any) -> None:
    assert run(["bench", "smoke", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["title"] == "A title"
    assert "curves" not in found


def test_the_page_is_written_beside_the_rest(measured: Any, capsys: Any, tmp_path: Path) -> None:
    assert run(["bench", "smoke", "--html", str(tmp_path / "r.html")]) == 0
    assert "<title>A title</title>" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("place", "words"), [("none/r.html", "there is no directory"), (".", "it is a directory")]
)
def test_a_page_that_cannot_be_written_is_told_before_the_measurement(
    measured: Any, capsys: Any, tmp_path: Path, place: str, words: str
) -> None:
    assert run(["bench", "smoke", "--html", str(tmp_path / place), "--json"]) == 74
    captured = capsys.readouterr()
    assert f"cannot be written: {words}" in captured.err
    assert words in json.loads(captured.out)["error"]["message"]
    assert "scenario" not in measured


def test_a_page_that_could_not_be_written_in_the_end_is_an_error_too(
    measured: Any, capsys: Any
) -> None:
    assert run(["bench", "smoke", "--html", "/dev/full"]) == 74
    captured = capsys.readouterr()
    assert "/dev/full cannot be written: No space" in captured.err
    assert "A title" in captured.out


def failing(reasons: dict[str, int], **outcomes: int) -> Document:
    doc = report()
    rows = structs.replace(
        doc.loads[0].together[0],
        scheduled=sum(outcomes.values()),
        outcomes={outcome.value: outcomes.get(outcome.value, 0) for outcome in Outcome},
        reasons=reasons,
    )
    return structs.replace(doc, loads=[structs.replace(doc.loads[0], together=[rows], alone=[])])


@pytest.mark.parametrize(
    ("doc", "code", "words"),
    [
        (failing({"http_500": 6}, failed=6, finished=4), 0, "6 of 10 requests failed: 6 http_500"),
        (failing({"http_500": 4}, failed=4, finished=6), 0, ""),
        (failing({"invalid": 9}, refused=9), 69, "9 of 9 requests failed: 9 invalid"),
        (failing({"http_404": 9}, refused=9), 69, "nothing at all finished on A"),
        (failing({"class_full": 9}, refused=9), 0, "none of 9 requests finished"),
        (failing({"http_429": 9}, refused=9), 0, "none of 9 requests finished"),
        (failing({"end_of_run": 9}, left=9), 0, "none of 9 requests finished"),
    ],
)
def test_a_target_that_does_not_work_is_said_to(
    measured: Any, capsys: Any, doc: Document, code: int, words: str
) -> None:
    measured["answer"] = doc
    assert run(["bench", "smoke"]) == code
    err = capsys.readouterr().err
    assert words in err if words else not err


def test_a_noisy_machine_is_exit_code_3(measured: Any, capsys: Any) -> None:
    measured["answer"] = report("measure A: too loud")
    assert run(["bench", "smoke"]) == 3
    captured = capsys.readouterr()
    assert "onegate: measure A: too loud" in captured.err
    assert "A title" in captured.out


def test_a_target_that_cannot_be_measured(measured: Any, capsys: Any) -> None:
    measured["answer"] = TargetError("nobody there")
    assert run(["bench", "smoke"]) == 69
    assert capsys.readouterr().err == "onegate: nobody there\n"
    assert run(["bench", "smoke", "--json"]) == 69
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "nobody there"


def test_scenarios_are_listed_and_shown(capsys: Any) -> None:
    assert run(["bench", "--show"]) == 0
    assert "chat+loop+batch\n" in capsys.readouterr().out
    assert run(["bench", "--show", "overload"]) == 0
    assert "loads = [1.0, 2.0, 3.0]" in capsys.readouterr().out
    assert run(["bench", "--show", "nothing"]) == 78


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bench"], 64, "name a scenario: "),
        (["bench", "smoke", "--repeats", "0"], 64, "--repeats takes"),
        (["bench", "smoke", "--generators", "999"], 64, "--generators takes"),
        (["bench", "smoke", "--duration", "0"], 64, "--duration takes"),
        (["bench", "burst", "--duration", "2"], 64, "only after 5 s"),
        (["bench", "nothing"], 78, "there is no shipped scenario"),
        (["bench", "smoke", "--on", "steam"], 69, "'steam' is no target"),
        (["bench", "smoke", "--on", "gate:\udcff"], 64, "is not UTF-8"),
        (["bench", "smoke", "--html", "\udcff"], 64, "is not UTF-8"),
    ],
)
def test_what_cannot_be(capsys: Any, arguments: list[str], code: int, words: str) -> None:
    assert run(arguments) == code
    assert words in capsys.readouterr().err


def test_what_is_too_long_for_a_schedule(measured: Any, capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "fast.toml"
    file.write_text('[[class]]\nname = "a"\narrivals = { rate_per_s = 1000 }\n')
    assert run(["bench", str(file), "--duration", "80000"]) == 78
    assert "more than 2000000 requests" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--repeats", "0"], ["--reapets", "1"]])
def test_usage_is_told_as_json_too(capsys: Any, arguments: list[str]) -> None:
    assert run(["bench", "smoke", "--json", *arguments]) == 64
    captured = capsys.readouterr()
    assert arguments[0] in json.loads(captured.out)["error"]["message"]
    assert arguments[0] in captured.err


@pytest.mark.parametrize("kind", ["private", "embedded", "host"])
def test_callers_of_another_user_need_a_door(capsys: Any, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "two.toml"
    file.write_text('[[class]]\nname = "a"\nuid = 65534\n')
    assert run(["bench", str(file), "--on", kind]) == 69
    assert f"onegate: {kind} has no callers of another user" in capsys.readouterr().err


def test_progress_is_a_bar_for_the_whole_run() -> None:
    part = Part(role="measure", side="A", only="chat")
    text = line(Tell(1, 4, part, 50, 100))
    assert text.startswith("█" * 9 + "░" * 15 + " 2/4 measure A, load 1")
    assert text.endswith("chat alone: 50 of 100 requests")
