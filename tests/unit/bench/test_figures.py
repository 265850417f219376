"""The figures of a class, by hand."""

from typing import Any

import pytest

from onegate.bench.figures import figures, meets
from onegate.bench.record import END_OF_RUN, Outcome
from onegate.bench.scenario import Limits


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        (Limits(), True),
        (Limits(ttft_ms=100), True),
        (Limits(ttft_ms=99), False),
        (Limits(itl_ms=40), True),
        (Limits(itl_ms=39), False),
        (Limits(tpot_ms=30), True),
        (Limits(tpot_ms=29), False),
        (Limits(e2e_ms=160), True),
        (Limits(e2e_ms=159), False),
    ],
)
def test_all_limits_have_to_be_met(made: Any, limits: Limits, met: bool) -> None:
    assert meets(made.record(0, (100, 120, 160)), limits) is met


def test_what_is_not_known_is_not_met(made: Any) -> None:
    silent = made.record(0, ())
    assert not meets(silent, Limits())
    assert not meets(silent, Limits(ttft_ms=100))
    # Two pieces of which the target says that they were one token: no time per token.
    odd = made.record(0, (100, 200), output_tok=1)
    assert odd.tpot_ms is None
    assert not meets(odd, Limits(tpot_ms=1000))


def test_an_answer_in_one_piece_has_no_gap_to_judge(made: Any) -> None:
    assert meets(made.record(0, (100,)), Limits(ttft_ms=100, itl_ms=1, tpot_ms=1, e2e_ms=100))


def test_shortened_requests_are_counted(made: Any) -> None:
    found = figures("chat", [made.record(shortened=True), made.record()], Limits(), 1.0)
    assert found.shortened == 1


def test_only_what_finished_is_good(made: Any) -> None:
    assert not meets(made.record(0, (1,), outcome=Outcome.FAILED), Limits())


def test_outcomes_rates_and_waste(made: Any) -> None:
    records = [
        made.record(0, (100, 200)),
        made.record(500, (400, 500)),
        made.record(600, (), outcome=Outcome.REFUSED, reason="class_full", attempts=3),
        made.record(700, (50, 60, 70), outcome=Outcome.LEFT, reason=END_OF_RUN),
        made.record(800, (), outcome=Outcome.EXPIRED, reason="deadline_exceeded"),
    ]
    found = figures("chat", records, Limits(ttft_ms=300), 2.0)
    assert found.scheduled == 5
    assert found.outcomes == {"finished": 2, "refused": 1, "expired": 1, "failed": 0, "left": 1}
    assert found.reasons == {"class_full": 1, END_OF_RUN: 1, "deadline_exceeded": 1}
    assert found.goodput_per_s == 0.5
    assert found.goodput_tok_per_s == 1.0
    assert found.tok_per_s == 3.5
    assert found.met_share == 0.2
    assert found.refused_share == 0.2
    assert found.wasted_tok == 3
    assert found.attempts_per_success == 2.5
    assert found.ttft_ms.n == 3
    assert found.offered_per_s == 2.5


def test_the_warm_up_does_not_count_but_its_tokens_in_the_window_do(made: Any) -> None:
    records = [made.record(-100, (50, 150, 1200)), made.record(0, (10,))]
    found = figures("chat", records, Limits(), 1.0)
    assert found.scheduled == 1
    assert found.ttft_ms.n == 1
    assert found.tok_per_s == 2


def test_repeats_share_their_windows(made: Any) -> None:
    found = figures("chat", [made.record(0, (10,))] * 4, Limits(), 1.0, windows=2)
    assert found.goodput_per_s == 2
    assert found.window_s == 2


def test_of_no_records_nothing_is_known() -> None:
    found = figures("chat", [], Limits(), 1.0)
    assert (found.met_share, found.refused_share, found.attempts_per_success) == (None, None, None)
    assert found.ttft_ms.p50 is None
