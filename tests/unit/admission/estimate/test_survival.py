"""The curve of answer lengths: what it says, what it does not, and that nothing breaks it."""

from itertools import pairwise

import pytest

from onegate.admission.estimate.survival import (
    EDGES,
    LEAST,
    LEAST_AT_RISK,
    LONGEST_TOK,
    MEMORY,
    Survival,
)


def filled(*lengths: int, ended: bool = True, memory: int | None = None) -> Survival:
    curve = Survival(memory)
    for length in lengths:
        curve.add(length, ended=ended)
    return curve


def test_nothing_is_known_of_nothing() -> None:
    curve = Survival()
    assert curve.samples == 0
    assert curve.quantile(0.5) is None
    assert curve.ends_within(0, 10) is None
    assert curve.mean_left(0, 10) is None
    assert curve.alive(0) is None


def test_known_from_the_least_number_of_answers_on() -> None:
    curve = filled(*[100] * (LEAST - 1))
    assert not curve.known
    assert curve.quantile(0.5) is None
    assert curve.ends_within(0, 100) is None
    curve.add(100, ended=True)
    assert curve.known
    assert curve.quantile(0.5) is not None
    assert curve.ends_within(0, 1000) == 1.0


def test_buckets_are_bounded_and_exact_for_short_answers() -> None:
    assert EDGES[:6] == (1, 2, 3, 4, 5, 6)
    assert len(EDGES) <= 64
    assert all(high <= low * 1.25 + 1 for low, high in pairwise(EDGES))
    assert filled(*[3] * LEAST).quantile(1.0) == 3


def test_rounding_makes_no_longer_answer() -> None:
    # 0.3 of the bucket of 38 to 48 is 3 tokens, and a little more in floating point.
    assert filled(*[48] * LEAST).quantile(0.3) == 41


def test_ends_within_is_conditional_on_the_age() -> None:
    curve = filled(*[2] * 60, *[6] * 40)
    assert curve.ends_within(0, 2) == pytest.approx(0.6)
    assert curve.ends_within(2, 3) == pytest.approx(0.0)
    assert curve.ends_within(2, 4) == pytest.approx(1.0)
    assert curve.ends_within(-5, 2) == curve.ends_within(0, 2)
    assert curve.ends_within(0, -5) == 0.0


def test_an_age_that_too_few_were_watched_at_is_unknown() -> None:
    curve = filled(*[10] * 60, *[1000] * (LEAST_AT_RISK - 1))
    assert curve.ends_within(0, 10) is not None
    assert curve.ends_within(500, 100) is None
    assert curve.mean_left(500, 100) is None
    curve = filled(*[10] * 60, *[1000] * LEAST_AT_RISK)
    assert curve.ends_within(500, 10_000) == 1.0
    assert curve.mean_left(500, 10_000) is not None
    assert curve.ends_within(5000, 100) is None


def test_a_cut_answer_was_longer_than_where_it_was_cut() -> None:
    curve = filled(*[6] * 50)
    for _ in range(50):
        curve.add(3, ended=False)
    # Those that were cut say nothing of what comes after: all that was watched to 6 ended there.
    assert curve.ends_within(0, 3) == 0.0
    assert curve.ends_within(3, 3) == pytest.approx(1.0)
    assert curve.quantile(0.5) == 6


