"""A pool's pace from the tokens that the core sees, of engines that tell much and little."""

import pytest

from onegate.admission.estimate.pace import BURST_NS, MOST_STEPS, Pace
from onegate.admission.estimate.step_model import LEAST, LEAST_PREFILL

MS = 10**6
US = 1000


def step_ns(seqs: int, prefill_tok: int = 0) -> int:
    return 10 * MS + 300 * US * seqs + 50 * US * prefill_tok


class Engine:
    """Steps of true length, told to a `Pace` in the order and grouping that a test chooses."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.now_ns = 1000 * MS
        self.decoding: list[int] = []
        self._rid = 0

    def start(self, n: int = 1) -> None:
        """Requests that decode, without prompts worth the name."""
        for _ in range(n):
            rid = self.grant(0)
            self.pace.produced(rid, 1, self.now_ns)
            self.decoding.append(rid)

    def grant(self, prompt_tok: int) -> int:
        self._rid += 1
        self.pace.granted(self._rid, prompt_tok, self.now_ns)
        return self._rid

    def tokens(self, tok: int = 1) -> None:
        for rid in self.decoding:
            self.pace.produced(rid, tok, self.now_ns)

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.now_ns += step_ns(len(self.decoding))
            self.tokens()

    def leave(self, rid: int) -> None:
        self.pace.left(rid, self.now_ns)
        if rid in self.decoding:
            self.decoding.remove(rid)

    def known(self, seqs: int) -> float | None:
        return self.pace.step_ns(seqs, 0, self.now_ns)

    def prefill(self, tok: int) -> float | None:
        return self.pace.prefill_ns(tok, self.now_ns)


def test_nothing_is_known_before_steps_were_seen() -> None:
    engine = Engine()
    assert engine.known(1) is None
    assert engine.prefill(100) is None
    engine.start()
    engine.steps(LEAST)
    assert engine.known(1) is None


def test_the_steps_of_a_probe() -> None:
    engine = Engine()
    engine.start(4)
    engine.steps(100)
    assert engine.known(4) == pytest.approx(step_ns(4), rel=0.01)
    view = engine.pace.view(engine.now_ns)
    assert view is not None
    assert view.error is not None
    assert view.error < 0.01
    assert view.step_ns + 4 * view.decode_ns == pytest.approx(step_ns(4), rel=0.01)


def test_steps_of_many_sequences_and_of_few() -> None:
    engine = Engine()
    engine.start(8)
    for _ in range(7):
        engine.steps(30)
        engine.leave(engine.decoding[-1])
    engine.steps(30)
    assert engine.known(8) == pytest.approx(step_ns(8), rel=0.02)
    assert engine.known(1) == pytest.approx(step_ns(1), rel=0.02)


def test_several_tokens_at_once_are_several_steps() -> None:
    engine = Engine()
    engine.start(2)
    for _ in range(50):
        engine.now_ns += 4 * step_ns(2)
        engine.tokens(4)
    assert engine.known(2) == pytest.approx(step_ns(2), rel=0.01)


@pytest.mark.parametrize("apart_ns", [0, 2 * US, 50 * US])
def test_several_steps_told_in_one_pass_are_no_short_steps(apart_ns: int) -> None:
    engine = Engine()
    engine.start(2)
    for _ in range(60):
        engine.now_ns += 4 * step_ns(2)
        for _ in range(4):
            engine.tokens()
            engine.now_ns += apart_ns
        engine.now_ns -= 4 * apart_ns
    assert engine.known(2) == pytest.approx(step_ns(2), rel=0.02)


def test_steps_shorter_than_a_burst_are_averaged() -> None:
    engine = Engine()
    engine.start()
    for _ in range(500):
        engine.now_ns += BURST_NS // 3
        engine.tokens()
    assert engine.known(1) == pytest.approx(BURST_NS / 3, rel=0.15)


@pytest.mark.parametrize("probe_first", [True, False])
def test_prefill_that_is_told(probe_first: bool) -> None:
    engine = Engine()
    engine.start(3)
    for i in range(60):
        rid = engine.grant(3000)
        for tok in (1000, 1500 + 100 * (i % 5)):
            engine.now_ns += step_ns(3, tok)
            if probe_first:
                engine.tokens()
            # Told in the same pass of the loop, a little later.
            engine.pace.prefilled(rid, tok, engine.now_ns + 20 * US)
            if not probe_first:
                engine.now_ns += 40 * US
                engine.tokens()
        engine.leave(rid)
        engine.steps(5)
    assert engine.known(3) == pytest.approx(step_ns(3), rel=0.03)
    assert engine.pace.step_ns(3, 1500, engine.now_ns) == pytest.approx(step_ns(3, 1500), rel=0.03)


@pytest.mark.parametrize("probe_first", [True, False])
def test_prefill_that_is_not_told_is_credited_with_the_first_token(probe_first: bool) -> None:
    engine = Engine()
    engine.start(3)
    for i in range(80):
        prompt_tok = 1000 + 300 * (i % 7)
        rid = engine.grant(prompt_tok)
        # In four steps, of which nothing is told.
        for k in range(4):
            engine.now_ns += step_ns(3, prompt_tok // 4)
            if probe_first:
                engine.tokens()
            if k == 3:
                engine.pace.produced(rid, 1, engine.now_ns + 10 * US)
            if not probe_first:
                engine.now_ns += 20 * US
                engine.tokens()
        engine.leave(rid)
        engine.steps(6)
    assert engine.known(3) == pytest.approx(step_ns(3), rel=0.05)
    for tok in (250, 500):
        assert engine.pace.step_ns(3, tok, engine.now_ns) == pytest.approx(step_ns(3, tok), rel=0.1)


def test_one_that_waits_at_the_engine_does_not_stop_the_measurement() -> None:
    engine = Engine()
    engine.start(2)
    engine.grant(500)
    engine.steps(MOST_STEPS * (LEAST + 2))
    assert engine.known(2) == pytest.approx(step_ns(2), rel=0.01)


def test_one_seat_learns_prefill_from_requests_that_come_alone() -> None:
    engine = Engine()
    for i in range(3 * LEAST_PREFILL):
        prompt_tok = 200 + 400 * (i % 6)
        rid = engine.grant(prompt_tok)
        engine.now_ns += 10 * MS + 50 * US * prompt_tok
        engine.pace.produced(rid, 1, engine.now_ns)
        engine.decoding.append(rid)
        engine.steps(5)
        engine.leave(rid)
        engine.now_ns += 5000 * MS
    assert engine.known(1) == pytest.approx(step_ns(1), rel=0.05)
    assert engine.prefill(2000) == pytest.approx(10 * MS + 2000 * 50 * US, rel=0.05)


def test_a_prompt_that_did_not_come_alone_says_nothing_of_its_time() -> None:
    engine = Engine()
    for _ in range(5 * LEAST_PREFILL):
        first, second = engine.grant(500), engine.grant(500)
        engine.now_ns += 900 * MS
        engine.pace.produced(first, 1, engine.now_ns)
        engine.pace.produced(second, 1, engine.now_ns)
        engine.leave(first)
        engine.leave(second)
    assert engine.prefill(500) is None


def test_one_that_left_before_its_first_token_says_nothing() -> None:
    engine = Engine()
    for _ in range(5 * LEAST_PREFILL):
        rid = engine.grant(500)
        engine.now_ns += 900 * MS
        engine.leave(rid)
        engine.pace.produced(rid, 1, engine.now_ns)
        engine.pace.prefilled(rid, 5, engine.now_ns)
    assert engine.prefill(500) is None
    assert engine.pace._filling == engine.pace._decoding == {}


def test_idle_time_is_no_step() -> None:
    engine = Engine()
    for _ in range(40):
        engine.start()
        engine.steps(3)
        engine.leave(engine.decoding[0])
        engine.now_ns += 60_000 * MS
    assert engine.known(1) == pytest.approx(step_ns(1), rel=0.01)


def test_a_probe_that_leaves_is_replaced_and_the_change_is_no_step() -> None:
    engine = Engine()
    engine.start(60)
    while len(engine.decoding) > 1:
        engine.steps(2)
        engine.now_ns += 7 * MS
        engine.leave(engine.decoding[0])
    # Of each probe one whole step was seen; the torn one at the change was not.
    assert engine.known(30) == pytest.approx(step_ns(30), rel=0.02)


def test_the_last_step_of_a_probe_counts() -> None:
    engine = Engine()
    for _ in range(LEAST):
        engine.start()
        engine.steps(1)
        engine.leave(engine.decoding[0])
    assert engine.known(1) == pytest.approx(step_ns(1), rel=0.01)


def test_forgetting_keeps_what_runs() -> None:
    engine = Engine()
    engine.start(2)
    engine.steps(100)
    engine.pace.forget()
    assert engine.known(2) is None
    engine.now_ns += 10_000 * MS
    engine.steps(100)
    assert engine.known(2) == pytest.approx(step_ns(2), rel=0.01)


def test_forgetting_the_engine_that_told() -> None:
    engine = Engine()
    engine.start()
    rid = engine.grant(10)
    engine.pace.prefilled(rid, 5, engine.now_ns)
    assert engine.pace._tells
    engine.pace.forget()
    assert not engine.pace._tells


def test_where_prefill_is_told_one_that_waits_does_not_blur_the_steps() -> None:
    engine = Engine()
    engine.start(2)
    rid = engine.grant(10)
    engine.pace.prefilled(rid, 10, engine.now_ns)
    engine.leave(rid)
    engine.grant(500)
    engine.steps(LEAST + 2)
    assert engine.known(2) == pytest.approx(step_ns(2), rel=0.01)


def test_the_wait_for_a_first_token_without_a_prompt_is_no_step() -> None:
    engine = Engine()
    for _ in range(2 * LEAST):
        rid = engine.grant(0)
        engine.now_ns += 900 * MS
        engine.pace.produced(rid, 1, engine.now_ns)
        engine.leave(rid)
    assert engine.known(0) is None


def test_a_prompt_that_began_before_forgetting_says_nothing() -> None:
    engine = Engine()
    for _ in range(2 * LEAST_PREFILL):
        rid = engine.grant(500)
        engine.pace.forget()
        engine.now_ns += 900 * MS
        engine.pace.produced(rid, 1, engine.now_ns)
        engine.leave(rid)
    assert not engine.pace._model._prefill.steps


def test_a_report_of_no_tokens_is_no_step() -> None:
    engine = Engine()
    engine.start(2)
    for _ in range(50):
        engine.now_ns += step_ns(2) // 2
        engine.tokens(0)
        engine.now_ns += step_ns(2) // 2
        engine.tokens()
    assert engine.known(2) == pytest.approx(step_ns(2), rel=0.01)


def test_a_step_of_nobody_may_take_no_time() -> None:
    engine = Engine()
    for _ in range(8):
        engine.start()
        for _ in range(30):
            engine.now_ns += (10 * len(engine.decoding) - 5) * MS
            engine.tokens()
    assert engine.known(0) == 0.0
