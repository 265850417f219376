"""SamplingParams: written into by the first request that uses it."""

import inspect

from tensorrt_llm._base import strict

_DEFAULTS = {
    "end_id": None,
    "pad_id": None,
    "max_tokens": 32,
    "bad": None,
    "bad_token_ids": None,
    "stop": None,
    "stop_token_ids": None,
    "include_stop_str_in_output": False,
    "embedding_bias": None,
    "logits_processor": None,
    "apply_batched_logits_processor": False,
    "n": 1,
    "best_of": None,
    "use_beam_search": False,
    "top_k": None,
    "top_p": None,
    "top_p_min": None,
    "top_p_reset_ids": None,
    "top_p_decay": None,
    "seed": None,
    "temperature": None,
    "min_tokens": None,
    "beam_search_diversity_rate": None,
    "repetition_penalty": None,
    "presence_penalty": None,
    "frequency_penalty": None,
    "prompt_ignore_length": None,
    "length_penalty": None,
    "early_stopping": None,
    "no_repeat_ngram_size": None,
    "min_p": None,
    "beam_width_array": None,
    "logprobs": None,
    "prompt_logprobs": None,
    "return_context_logits": False,
    "return_generation_logits": False,
    "exclude_input_from_output": True,
    "return_encoder_output": False,
    "return_perf_metrics": False,
    "additional_model_outputs": None,
    "lookahead_config": None,
    "guided_decoding": None,
    "ignore_eos": False,
    "detokenize": True,
    "add_special_tokens": True,
    "truncate_prompt_tokens": None,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
}
# In 1.2 the sampler takes these and does nothing with them, or something else than they say.
IGNORED = (
    "seed",
    "min_p",
    "min_tokens",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


class SamplingParams:
    __signature__ = inspect.Signature(
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in _DEFAULTS.items()
    )

    def __init__(self, **given):
        unknown = given.keys() - _DEFAULTS.keys()
        if unknown:
            raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
        self._given = given
        self.__dict__.update(_DEFAULTS | given)
        self.best_of = self.best_of or self.n
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError("require 0 <= top_p <= 1")
        if self.top_k is not None and self.top_k < 0:
            raise ValueError("require top_k >= 0")
        if self.temperature is not None and self.temperature < 0:
            raise ValueError("require temperature >= 0")
        if self.best_of < self.n:
            raise ValueError("best_of cannot be less than n")
        if self.best_of > 1 and self._greedy:
            raise ValueError("Greedy decoding in the LLM API does not allow multiple returns")
        if self.truncate_prompt_tokens is not None and self.truncate_prompt_tokens < 1:
            raise ValueError("require truncate_prompt_tokens >= 1")

    @property
    def _greedy(self):
        return (
            (self.temperature is None and self.top_p is None and self.top_k is None)
            or self.top_k == 1
            or self.top_p == 0.0
            or self.temperature == 0
        )

    def _set_up(self, end_id, *, streaming):
        """What a request does to it."""
        strict(self.end_id is None, "a SamplingParams was used for two requests")
        strict("max_tokens" in self._given, "max_tokens was left to its default")
        strict(self.max_tokens is not None and self.max_tokens >= 1, "max_tokens is below 1")
        strict(not (streaming and self.n > 1), "n > 1 with streaming")
        strict(not (streaming and self.logprobs), "logprobs with streaming")
        ignored = [name for name in IGNORED if getattr(self, name) is not None]
        strict(not ignored, f"nothing comes of {ignored}")
        self.end_id = -1 if self.ignore_eos else end_id
        self.pad_id = end_id
        self._stream_interval = 1
