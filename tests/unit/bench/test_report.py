"""The document, from a run that a test made up."""

from typing import Any

import msgspec
from msgspec import structs

from onegate.bench.conduct import Run
from onegate.bench.plan import Part
from onegate.bench.prompts import Rule
from onegate.bench.record import Outcome
from onegate.bench.report import Document, document, plain
from onegate.bench.stats import Spread
from onegate.bench.targets.base import Facts
from onegate.bench.targets.spec import Spec


def test_everything_that_was_measured_is_in_it(run: Run) -> None:
    doc = document(run)
    assert [(s.side, s.target) for s in doc.sides] == [("A", "gate"), ("B", "host")]
    a, b = doc.loads
    assert (a.side, a.together[0].ttft_ms.p50, a.alone[0].ttft_ms.p50) == ("A", 300, 100)
    assert (b.side, b.together[0].ttft_ms.p50, b.alone) == ("B", 100, [])
    three = Spread(n=1, median=3.0, low=3.0, high=3.0)
    assert next(r for r in doc.ratios if r.measure == "TTFT p50").ratio == three
    assert next(r for r in doc.interference["A"] if r.measure == "TTFT p95").ratio == three
    assert doc.parts[0].generator_cores == [0.25]
    assert doc.rates_per_s == {"chat": 2.0}
    assert len(doc.curves) == 2


def test_ratios_are_of_two_sides_and_places_of_any_number(flood: Any) -> None:
    assert [place.side for place in document(flood).frontier] == ["A", "B"]
    assert document(flood).ratios
    flood.sides["C"] = Spec("host")
    flood.facts["C"], flood.rules["C"] = flood.facts["B"], flood.rules["B"]
    doc = document(flood)
    assert doc.ratios == []
    # What nobody has measured has no place to be compared with.
    assert [(place.side, place.kept) for place in doc.frontier] == [
        ("A", None), ("B", None), ("C", None),
    ]  # fmt: skip


def test_what_was_noisy_is_named(run: Run) -> None:
    doc = document(run)
    assert doc.complaints == ["measure B, load 1, repeat 1: too loud"]
    assert not doc.quiet
    run.results = [r for r in run.results if not r.complaints]
    assert document(run).quiet


def test_a_calibration_is_a_part_that_is_judged_too(run: Run) -> None:
    noisy = structs.replace(run.results[2], part=Part(role="calibrate", side="A", only="chat"))
    run.calibrations = [noisy]
    run.results = run.results[:2]
    doc = document(run)
    assert doc.complaints == ["calibrate A, load 1, repeat 1, chat alone: too loud"]
    assert doc.parts[0].part == "calibrate A, load 1, repeat 1, chat alone"
    assert doc.loads[0].together[0].scheduled == 1


def over_http(run: Run, made: Any, output_tok: int | None) -> Document:
    """B is a server whose pieces are guessed; one answer was whole and one was left."""
    run.sides["B"] = Spec("openai", "http://x")
    run.results[2] = structs.replace(
        run.results[2],
        records=[
            made.record(0, (10, 20), output_tok=output_tok),
            made.record(0, (10, 20, 30), outcome=Outcome.LEFT),
        ],
    )
    return document(run)


def test_pieces_of_a_server_have_the_tokens_that_it_told(run: Run, made: Any) -> None:
    doc = over_http(run, made, 8)
    row = doc.loads[1].together[0]
    assert (row.tok_per_s, row.wasted_tok) == ((8 + 12) / 10.0, 12)
    assert [side.tok_per_piece for side in doc.sides] == [None, 4.0]
    assert doc.remarks == []


def test_a_server_that_tells_no_tokens_is_said_to(run: Run, made: Any) -> None:
    doc = over_http(run, made, None)
    assert doc.loads[1].together[0].wasted_tok == 3
    (remark,) = doc.remarks
    assert remark.startswith("B: the target told no tokens of answers")


def test_a_mean_is_of_the_class_where_it_has_one(run: Run, made: Any) -> None:
    run.scenario = made.scenario(made.cls(), made.cls("batch"), made.cls("other"))
    over_http(run, made, 8)
    run.results[2].records.extend(
        [
            made.record(0, (10, 20), output_tok=2, cls=1),
            made.record(0, (10, 20), outcome=Outcome.LEFT, cls=1),
            made.record(0, (10, 20), outcome=Outcome.LEFT, cls=2),
        ]
    )
    rows = {row.name: row for row in document(run).loads[1].together}
    assert rows["batch"].wasted_tok == 2
    assert rows["other"].wasted_tok == 5  # 10 tokens in 4 pieces, of all classes


def test_what_a_reader_has_to_know_is_remarked(run: Run, made: Any) -> None:
    run.scenario = made.scenario(made.cls(), made.cls("batch"))
    run.rules["A"] = Rule("words", 3, False)
    run.facts["A"] = Facts(model="tiny", context_tok=4096)
    run.results[1].records.append(made.record(0, (1,), shortened=True))
    run.results.pop()
    assert document(run).remarks == [
        "A: prompts are not of exact lengths: the target counts unevenly",
        "A chat, load 1: 1 of 2 requests were cut to what a context of 4096 tokens holds",
        "A batch, load 1: no request was due in the window",
    ]


def test_what_is_infinite_is_null_in_json(run: Run, made: Any) -> None:
    run.results[2] = structs.replace(
        run.results[2], records=[made.record(0, (), outcome=Outcome.FAILED)]
    )
    found = msgspec.json.decode(msgspec.json.encode(plain(document(run))))
    (goodput,) = [r for r in found["ratios"] if r["measure"] == "goodput/s"]
    assert goodput["ratio"] == {"n": 1, "median": None, "low": None, "high": None}
    assert goodput["difference"]["median"] == 0.1


def test_json_has_every_field_of_the_document_but_the_plots(run: Run) -> None:
    doc = document(run)
    found = msgspec.json.decode(msgspec.json.encode(plain(doc)))
    assert set(found) == set(doc.__struct_fields__) - {"curves"}
    assert found["schema"] == 1
    assert found["definitions"]["TTFT"]
    assert found["loads"][0]["together"][0]["ttft_ms"] == {
        "n": 1,
        "p50": 300.0,
        "p95": 300.0,
        "p99": 300.0,
        "max": 300.0,
    }


def test_sides_of_one_server_are_said_to_differ_in_their_prompts(run: Any) -> None:
    assert not [text for text in document(run).remarks if "one server" in text]
    run.sides = {"A": Spec("gate", "/s", "a"), "B": Spec("gate", "/s", "b")}
    assert [text for text in document(run).remarks if "one server" in text]
