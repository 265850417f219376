"""Settings classes."""

from enum import Enum

from tensorrt_llm._base import Fields
from tensorrt_llm.outputs import CompletionOutput, RequestOutput

__all__ = [
    "CapacitySchedulerPolicy",
    "CompletionOutput",
    "GuidedDecodingParams",
    "KvCacheConfig",
    "RequestOutput",
    "SchedulerConfig",
]


class CapacitySchedulerPolicy(str, Enum):
    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"


class KvCacheConfig(Fields):
    model_fields = {
        "enable_block_reuse": True,
        "max_tokens": None,
        "max_attention_window": None,
        "sink_token_length": None,
        "free_gpu_memory_fraction": 0.9,
        "host_cache_size": None,
        "onboard_blocks": True,
        "cross_kv_cache_fraction": None,
        "secondary_offload_min_priority": None,
        "event_buffer_max_size": 0,
        "attention_dp_events_gather_period_ms": 5,
        "enable_partial_reuse": True,
        "copy_on_partial_reuse": True,
        "use_uvm": False,
        "max_gpu_total_bytes": 0,
        "dtype": "auto",
        "mamba_ssm_cache_dtype": "auto",
        "tokens_per_block": 32,
    }

    def __init__(self, **given):
        super().__init__(**given)
        if not 0 <= self.free_gpu_memory_fraction <= 1:
            raise ValueError(
                "kv_cache_config.free_gpu_memory_fraction must be a float between 0 and 1"
            )


class SchedulerConfig(Fields):
    model_fields = {
        "capacity_scheduler_policy": CapacitySchedulerPolicy.GUARANTEED_NO_EVICT,
        "context_chunking_policy": None,
        "dynamic_batch_config": None,
    }

    def __init__(self, **given):
        super().__init__(**given)
        self.capacity_scheduler_policy = CapacitySchedulerPolicy(self.capacity_scheduler_policy)


class GuidedDecodingParams:
    def __init__(self, *, json=None, regex=None, grammar=None, json_object=False):
        self.json, self.regex, self.grammar, self.json_object = json, regex, grammar, json_object
        if sum(value not in (None, False) for value in vars(self).values()) > 1:
            raise ValueError("Only one guide can be used for a request")
