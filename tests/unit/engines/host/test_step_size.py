import json

import pytest
from msgspec.structs import replace

from onegate.engines.host import step_size
from onegate.engines.host.step_size import (
    StepCosts,
    known_costs,
    measure,
    measured_costs,
    step_tok,
    words,
)

COSTS = StepCosts(base_ms=10.0, prompt_tok_ms=0.5, all_seats_ms=30.0)
STAMP = (("m.gguf", 1, 2, 3, 4),)


class Timed:
    """A pipeline whose steps take what `costs` says of a base, prompt tokens and answers."""

    def __init__(self, pipeline, base_ms, prompt_tok_ms, answer_ms):
        self._pipeline = pipeline
        self.facts = pipeline.facts
        self.prompts = []
        self._costs = base_ms, prompt_tok_ms, answer_ms
        self._new_tok = 0
        self._handles = []
        self.now_ns = 0
        self.steps = 0

    def add(self, id, ids, sampling):
        self.prompts.append(tuple(ids))
        self._new_tok += len(ids)
        self._handles.append(self._pipeline.add(id, ids, sampling))
        return self._handles[-1]

    def step(self):
        base_ms, prompt_tok_ms, answer_ms = self._costs
        going_on = sum(handle.said > 0 and handle.finish is None for handle in self._handles)
        noise_ms = 7.0 if self.steps % 3 == 1 else 0.0
        took_ms = base_ms + prompt_tok_ms * self._new_tok + answer_ms * going_on
        self.now_ns += round((took_ms + noise_ms) * 1e6)
        self._new_tok = 0
        self.steps += 1
        self._pipeline.step()


@pytest.mark.parametrize(
    ("target_ms", "tok"),
    [
        (50.0, 8 + 40),  # what thirty of fifty leave
        (200.0, 8 + 340),
        (10_000.0, 512),  # as many as may be
        (31.0, 8 + 21),  # half of what is above the base, for want of more
        (26.0, 8 + 16),  # the least
        (5.0, 8 + 16),
    ],
)
def test_what_is_left_of_the_time_goes_to_prompts(target_ms, tok):
    assert step_tok(COSTS, target_ms=target_ms, max_seqs=8, most_tok=512) == tok


def test_never_more_than_allowed():
    assert step_tok(COSTS, target_ms=50.0, max_seqs=8, most_tok=20) == 20
    free = StepCosts(10.0, 0.0, 10.0)
    assert step_tok(free, target_ms=50.0, max_seqs=8, most_tok=256) == 256
    nearly = StepCosts(0.0, 1e-300, 0.0)
    assert step_tok(nearly, target_ms=50.0, max_seqs=8, most_tok=256) == 256


def test_it_is_measured_whatever_else_the_machine_does(pipeline, settings):
    timed = Timed(pipeline, 10.0, 0.5, 2.0)
    costs, steady = measure(timed, settings, lambda: timed.now_ns)
    assert steady
    assert costs.base_ms == pytest.approx(10.0)
    assert costs.prompt_tok_ms == pytest.approx(0.5)
    assert costs.all_seats_ms == pytest.approx(10.0 + settings.max_seqs * 2.0)
    assert all(handle.finish is not None for handle in timed._handles), "nothing is left running"


def test_no_prompt_is_known_to_a_cache(pipeline, settings):
    timed = Timed(pipeline, 1.0, 0.2, 1.0)
    _, steady = measure(timed, settings, lambda: timed.now_ns)
    assert not steady, "its steps are so short that what else happens shows"
    assert len({prompt[:4] for prompt in timed.prompts}) == len(timed.prompts)
    assert all(0 <= id < pipeline.facts.vocabulary for prompt in timed.prompts for id in prompt)


def test_a_busy_machine_is_measured_again(pipeline, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(step_size, "measure", lambda *_: (COSTS, False))
    cache = tmp_path / "steps.json"
    assert measured_costs(cache, STAMP, settings, pipeline) == COSTS
    assert not cache.exists()


def test_it_is_measured_once_for_each_model(pipeline, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(step_size, "measure", lambda *_: (COSTS, True))
    cache = tmp_path / "steps.json"
    assert known_costs(cache, STAMP, settings) is None
    costs = measured_costs(cache, STAMP, settings, pipeline)
    assert known_costs(cache, STAMP, settings) == costs
    assert known_costs(cache, (("m.gguf", 1, 2, 3, 5),), settings) is None, "other weights"
    for n in range(40):
        measured_costs(cache, (("m.gguf", 9, 9, 9, n),), settings, pipeline)
    assert known_costs(cache, STAMP, settings) is None, "so many models ago"
    assert len(json.loads(cache.read_text())) == 32


@pytest.mark.parametrize(
    "said",
    [None, [], [1, 2], [1, 2, "x"], [1, 2, -3], [1, 2, None], 7, [10**400, 1, 2], [1, 2, 1e300]],
)
def test_a_file_that_somebody_has_written_in_is_not_believed(
    pipeline, settings, tmp_path, said, monkeypatch
):
    monkeypatch.setattr(step_size, "measure", lambda *_: (COSTS, True))
    cache = tmp_path / "steps.json"
    measured_costs(cache, STAMP, settings, pipeline)
    (key,) = json.loads(cache.read_text())
    cache.write_text(json.dumps({key: said}))
    assert known_costs(cache, STAMP, settings) is None


def test_the_log_says_what_was_chosen_and_what_cannot_be_had(settings):
    said = words(COSTS, replace(settings, step_target_ms=40.0), 44)
    assert "at most 44 tokens: 40 ms are wanted, each prompt token takes 0.500 ms" in said
    assert "lower engine.max_seqs" not in said
    assert "lower engine.max_seqs" in words(COSTS, replace(settings, step_target_ms=29.0), 44)
