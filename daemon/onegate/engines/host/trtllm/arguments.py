"""What `LLM(...)` is called with."""

from collections.abc import Mapping
from typing import Any

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.library import Library

# Without these the engine would not keep to the limits that are told of it.
_NEEDED = ("model", "max_batch_size", "max_num_tokens", "max_seq_len", "kv_cache_config")


def plain_arguments(settings: TensorRtLlmSettings) -> dict[str, Any]:
    """Every argument by its name; those that are settings classes as tables."""
    cache: dict[str, Any] = {
        "enable_block_reuse": settings.prefix_cache,
        "free_gpu_memory_fraction": settings.kv_share,
    }
    if settings.kv_tok is not None:
        cache["max_tokens"] = settings.kv_tok
    if settings.kv_dtype != "auto":
        cache["dtype"] = settings.kv_dtype
    given: dict[str, Any] = {
        "model": settings.path,
        "trust_remote_code": settings.trust_remote_code,
        "tensor_parallel_size": settings.tensor_parallel,
        "max_batch_size": settings.max_seqs,
        "max_num_tokens": settings.max_step_tok,
        "max_seq_len": settings.context_tok,
        "kv_cache_config": cache,
        "scheduler_config": {"capacity_scheduler_policy": settings.policy.upper()},
        "enable_chunked_prefill": settings.chunked_prefill,
        "enable_iter_perf_stats": True,
    }
    if settings.guided is not None:
        given["guided_decoding_backend"] = settings.guided
    return given


def llm_arguments(library: Library, settings: TensorRtLlmSettings) -> dict[str, Any]:
    """The arguments as the installed release takes them.

    Raises LoadFailed where it does not take one that the limits or the configuration rest on.
    """
    takes = library.surface
    given = plain_arguments(settings)
    asked = {"guided_decoding_backend"} & given.keys()
    missing = [name for name in (*_NEEDED, *asked) if not takes.takes("LLM", name)]
    cache = given["kv_cache_config"]
    missing += [f"kv_cache_config.{k}" for k in cache if not takes.takes("KvCacheConfig", k)]
    if missing:
        raise LoadFailed(
            f"TensorRT-LLM {library.version} does not take {', '.join(missing)}: install 1.2.1, or "
            "leave the key of engine.tensorrt_llm out that asks for it"
        )
    given["kv_cache_config"] = library.kv_cache_config(**cache)
    policy = given["scheduler_config"]["capacity_scheduler_policy"]
    if library.policies is not None:
        policy = library.policies[policy]
    scheduler = takes.only("SchedulerConfig", {"capacity_scheduler_policy": policy})
    given["scheduler_config"] = library.scheduler_config(**scheduler)
    return takes.only("LLM", given)


def launch_text(settings: TensorRtLlmSettings, passed: Mapping[str, Any]) -> str:
    """The call as it would be typed. `passed`: what the installed release was given."""
    plain = plain_arguments(settings)
    told = ", ".join(f"{name}={_told(name, plain[name])}" for name in passed)
    return f"tensorrt_llm.LLM({told})"


def _told(name: str, value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    kind = {"kv_cache_config": "KvCacheConfig", "scheduler_config": "SchedulerConfig"}[name]
    return f"{kind}({', '.join(f'{key}={entry!r}' for key, entry in value.items())})"
