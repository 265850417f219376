"""Parameters of a request as the embedded engine's generation settings."""

import random
from typing import NamedTuple

from msgspec import UNSET

from onegate.engines.base import EngineRequest

# Below 1 by one float32 step: the library takes [0, 1), and 1 means "only the best token".
_BELOW_ONE = 1 - 2**-24

# `seed`: the library has one random source for all sequences of a step, so a seeded answer is
# reproducible only while no other request samples. Greedy decoding always is.
HONOURED = frozenset(
    {
        "max_tokens",
        "min_tokens",
        "ignore_eos",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "repeat_penalty",
        "response_format",
        "logprobs",
    }
)


class Sampling(NamedTuple):
    """Settings by the library's own names; what is not set stays the model's own default.

    `grammar` is in the library's EBNF: the only texts there are, None for any.
    """

    values: dict[str, int | float | bool]
    grammar: str | None = None


def sampling_of(
    request: EngineRequest,
    *,
    max_tokens: int,
    samples_by_default: bool,
    grammar: str | None = None,
) -> Sampling:
    """Settings for one request of at most `max_tokens` tokens.

    Temperature 0 is greedy; unset is the model's own default, greedy for a bare model file.
    Under greedy decoding top_p, top_k, min_p and seed hold trivially: the best token is in every
    set they leave. An unset seed is a fresh one, or every answer of a prompt would be the same.
    """
    params = request.params
    values: dict[str, int | float | bool] = {"max_new_tokens": max_tokens}
    if params.min_tokens is not UNSET:
        values["min_new_tokens"] = params.min_tokens
    if params.ignore_eos is not UNSET:
        values["ignore_eos"] = params.ignore_eos
    if params.logprobs is not UNSET and params.logprobs:
        values["logprobs"] = 1
    for name, setting in (
        ("presence_penalty", "presence_penalty"),
        ("frequency_penalty", "frequency_penalty"),
        ("repeat_penalty", "repetition_penalty"),
    ):
        if (value := getattr(params, name)) is not UNSET:
            values[setting] = float(value)
    samples = samples_by_default if params.temperature is UNSET else params.temperature > 0
    values["do_sample"] = samples
    if samples:
        _random(request, values)
    return Sampling(values, grammar)


def _random(request: EngineRequest, values: dict[str, int | float | bool]) -> None:
    params = request.params
    if params.temperature is not UNSET:
        values["temperature"] = float(params.temperature)
    if params.top_p is not UNSET:
        values["top_p"] = float(params.top_p)
    if params.top_k is not UNSET and params.top_k > 0:
        values["top_k"] = params.top_k
    if params.min_p is not UNSET:
        values["min_p"] = min(float(params.min_p), _BELOW_ONE)
    values["rng_seed"] = random.getrandbits(63) if params.seed is UNSET else params.seed
