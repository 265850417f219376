"""How fast a queue drains, while there is something to drain."""

import pytest

from onegate.admission.rate import BUCKET_NS, LEAST_NS, WINDOW_NS, DrainRate, WindowSum

S = 10**9


def test_a_window_forgets() -> None:
    window = WindowSum(10 * S)
    window.add(5, 0)
    window.add(7, 4 * S)
    assert window.value(4 * S) == 12
    assert window.value(10 * S - 1) == 12
    assert window.value(10 * S) == 7
    assert window.value(14 * S) == 0


def test_a_window_has_a_bounded_number_of_buckets() -> None:
    window = WindowSum(10 * S)
    for i in range(50_000):
        window.add(1, i * S // 1000)
    assert len(window._buckets) <= 10 * S // BUCKET_NS + 1
    assert window.value(50 * S) == pytest.approx(10_000, rel=0.03)


def test_adding_forgets_too() -> None:
    window = WindowSum(S)
    window.add(1, 0)
    window.add(1, 5 * S)
    assert len(window._buckets) == 1


def test_unknown_until_it_has_been_watched_for_a_while() -> None:
    rate = DrainRate()
    assert rate.tok_per_ns(0) is None
    rate.backlog(True, 0)
    rate.released(100, LEAST_NS // 2)
    assert rate.tok_per_ns(LEAST_NS - 1) is None
    assert rate.tok_per_ns(LEAST_NS) == pytest.approx(100 / LEAST_NS)


def test_what_is_likely_counts_until_enough_was_watched() -> None:
    rate = DrainRate()
    rate.backlog(True, 0)
    assert rate.tok_per_ns(5 * S, 200 / S) is None, "and nothing is made up of it"
    rate.released(100, S)
    assert rate.tok_per_ns(2 * S, 200 / S) == pytest.approx((100 + 4 * 200) / (6 * S))
    assert rate.tok_per_ns(6 * S, 200 / S) == pytest.approx((100 + 2 * 200) / (8 * S))
    rate.released(900, 9 * S)
    assert rate.tok_per_ns(WINDOW_NS, 200 / S) == pytest.approx(1000 / WINDOW_NS)
    assert rate.tok_per_ns(WINDOW_NS + S // 2, 200 / S) == pytest.approx(1000 / WINDOW_NS)


def test_nothing_released_is_unknown_and_not_zero() -> None:
    rate = DrainRate()
    rate.backlog(True, 0)
    assert rate.tok_per_ns(5 * S) is None


def test_over_the_last_window_only() -> None:
    rate = DrainRate()
    rate.backlog(True, 0)
    rate.released(10**6, 0)
    for i in range(1, 31):
        rate.backlog(True, i * S)
        rate.released(200, i * S)
    assert rate.tok_per_ns(30 * S) == pytest.approx(200 / S, rel=0.1)
    assert rate.tok_per_ns(30 * S + WINDOW_NS) is None


def test_an_empty_queue_has_no_rate_and_the_next_backlog_begins_anew() -> None:
    rate = DrainRate()
    rate.backlog(True, 0)
    rate.released(100, S)
    rate.backlog(False, 2 * S)
    assert rate.tok_per_ns(2 * S) is None
    rate.released(10**6, 2 * S)
    rate.backlog(True, 3 * S)
    rate.released(50, 3 * S)
    assert rate.tok_per_ns(4 * S) == pytest.approx(50 / S)


def test_what_leaves_without_a_backlog_says_nothing() -> None:
    rate = DrainRate()
    rate.released(100, 0)
    assert rate.tok_per_ns(5 * S) is None
