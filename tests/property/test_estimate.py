"""Estimates under anything: monotone, bounded, and close to what was planted."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onegate.admission.estimate.lengths import FLOWS, PRINCIPALS, VOTES, Lengths
from onegate.admission.estimate.pace import Pace
from onegate.admission.estimate.step_model import WINDOW, StepModel
from onegate.admission.estimate.survival import LEAST, MEMORY, Survival
from onegate.admission.estimate.waits import Running, expected_seat_ns

MS = 10**6

lengths = st.one_of(st.integers(-3, 40), st.integers(0, 5000), st.sampled_from((10**6, 10**18)))
answers = st.lists(st.tuples(lengths, st.booleans()), max_size=120)
tokens = st.one_of(st.integers(0, 300), st.integers(0, 10**7))
shares = st.floats(0.0, 1.0)


def curve_of(ends: list[tuple[int, bool]]) -> Survival:
    curve = Survival()
    for tok, ended in ends:
        curve.add(tok, ended=ended)
    return curve


@given(answers, tokens, st.lists(tokens, min_size=2, max_size=8))
def test_the_chance_to_end_grows_with_the_time_given(
    ends: list[tuple[int, bool]], age: int, more: list[int]
) -> None:
    curve = curve_of(ends)
    chances = [curve.ends_within(age, tok) for tok in sorted(more)]
    if None in chances:
        assert set(chances) == {None}
        return
    values = [chance for chance in chances if chance is not None]
    assert all(0.0 <= chance <= 1.0 for chance in values)
    assert values == sorted(values)


@given(answers, st.lists(shares, min_size=2, max_size=8))
def test_a_quantile_grows_with_its_share_until_it_is_unknown(
    ends: list[tuple[int, bool]], qs: list[float]
) -> None:
    curve = curve_of(ends)
    found = [curve.quantile(q) for q in sorted(qs)]
    known = [tok for tok in found if tok is not None]
    assert known == sorted(known)
    assert found[: len(known)] == known
    for q, tok in zip(sorted(qs), known, strict=False):
        within = curve.ends_within(0, tok)
        assert within is not None
        assert within >= q - 1e-6


@given(answers, tokens, st.lists(tokens, min_size=2, max_size=5))
def test_what_is_left_grows_with_the_limit_and_stays_within(
    ends: list[tuple[int, bool]], age: int, caps: list[int]
) -> None:
    curve = curve_of(ends)
    before = 0.0
    for cap in sorted(caps):
        left = curve.mean_left(age, cap)
        if left is None:
            assert curve.ends_within(age, cap) is None
            return
        assert before - 1e-6 * cap <= left <= cap
        before = left


@given(answers)
def test_too_few_answers_say_nothing(ends: list[tuple[int, bool]]) -> None:
    curve = curve_of(ends[: LEAST - 1])
    assert curve.quantile(0.0) is None
    assert curve.ends_within(0, 10**9) is None


@given(answers, answers)
def test_what_is_taken_back_was_never_there(
    kept: list[tuple[int, bool]], gone: list[tuple[int, bool]]
) -> None:
    left, never = Survival(memory=None), Survival(memory=None)
    for tok, ended in gone:
        left.add(tok, ended=ended)
    for tok, ended in kept:
        left.add(tok, ended=ended)
        never.add(tok, ended=ended)
    for tok, ended in gone:
        left.take_back(tok, ended=ended)
    assert left._solved() == never._solved()


Draw = Callable[[random.Random], int]


def geometric(mean: float) -> Draw:
    return lambda dice: max(1, math.ceil(dice.expovariate(1.0 / mean)))


def lognormal(median: float, sigma: float) -> Draw:
    return lambda dice: max(1, round(dice.lognormvariate(math.log(median), sigma)))


PLANTED = {
    "geometric": geometric(100),
    "chat": lognormal(129, 0.76),
    "heavy tail": lognormal(60, 1.5),
}


@pytest.fixture(params=PLANTED)
def draw(request: pytest.FixtureRequest) -> Draw:
    return PLANTED[request.param]


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_curve_is_found(draw: Draw, seed: int) -> None:
    dice = random.Random(seed)
    curve = Survival()
    for _ in range(4 * MEMORY):
        curve.add(draw(dice), ended=True)
    truth = sorted(draw(dice) for _ in range(20_000))
    for q, off in ((0.25, 0.2), (0.5, 0.15), (0.9, 0.25)):
        assert curve.quantile(q) == pytest.approx(truth[int(q * len(truth))], rel=off)
    for age in (0, 50, 200):
        alive = [tok for tok in truth if tok > age]
        for more in (10, 50, 200):
            share = sum(tok <= age + more for tok in alive) / len(alive)
            assert curve.ends_within(age, more) == pytest.approx(share, abs=0.09)
        mean = sum(min(tok - age, 2000) for tok in alive) / len(alive)
        assert curve.mean_left(age, 2000) == pytest.approx(mean, rel=0.35)


@pytest.mark.parametrize("seed", range(5))
def test_cutting_half_of_the_answers_does_not_shorten_them(draw: Draw, seed: int) -> None:
    dice = random.Random(seed)
    curve = Survival()
    true_median = sorted(draw(dice) for _ in range(20_000))[10_000]
    cut_lengths = []
    for _ in range(4 * MEMORY):
        length, cut = draw(dice), draw(dice)
        curve.add(min(length, cut), ended=length <= cut)
        cut_lengths.append(min(length, cut))
    assert curve.quantile(0.5) == pytest.approx(true_median, rel=0.15)
    # That is no small thing: what was seen of them is far shorter.
    assert sorted(cut_lengths)[2 * MEMORY] < 0.7 * true_median


steps = st.lists(
    st.tuples(
        st.one_of(st.integers(-5, 10), st.integers(1, 10**12)),
        st.one_of(st.just(0), st.integers(-5, 10**6), st.just(10**30)),
        st.integers(-1, 10**4),
    ),
    max_size=150,
)


@given(steps, st.integers(0, 10**6), st.integers(0, 10**4))
def test_no_steps_make_a_time_that_is_negative_or_falls_with_more_work(
    told: list[tuple[int, int, int]], tok: int, seqs: int
) -> None:
    model = StepModel()
    for took_ns, prefill_tok, decode_seqs in told:
        model.add(took_ns, prefill_tok=prefill_tok, decode_seqs=decode_seqs, now_ns=0)
    some = model.step_ns(prefill_tok=tok, decode_seqs=seqs, now_ns=0)
    more = model.step_ns(prefill_tok=tok, decode_seqs=seqs + 1, now_ns=0)
    if some is None:
        assert more is None
        return
    assert more is not None
    assert 0.0 <= some <= more
    prefill_ns = model.prefill_ns(tok, seqs, 0)
    assert prefill_ns is None or prefill_ns >= 0.0


@settings(max_examples=20)
@given(
    st.tuples(st.integers(1, 50), st.integers(5, 500), st.integers(0, 3000)),
    st.integers(0, 10**6),
)
def test_a_planted_step_time_is_found_through_noise_and_stalls(
    truth: tuple[int, int, int], seed: int
) -> None:
    dice = random.Random(seed)
    a_ms, b_us, c_us = truth
    model = StepModel()

    def true_ns(tok: int, seqs: int) -> int:
        return a_ms * MS + 1000 * (b_us * tok + c_us * seqs)

    for i in range(3 * WINDOW):
        tok = dice.randint(50, 4000) if i % 3 == 0 else 0
        seqs = dice.randint(1, 32)
        took_ns = round(true_ns(tok, seqs) * dice.uniform(0.9, 1.1))
        if dice.random() < 0.01:
            took_ns = 30_000 * MS
        model.add(took_ns, prefill_tok=tok, decode_seqs=seqs, now_ns=0)
    for tok, seqs in ((0, 4), (0, 16), (500, 8), (2000, 24)):
        assert model.step_ns(prefill_tok=tok, decode_seqs=seqs, now_ns=0) == pytest.approx(
            true_ns(tok, seqs), rel=0.12
        )
    assert model.error is not None
    assert model.error < 0.12


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_hostile_names_cost_a_bounded_number_of_curves(seed: int) -> None:
    dice = random.Random(seed)
    known = Lengths()
    for i in range(2000):
        known.ended(
            "batch",
            f"principal{dice.randrange(200)}",
            f"flow{i}",
            dice.choice((0, 1, 10**9)),
            finished=dice.random() < 0.5,
        )
        known.of("batch", f"other{i}", f"flow{i}")
    in_class = known._classes["batch"]
    assert len(in_class.principals) <= PRINCIPALS
    assert all(len(own.flows) <= FLOWS for own in in_class.principals.values())
    assert all(len(own.votes) <= VOTES for own in in_class.principals.values())
    assert in_class.curve.samples <= PRINCIPALS * VOTES


class Told:
    """What the core could tell of requests, in any order that its events may have."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.now_ns = 0

    def tell(self, what: str, rid: int, tok: int, later_ns: int) -> None:
        self.now_ns += later_ns
        match what:
            case "granted":
                if rid not in self.pace._filling and rid not in self.pace._decoding:
                    self.pace.granted(rid, tok, self.now_ns)
            case "prefilled":
                self.pace.prefilled(rid, tok, self.now_ns)
            case "produced":
                self.pace.produced(rid, tok, self.now_ns)
            case "left":
                self.pace.left(rid, self.now_ns)
            case _:
                self.pace.forget()


