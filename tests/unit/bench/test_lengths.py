"""Lengths follow their mix."""

from random import Random
from statistics import quantiles

import pytest

from onegate.bench.lengths import draw_tok
from onegate.bench.scenario import Lengths


def drawn(lengths: Lengths) -> list[int]:
    rng = Random(1)
    return [draw_tok(lengths, rng) for _ in range(5000)]


def test_fixed() -> None:
    assert set(drawn(Lengths(tok=7))) == {7}


def test_uniform_reaches_both_ends() -> None:
    found = drawn(Lengths(kind="uniform", low_tok=3, high_tok=6))
    assert set(found) == {3, 4, 5, 6}


def test_lognormal_has_its_median_and_its_95th_percentile() -> None:
    found = drawn(Lengths(kind="lognormal", p50_tok=100, p95_tok=400))
    cuts = quantiles(found, n=20)
    assert cuts[9] == pytest.approx(100, rel=0.1)
    assert cuts[18] == pytest.approx(400, rel=0.1)


def test_nothing_is_longer_than_allowed_or_shorter_than_a_token() -> None:
    found = drawn(Lengths(kind="lognormal", p50_tok=1, p95_tok=100, max_tok=50))
    assert max(found) == 50
    assert min(found) == 1


def test_a_wild_mix_stays_within_what_a_length_can_be() -> None:
    assert max(drawn(Lengths(kind="lognormal", p50_tok=1, p95_tok=100_000_000))) == 100_000_000
