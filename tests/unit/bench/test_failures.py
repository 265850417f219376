"""Whether a target worked at all."""

from typing import Any

from onegate.bench.failures import bad, broken, warnings
from onegate.bench.record import Outcome
from onegate.bench.report import document
from onegate.bench.scenario import Leave


def spoil(run: Any, side: str, outcome: Outcome, reason: str) -> None:
    for result in run.results:
        if result.part.side == side:
            for record in result.records:
                record.outcome, record.reason = outcome, reason


def test_a_target_that_works_is_not_spoken_of(run: Any) -> None:
    assert warnings(document(run)) == broken(document(run)) == []


def test_a_side_of_which_nothing_finished_is_told(run: Any) -> None:
    spoil(run, "B", Outcome.FAILED, "http_500")
    doc = document(run)
    assert broken(doc) == ["B"]
    assert warnings(doc) == ["B chat, load 1: 1 of 1 requests failed: 1 http_500"]


def test_a_refusal_is_a_failure_where_waiting_does_not_mend_it(run: Any) -> None:
    for reason, expected in (
        *(("invalid", 1), ("class_not_allowed", 1), ("http_404", 1)),
        *(("class_full", 0), ("http_429", 0), ("http_503", 0)),
    ):
        spoil(run, "A", Outcome.REFUSED, reason)
        assert bad(document(run).loads[0].together[0]) == expected


def test_whoever_was_to_leave_is_not_missed(run: Any, made: Any) -> None:
    spoil(run, "A", Outcome.LEFT, "queued")
    assert warnings(document(run)) == [
        "A chat, load 1: none of 1 requests finished",
        "A chat, load 1: none of 1 requests finished",
    ]
    for cls in (made.cls(leave=Leave()), made.cls(cut=True)):
        run.scenario = made.scenario(cls, isolate=["chat"])
        assert warnings(document(run)) == []