WORDS = ("granted", "prefilled", "produced", "produced", "produced", "left", "forget")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(WORDS),
            st.integers(0, 4),
            st.integers(0, 500),
            st.sampled_from((0, 1000, 10 * MS, 40 * MS, 30_000 * MS)),
        ),
        max_size=300,
    )
)
def test_any_order_of_events_leaves_a_probe_while_somebody_decodes(
    told: list[tuple[str, int, int, int]],
) -> None:
    world = Told()
    for what, rid, tok, later_ns in told:
        world.tell(what, rid, tok, later_ns)
        pace = world.pace
        assert (pace._probe is None) == (not pace._decoding)
        assert pace._probe is None or pace._probe in pace._decoding
        assert pace._filling.keys().isdisjoint(pace._decoding)
        assert len(pace._filling) + len(pace._decoding) <= 5
    for rid in range(5):
        world.tell("left", rid, 0, 0)
    assert world.pace._probe is None
    known = world.pace.step_ns(4, 0, world.now_ns)
    assert known is None or known > 0.0


requests = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3000), st.booleans()), min_size=1, max_size=8
)


@given(answers, requests)
def test_the_next_seat_comes_free_no_earlier(
    ends: list[tuple[int, bool]], held: list[tuple[int, int, bool]]
) -> None:
    curve = curve_of(ends)
    running: list[Running] = [(age, left, curve if has else None) for age, left, has in held]
    times = [expected_seat_ns(running, n, 12.0 * MS) for n in range(1, len(running) + 2)]
    known = [t for t in times if t is not None]
    assert times[: len(known)] == known
    assert known == sorted(known)
    assert times[-1] is None


@pytest.mark.parametrize("seats", [1, 4, 16])
def test_the_nth_seat_against_dice(draw: Draw, seats: int) -> None:
    dice = random.Random(seats)
    curve = Survival(memory=None)
    for _ in range(4000):
        curve.add(draw(dice), ended=True)
    running: list[Running] = [(0, 10**5, curve)] * seats
    for n in {1, (seats + 1) // 2}:
        seen = [sorted(draw(dice) for _ in range(seats))[n - 1] for _ in range(2000)]
        expected = expected_seat_ns(running, n, 1.0)
        # For one seat alone it is the median, and of few the tail is not in it.
        middle = sorted(seen)[len(seen) // 2]
        mean = sum(seen) / len(seen)
        assert expected is not None
        assert 0.85 * min(middle, mean) <= expected <= 1.25 * max(middle, mean)
