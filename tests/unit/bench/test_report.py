"""The document, from a run that a test made up."""

import msgspec

from onegate.bench.conduct import Run
from onegate.bench.report import document, plain


def test_everything_that_was_measured_is_in_it(run: Run) -> None:
    doc = document(run)
    assert [(s.side, s.target) for s in doc.sides] == [("A", "gate"), ("B", "host")]
    a, b = doc.loads
    assert (a.side, a.together[0].ttft_ms.p50, a.alone[0].ttft_ms.p50) == ("A", 300, 100)
    assert (b.side, b.together[0].ttft_ms.p50, b.alone) == ("B", 100, [])
    assert next(r for r in doc.ratios if r.measure == "TTFT p50").ratio.median == 3
    assert next(r for r in doc.interference["A"] if r.measure == "TTFT p95").ratio.median == 3
    assert doc.parts[0].generator_cores == [0.25]
    assert doc.rates_per_s == {"chat": 2.0}
    assert len(doc.curves) == 2


def test_what_was_noisy_is_named(run: Run) -> None:
    doc = document(run)
    assert doc.complaints == ["measure B, load 1, repeat 1: too loud"]
    assert not doc.quiet
    run.results = [r for r in run.results if not r.complaints]
    assert document(run).quiet


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
