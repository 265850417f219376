"""What is known of the pool before anything is loaded: the daemon says it, too."""

from onegate.engines.base import EngineCapacity, Feature, PoolInfo, PoolState, Reservation
from onegate.engines.host.settings import TensorRtLlmSettings

# What its PyTorch sampler honours in 1.2. Not: the three penalties, min_p and seed, which the
# settings take and the sampler ignores; min_tokens, for which it counts the prompt as well, so that
# any prompt of that length ends it; nor logprobs, which with streaming and an abort end in a failed
# assertion. Stop strings are found here, so that they are found across a preemption.
_HONOURED = frozenset({"max_tokens", "ignore_eos", "temperature", "top_p", "top_k", "stop"})
# Only with a grammar backend.
_GUIDED = frozenset({"response_format"})
_FEATURES = frozenset(
    {
        Feature.ABORT,
        Feature.COUNTS_TOKENS,
        Feature.RESUME_EXACT,
        Feature.TOKEN_IDS,
        Feature.WHOLE_PROMPTS,
    }
)


def trtllm_pool(settings: TensorRtLlmSettings) -> PoolInfo:
    """What is known of the pool before it is loaded."""
    cached = {Feature.PREFIX_CACHE} if settings.prefix_cache else set()
    guided = {Feature.SCHEMA} if settings.guided is not None else set()
    return PoolInfo(
        model=settings.model,
        state=PoolState.LOADING,
        capacity=known_capacity(settings),
        features=_FEATURES | cached | guided,
        params=honoured(settings),
    )


def honoured(settings: TensorRtLlmSettings) -> frozenset[str]:
    """The parameters that a request may set."""
    return _HONOURED | _GUIDED if settings.guided is not None else _HONOURED


def known_capacity(settings: TensorRtLlmSettings) -> EngineCapacity:
    """The limits that the engine is started with; how large its cache is, it says when it runs."""
    full = settings.policy == "guaranteed_no_evict"
    return EngineCapacity(
        max_seqs=settings.max_seqs,
        max_context_tok=min(settings.context_tok, settings.kv_tok or settings.context_tok),
        reservation=Reservation.FULL if full else Reservation.GROW,
        kv_tok=settings.kv_tok,
        max_step_tok=settings.max_step_tok,
    )
