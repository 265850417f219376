"""How many tokens a step may have, so that the time between two tokens is as short as it should be.

A step computes a token for each answer that goes on, and pieces of prompts. While a long prompt is
read, how large a piece is decides how long everybody else waits for the next token. An engine takes
the number as it opens a model; what a step costs is measured here, once for each model.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

from onegate.clock import monotonic_ns
from onegate.engines.host.digest import Stamp
from onegate.engines.host.pipeline import Handle, Pipeline
from onegate.engines.host.remembered import recall, remember
from onegate.engines.host.sampling import Sampling
from onegate.engines.host.settings import OpenVinoSettings

_NS_PER_MS = 1e6
# Smaller pieces would read a prompt of 4,000 tokens in more than 250 steps.
LEAST_PROMPT_TOK = 16
# Of models that were measured the last so many are remembered.
_MODELS = 32
# What other programs do at the moment only ever makes a step longer: the shortest of so many.
_REPEATS = 3
# Where the longest of them took so much more than the shortest, nothing is remembered.
_STEADY = 1.5
_ANSWER_TOK = 8
# No step takes an hour: a file that says so was not written here.
_LONGEST_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What a step takes, in milliseconds: one that does nothing, each prompt token more, and one
    in which every seat makes a token."""

    base_ms: float
    prompt_tok_ms: float
    all_seats_ms: float


def step_tok(costs: StepCosts, *, target_ms: float, max_seqs: int, most_tok: int) -> int:
    """How many tokens a step has at most, those of answers counted.

    Prompts get the time that a step of all seats leaves, and where it leaves little half of what is
    to be had: with fewer answers going on, which is what the gate sees to, that is in time too.
    """
    half_ms = (target_ms - costs.base_ms) / 2
    prompt_ms = max(0.0, target_ms - costs.all_seats_ms, half_ms)
    if not costs.prompt_tok_ms:
        return most_tok
    prompt_tok = max(LEAST_PROMPT_TOK, int(min(most_tok, prompt_ms / costs.prompt_tok_ms)))
    return min(most_tok, max_seqs + prompt_tok)


def known_costs(cache: Path, stamp: Stamp, settings: OpenVinoSettings) -> StepCosts | None:
    """What was measured before, of the same files with the same settings; None if nothing was."""
    found = recall(cache).get(_key(stamp, settings))
    if not isinstance(found, list) or len(found) != len(StepCosts.__dataclass_fields__):
        return None
    if not all(isinstance(ms, (int, float)) and 0 <= ms <= _LONGEST_MS for ms in found):
        return None
    return StepCosts(*map(float, found))


def measured_costs(
    cache: Path, stamp: Stamp, settings: OpenVinoSettings, pipeline: Pipeline
) -> StepCosts:
    """Measure them with a model in which nothing runs, and remember them, unless other programs
    kept the machine busy: then the next start measures again."""
    costs, steady = measure(pipeline, settings)
    if not steady:
        return costs
    known = recall(cache)
    known.pop(key := _key(stamp, settings), None)
    known = dict([*known.items(), (key, list(astuple(costs)))][-_MODELS:])
    remember(cache, known, what="what a step costs")
    return costs


def measure(
    pipeline: Pipeline, settings: OpenVinoSettings, clock: Callable[[], int] = monotonic_ns
) -> tuple[StepCosts, bool]:
    """Steps with a long piece of a prompt, with a short one, and with an answer in every seat.

    The second value says whether the same steps took about the same time.
    """
    bench = _Bench(pipeline, clock)
    long_tok = max(2, settings.prompt_step_tok - _ANSWER_TOK)
    short_tok = max(1, long_tok // 4)
    long_steps_ms = [bench.prompt_ms(long_tok) for _ in range(_REPEATS)]
    long_ms = min(long_steps_ms)
    short_ms = min(bench.prompt_ms(short_tok) for _ in range(_REPEATS))
    prompt_tok_ms = max(0.0, (long_ms - short_ms) / (long_tok - short_tok))
    seats = min(settings.max_seqs, max(1, pipeline.facts.kv_blocks // 2))
    costs = StepCosts(
        base_ms=max(0.0, short_ms - prompt_tok_ms * short_tok),
        prompt_tok_ms=prompt_tok_ms,
        all_seats_ms=bench.answers_ms(seats),
    )
    return costs, max(long_steps_ms) <= _STEADY * long_ms


def words(costs: StepCosts, settings: OpenVinoSettings, chosen_tok: int) -> str:
    """What was chosen and why, for the log."""
    said = (
        f"a step has at most {chosen_tok} tokens: {settings.step_target_ms:g} ms are wanted, each "
        f"prompt token takes {costs.prompt_tok_ms:.3f} ms, and a token for each of "
        f"{settings.max_seqs} answers {costs.all_seats_ms:.1f} ms"
    )
    if settings.step_target_ms is not None and costs.all_seats_ms > settings.step_target_ms:
        said += ", which is more: lower engine.max_seqs, or raise itl_target_ms"
    return said


class _Bench:
    """Runs what is measured. No prompt is like one before it, or a cache would know it."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], int]) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._id = 0

    def prompt_ms(self, n_tok: int) -> float:
        """A step that reads a prompt of so many tokens."""
        handle = self._add(n_tok, 1)
        took_ms = self._step_ms()
        self._finish([handle])
        return took_ms

    def answers_ms(self, n: int) -> float:
        """A step that makes a token for each of `n` answers: the middle of some."""
        handles = [self._add(4, _ANSWER_TOK) for _ in range(n)]
        self._step_ms()  # reads the prompts
        took_ms = median(self._step_ms() for _ in range(_ANSWER_TOK - 2))
        self._finish(handles)
        return took_ms

    def _add(self, n_tok: int, max_tok: int) -> Handle:
        self._id += 1
        words = max(1, min(self._pipeline.facts.vocabulary, 4096) - 128)
        ids = [(self._id + i * 7) % words + 100 for i in range(n_tok)]
        sampling = Sampling({"max_new_tokens": max_tok, "ignore_eos": True, "do_sample": False})
        return self._pipeline.add(self._id, ids, sampling)

    def _step_ms(self) -> float:
        began_ns = self._clock()
        self._pipeline.step()
        return (self._clock() - began_ns) / _NS_PER_MS

    def _finish(self, handles: list[Handle]) -> None:
        left = [handle for handle in handles if handle.read().finish is None]
        while left:
            self._pipeline.step()
            left = [handle for handle in left if handle.read().finish is None]


def _key(stamp: Stamp, settings: OpenVinoSettings) -> str:
    cores = len(os.sched_getaffinity(0))
    facts = (stamp, settings.device, settings.threads, cores, settings.max_seqs)
    told = (*facts, settings.max_step_tok, settings.context_tok, settings.kv_tok)
    return hashlib.sha256(repr(told).encode()).hexdigest()
