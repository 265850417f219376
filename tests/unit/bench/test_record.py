"""Times of one request."""

from typing import Any

import msgspec
import pytest

from onegate.bench.record import Outcome, Record


def test_times_count_from_the_scheduled_send(made: Any) -> None:
    record = made.record(1000, (150, 250, 400), sent_ns=1_020_000_000)
    assert record.ttft_ms == 150
    assert record.e2e_ms == 400
    assert record.itl_ms == [100, 150]
    assert record.tpot_ms == 125
    assert record.lateness_ms == 20


def test_a_piece_of_several_tokens_counts_once_for_gaps_and_in_full_for_tpot(made: Any) -> None:
    record = made.record(0, (100, 200), pieces_tok=[1, 4], output_tok=5)
    assert record.itl_ms == [100]
    assert record.tpot_ms == 25


def test_the_targets_own_count_wins(made: Any) -> None:
    assert made.record(0, (1, 2)).tokens == 2
    assert made.record(0, (1, 2), output_tok=3).tokens == 3


def test_what_did_not_happen_has_no_time(made: Any) -> None:
    refused = made.record(outcome=Outcome.REFUSED)
    assert (refused.ttft_ms, refused.e2e_ms, refused.tpot_ms) == (None, None, None)
    assert made.record(0, (5,)).tpot_ms is None
    assert made.record(sent_ns=None).lateness_ms is None


def test_the_hint_is_judged_by_when_a_retry_was_taken(made: Any) -> None:
    honest: dict[str, Any] = {"hinted_ns": 10**9, "attempts": 2, "last_sent_ns": 1_200_000_000}
    assert made.record(0, (1,), **honest).hint_error_ms == pytest.approx(200)
    assert made.record(0, (1,), **(honest | {"attempts": 1})).hint_error_ms is None
    assert made.record(**(honest | {"outcome": Outcome.REFUSED})).hint_error_ms is None


def test_what_was_let_in_at_the_very_start_of_the_window_was_let_in(made: Any) -> None:
    assert made.record(0, (), started_ns=0).taken
    assert not made.record(0, (), started_ns=None).taken


def test_a_record_survives_the_wire(made: Any) -> None:
    record = made.record(5, (1, 2), reason="x")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record) == record
