"""The time of a step: what is found again, what does not move it, and when it says nothing."""

import pytest

from onegate.admission.estimate.step_model import (
    AGE_NS,
    LEAST,
    LEAST_PREFILL,
    WINDOW,
    StepModel,
)

MS = 10**6
STALL_NS = 30_000 * MS


def true_ns(prefill_tok: int, decode_seqs: int, slower: int = 1) -> int:
    """10 ms, 50 µs for a prompt token, 0.3 ms for a sequence."""
    return (10 * MS + 50_000 * prefill_tok + 300_000 * decode_seqs) * slower


class Fed:
    """A model, and the clock of its steps."""

    def __init__(self) -> None:
        self.model = StepModel()
        self.now_ns = 0

    def step(self, took_ns: int, prefill_tok: int = 0, decode_seqs: int = 8) -> None:
        self.now_ns += max(0, took_ns)
        self.model.add(
            took_ns, prefill_tok=prefill_tok, decode_seqs=decode_seqs, now_ns=self.now_ns
        )

    def steps(self, n: int, *, prefill_every: int = 10, slower: int = 1) -> None:
        for i in range(n):
            tok = 200 + 977 * i % 3000 if prefill_every and i % prefill_every == 5 else 0
            seqs = 1 + i % 8
            self.step(true_ns(tok, seqs, slower), tok, seqs)

    def decode_ns(self, seqs: int = 8) -> float | None:
        return self.model.step_ns(prefill_tok=0, decode_seqs=seqs, now_ns=self.now_ns)

    def prefill_ns(self, tok: int) -> float | None:
        return self.model.prefill_ns(tok, 8, self.now_ns)


def test_nothing_is_known_before_there_is_evidence() -> None:
    fed = Fed()
    for _ in range(LEAST - 1):
        fed.step(true_ns(0, 8))
    assert fed.decode_ns() is None
    fed.step(true_ns(0, 8))
    assert fed.decode_ns() == pytest.approx(true_ns(0, 8), rel=0.01)
    assert fed.model.error is None


def test_prefill_is_known_only_once_it_was_seen() -> None:
    fed = Fed()
    fed.steps(200, prefill_every=0)
    assert fed.prefill_ns(1000) is None
    assert fed.prefill_ns(0) == 0.0
    assert fed.model.step_ns(prefill_tok=1, decode_seqs=8, now_ns=fed.now_ns) is None
    for i in range(LEAST_PREFILL):
        assert fed.prefill_ns(1000) is None
        fed.step(true_ns(500 + 300 * i, 8), 500 + 300 * i)
    assert fed.prefill_ns(1000) == pytest.approx(true_ns(1000, 8), rel=0.05)


def test_what_is_shown_of_it() -> None:
    fed = Fed()
    assert fed.model.view(fed.now_ns) is None
    fed.steps(LEAST, prefill_every=0)
    view = fed.model.view(fed.now_ns)
    assert view is not None
    assert (view.prefill_ns, view.error, view.steps) == (None, None, LEAST)
    fed.steps(500)
    view = fed.model.view(fed.now_ns + 7)
    assert view is not None
    assert view.age_ns == 7
    assert view.steps == WINDOW + 50
    assert view.error == fed.model.error
    assert view.prefill_ns is not None
    said_ns = view.step_ns + 700 * view.prefill_ns + 3 * view.decode_ns
    step_ns = fed.model.step_ns(prefill_tok=700, decode_seqs=3, now_ns=fed.now_ns)
    assert said_ns == pytest.approx(step_ns)
    assert fed.model.view(fed.now_ns + AGE_NS + 1) is None


def test_a_plane_is_found() -> None:
    fed = Fed()
    fed.steps(512)
    for seqs in (1, 8, 16):
        assert fed.decode_ns(seqs) == pytest.approx(true_ns(0, seqs), rel=0.03)
    assert fed.prefill_ns(2000) == pytest.approx(true_ns(2000, 8), rel=0.03)
    assert fed.model.step_ns(prefill_tok=2000, decode_seqs=8, now_ns=fed.now_ns) == pytest.approx(
        true_ns(2000, 8), rel=0.03
    )
    assert fed.model.error is not None
    assert fed.model.error < 0.02


def test_a_long_prompt_takes_as_many_steps_as_the_largest_that_was_seen_allows() -> None:
    fed = Fed()
    for i in range(300):
        tok = (2048, 1024, 0)[i % 3]
        fed.step(true_ns(tok, 8), tok)
    assert fed.prefill_ns(8192) == pytest.approx(4 * true_ns(0, 8) + 8192 * 50_000, rel=0.03)
    assert fed.prefill_ns(0) == 0.0


def test_one_stall_moves_little() -> None:
    fed = Fed()
    fed.steps(512)
    before = fed.decode_ns(), fed.prefill_ns(2000)
    fed.step(STALL_NS)
    fed.step(STALL_NS, 1500)
    fed.steps(16)
    assert fed.decode_ns() == pytest.approx(before[0], rel=0.02)
    assert fed.prefill_ns(2000) == pytest.approx(before[1], rel=0.03)