def test_an_answer_cut_within_a_bucket_counts_as_far_as_it_was_watched() -> None:
    low, high = EDGES[20], EDGES[21]
    curve = filled(*[high] * 50)
    for _ in range(50):
        curve.add((low + high) // 2, ended=False)
    for _ in range(50):
        curve.add(10 * high, ended=True)
    # 50 of 50 + 50 + 50 halves.
    assert curve.ends_within(0, high) == pytest.approx(50 / 125, rel=0.02)


def test_where_all_were_cut_nothing_is_said_of_when_they_end() -> None:
    curve = filled(*[200] * 100, ended=False)
    assert curve.quantile(0.01) is None
    assert curve.ends_within(0, 150) == 0.0
    assert curve.mean_left(0, 1000) == 1000.0


def test_a_quantile_beyond_what_was_watched_is_unknown() -> None:
    curve = filled(*[10] * 70)
    for _ in range(30):
        curve.add(20, ended=False)
    assert curve.quantile(0.6) is not None
    assert curve.quantile(0.9) is None


def test_a_quantile_needs_some_that_were_watched_so_far() -> None:
    curve = filled(*[10] * 17, 1000, 1000, 1000)
    assert curve.quantile(0.8) is not None
    assert curve.quantile(0.95) is None


def test_what_was_cut_before_it_said_anything_is_no_evidence() -> None:
    curve = filled(*[0] * 1000, ended=False)
    assert curve.samples == 0


def test_the_mean_of_what_is_left_is_bounded_by_the_limit() -> None:
    curve = filled(*[100] * 50)
    assert curve.mean_left(0, 10) == pytest.approx(10.0)
    assert curve.mean_left(0, 10**9) == pytest.approx(100, rel=0.13)
    assert curve.mean_left(0, -1) == 0.0
    one = filled(*[1] * 40)
    assert one.mean_left(0, 5) == pytest.approx(1.0)
    two = filled(*[2] * 30, *[4] * 10)
    assert two.mean_left(0, 9) == pytest.approx(2.5)
    assert two.mean_left(0, 3) == pytest.approx(2.25)
    assert two.mean_left(2, 9) == pytest.approx(2.0)


def test_old_answers_fade_by_the_number_of_newer_ones() -> None:
    curve = filled(*[1000] * 5 * MEMORY, memory=MEMORY)
    assert curve.samples == pytest.approx(MEMORY, rel=0.01)
    for _ in range(MEMORY):
        curve.add(10, ended=True)
    within = curve.ends_within(0, 10)
    assert within == pytest.approx(1 - 1 / 2.718, abs=0.01)


def test_few_answers_of_many_do_not_move_it() -> None:
    curve = Survival()
    for _ in range(320):
        curve.add(10, ended=True)
    before = curve.quantile(0.5)
    for _ in range(5):
        curve.add(1000, ended=True)
        assert curve._curve is not None, "not solved anew"
    assert curve.quantile(0.5) == before
    for _ in range(400):
        curve.add(1000, ended=True)
    assert curve.quantile(0.5) > 500


def test_weights_stay_finite_and_the_curve_the_same() -> None:
    curve = Survival(memory=4)
    for i in range(500):
        curve.add(3 if i % 2 else 6, ended=True)
    curve = Survival(memory=64)
    for i in range(64 * 30):
        curve.add(3 if i % 2 else 6, ended=True)
        assert curve._weight <= 2.0**41
    assert curve.samples == pytest.approx(64, rel=0.01)
    assert curve.ends_within(0, 3) == pytest.approx(0.5, abs=0.02)


def test_hostile_lengths() -> None:
    curve = filled(*[0, -5, 10**9, 10**18] * 10)
    assert curve.quantile(1.0) == LONGEST_TOK
    assert curve.ends_within(0, 1) == pytest.approx(0.5)
    assert curve.ends_within(0, 10**18) == 1.0
    assert curve.ends_within(10**18, 1) is None
    assert curve.mean_left(0, 10**18) == pytest.approx(LONGEST_TOK / 2, rel=0.2)


def test_taking_back_leaves_no_trace() -> None:
    curve = filled(*[7, 13, 170] * 20)
    before = [curve.ends_within(0, tok) for tok in range(300)]
    for length in range(1, 400):
        curve.add(length, ended=bool(length % 3))
    for length in range(1, 400):
        curve.take_back(length, ended=bool(length % 3))
    assert [curve.ends_within(0, tok) for tok in range(300)] == before
    assert curve.samples == 60


def test_only_a_curve_that_does_not_fade_takes_back() -> None:
    curve = Survival()
    curve.add(5, ended=True)
    with pytest.raises(AssertionError):
        curve.take_back(5, ended=True)
