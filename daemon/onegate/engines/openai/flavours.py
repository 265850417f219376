"""What each server takes beyond the standard, and how it is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onegate.engines.base import EngineRequest, Feature, Reservation

# What the API itself defines. A server that knows no more refuses every other field.
STANDARD = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "response_format": "response_format",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
}


@dataclass(frozen=True)
class Flavour:
    """One kind of server.

    `params` says under which name it takes each of `Params`; `extra` what it is sent with every
    request; `priority` how a class's rank (0 first) becomes its own. `counts` is where running and
    waiting requests are seen, `tokenizes` how it is asked for a token count.
    """

    name: str
    params: Mapping[str, str]
    features: frozenset[Feature] = frozenset()
    reservation: Reservation = Reservation.GROW
    extra: Mapping[str, Any] = field(default_factory=dict)
    stream_options: Mapping[str, Any] = field(default_factory=dict)
    priority: Callable[[int], int | float] | None = None
    salts: bool = False
    thinks: bool = False
    counts: Literal["slots", "vllm", None] = None
    tokenizes: Literal["llama", "vllm", None] = None


_BEYOND = {"ignore_eos": "ignore_eos", "top_k": "top_k", "min_p": "min_p"}

NONE = Flavour(name="none", params=STANDARD, features=frozenset({Feature.SCHEMA}))

VLLM = Flavour(
    name="vllm",
    params=STANDARD
    | _BEYOND
    | {"min_tokens": "min_tokens", "repeat_penalty": "repetition_penalty"},
    features=frozenset(
        {
            Feature.ABORT,
            Feature.SCHEMA,
            Feature.LOGPROBS,
            Feature.COUNTS_TOKENS,
            Feature.PREFIX_CACHE,
            Feature.TOKEN_IDS,
            Feature.WHOLE_PROMPTS,
        }
    ),
    # A piece may stand for several tokens where the server is slow to send: this says for how many.
    stream_options={"continuous_usage_stats": True},
    # Lower first, any integer. A server without `--scheduling-policy priority` refuses all but 0,
    # which the probe finds out.
    priority=lambda rank: rank,
    salts=True,
    thinks=True,
    counts="vllm",
    tokenizes="vllm",
)

LLAMA = Flavour(
    name="llama-server",
    params=STANDARD | _BEYOND | {"repeat_penalty": "repeat_penalty"},
    features=frozenset(
        {
            Feature.ABORT,
            Feature.SCHEMA,
            Feature.LOGPROBS,
            Feature.COUNTS_TOKENS,
            Feature.PREFIX_CACHE,
            Feature.TOKEN_IDS,
            Feature.WHOLE_PROMPTS,
        }
    ),
    reservation=Reservation.PER_SLOT,
    extra={"return_progress": True},
    thinks=True,
    counts="slots",
    tokenizes="llama",
)

TRTLLM = Flavour(
    name="trtllm",
    params=STANDARD
    | _BEYOND
    | {"min_tokens": "min_tokens", "repeat_penalty": "repetition_penalty"},
    features=frozenset({Feature.SCHEMA}),
    # 0 to 1, higher first, 0.5 by default, where the version has it; which is not known before a
    # request is refused for it, so that it is off until the probe has seen it taken.
    priority=lambda rank: 1.0 / (1 + rank),
)

FLAVOURS = {flavour.name: flavour for flavour in (NONE, VLLM, LLAMA, TRTLLM)}


def recognised(owners: set[str], has_slots: bool) -> Flavour:
    """Which server it is, by who it says owns its models and whether it has `/props`."""
    if "vllm" in owners:
        return VLLM
    if "llamacpp" in owners or has_slots:
        return LLAMA
    return NONE


def ranked(flavour: Flavour, request: EngineRequest) -> int | float | None:
    """The request's priority in the server's terms."""
    return None if flavour.priority is None else flavour.priority(request.rank)