@pytest.mark.parametrize("at", range(0, LEAST, 5))
def test_a_stall_among_the_first_steps_moves_little(at: int) -> None:
    fed = Fed()
    for i in range(LEAST):
        fed.step(STALL_NS if i == at else true_ns(0, 8))
    assert fed.decode_ns() == pytest.approx(true_ns(0, 8), rel=0.1)


def test_a_stall_in_the_first_prefill_moves_little() -> None:
    fed = Fed()
    fed.steps(100, prefill_every=0)
    fed.step(STALL_NS, 1500)
    for i in range(LEAST_PREFILL):
        fed.step(true_ns(500 + 300 * i, 8), 500 + 300 * i)
    assert fed.prefill_ns(2000) == pytest.approx(true_ns(2000, 8), rel=0.2)


def test_stalls_now_and_then_do_not_move_it() -> None:
    fed = Fed()
    for i in range(600):
        fed.steps(1)
        if i % 50 == 0:
            fed.step(STALL_NS)
    assert fed.decode_ns(1) == pytest.approx(true_ns(0, 1), rel=0.05)


@pytest.mark.parametrize("slower", [3, 20])
def test_a_box_that_has_become_slower_is_followed(slower: int) -> None:
    fed = Fed()
    fed.steps(512)
    fed.steps(4500, slower=slower)
    assert fed.decode_ns() == pytest.approx(true_ns(0, 8, slower), rel=0.05)
    assert fed.prefill_ns(2000) == pytest.approx(true_ns(2000, 8, slower), rel=0.05)


def test_what_a_long_answer_does_not_show_is_not_forgotten() -> None:
    fed = Fed()
    fed.steps(200)
    before = fed.prefill_ns(2000)
    for _ in range(5 * WINDOW):
        fed.step(true_ns(0, 1), 0, 1)
    assert fed.prefill_ns(2000) == pytest.approx(before, rel=0.03)


def test_memory_is_bounded() -> None:
    fed = Fed()
    fed.steps(3 * WINDOW, prefill_every=2)
    for kind in (fed.model._decode, fed.model._prefill):
        assert len(kind.steps) <= WINDOW


def test_without_newer_evidence_nothing_is_known() -> None:
    fed = Fed()
    fed.steps(200)
    fed.now_ns += AGE_NS
    assert fed.decode_ns() is not None
    fed.now_ns += 1
    assert fed.decode_ns() is None
    assert fed.prefill_ns(100) is None


def test_prefill_ages_by_itself_though_decoding_goes_on() -> None:
    fed = Fed()
    fed.steps(200)
    fed.now_ns += AGE_NS
    fed.step(true_ns(0, 8))
    assert fed.decode_ns() is not None
    assert fed.prefill_ns(100) is None
    assert fed.prefill_ns(0) == 0.0


def test_a_step_of_no_time_is_none() -> None:
    fed = Fed()
    for _ in range(10 * LEAST):
        fed.step(0)
        fed.step(-5)
    assert fed.decode_ns() is None
    fed.steps(100)
    before = fed.decode_ns()
    for _ in range(1000):
        fed.step(0)
    assert fed.decode_ns() == before


def test_hostile_numbers_break_nothing() -> None:
    fed = Fed()
    for i in range(100):
        fed.step(10**400, 10**400, 10**400)
        fed.step(true_ns(0, 8), -5, -5)
        fed.step(1 + i, 1, 0)
    known = fed.decode_ns()
    assert known is not None
    assert known >= 0.0


def test_a_model_that_says_nothing_of_a_step_takes_it_as_it_is() -> None:
    # Less than in proportion is not fitted, so without sequences there is no time at all.
    fed = Fed()
    for i in range(100):
        seqs = 1 + i % 8
        fed.step((10 * seqs - 5) * MS, 0, seqs)
    assert fed.decode_ns(0) == 0.0
    for _ in range(100):
        fed.step(5 * MS, 0, 0)
    assert fed.decode_ns(0) == pytest.approx(5 * MS, rel=0.5)


@pytest.mark.parametrize("seqs", [1, 8, 16, 64])
def test_a_number_of_sequences_that_never_changed_extrapolates_sanely(seqs: int) -> None:
    fed = Fed()
    for i in range(300):
        fed.step(12 * MS + i * 7919 % MS)
    assert fed.decode_ns(seqs) == pytest.approx(12.5 * MS, rel=0.1)


def test_prompts_that_cost_more_than_in_proportion_leave_decoding_alone() -> None:
    # Attention: time by the square, 40 µs to 120 µs a token.
    fed = Fed()
    for i in range(600):
        tok = 500 + 977 * i % 8000 if i % 2 else 0
        fed.step(true_ns(0, 8) + 40_000 * tok + 10 * tok * tok, tok)
    assert fed.decode_ns() == pytest.approx(true_ns(0, 8), rel=0.15)


def test_the_error_is_of_predictions_made_before() -> None:
    fed = Fed()
    fed.steps(512)
    for i in range(200):
        fed.step(round(true_ns(0, 8) * (1.25 if i % 2 else 0.75)))
    assert fed.model.error == pytest.approx(0.27, abs=0.08)
