from dataclasses import replace
from enum import Enum

import pytest

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm.arguments import launch_text, llm_arguments
from onegate.engines.host.trtllm.surface import KNOWN, Surface


def test_everything_that_is_configured_is_passed(library, make_settings):
    settings = make_settings(kv_tok=1000, kv_dtype="fp8", guided="xgrammar", tensor_parallel=2)
    given = llm_arguments(library, settings)
    cache = {
        "enable_block_reuse": True,
        "free_gpu_memory_fraction": 0.9,
        "max_tokens": 1000,
        "dtype": "fp8",
    }
    assert given == {
        "model": settings.path,
        "trust_remote_code": False,
        "tensor_parallel_size": 2,
        "max_batch_size": 4,
        "max_num_tokens": 128,
        "max_seq_len": 512,
        "kv_cache_config": ("KvCacheConfig", cache),
        "scheduler_config": (
            "SchedulerConfig",
            {"capacity_scheduler_policy": "GUARANTEED_NO_EVICT"},
        ),
        "enable_chunked_prefill": True,
        "enable_iter_perf_stats": True,
        "guided_decoding_backend": "xgrammar",
    }
    assert given.keys() == KNOWN["LLM"].keys()


def test_what_is_left_to_the_engine_is_not_passed(library, make_settings):
    given = llm_arguments(library, make_settings())
    assert "guided_decoding_backend" not in given
    assert given["kv_cache_config"][1].keys() == {"enable_block_reuse", "free_gpu_memory_fraction"}


def test_a_policy_is_the_librarys_own_where_it_has_one(library, make_settings):
    policies = Enum("Policies", ["MAX_UTILIZATION", "GUARANTEED_NO_EVICT"])
    given = llm_arguments(
        replace(library, policies=policies), make_settings(policy="max_utilization")
    )
    (_, scheduler) = given["scheduler_config"]
    assert scheduler == {"capacity_scheduler_policy": policies.MAX_UTILIZATION}


def test_a_release_without_something_that_is_optional(library, make_settings):
    signatures = {"LLM": KNOWN["LLM"].keys() - {"enable_iter_perf_stats"}}
    older = replace(library, surface=Surface("1.2.1", signatures))
    assert "enable_iter_perf_stats" not in llm_arguments(older, make_settings())


@pytest.mark.parametrize(
    ("version", "missing", "given", "name"),
    [
        ("1.2.1", {"max_batch_size"}, {}, "max_batch_size"),
        ("1.2.1", {"guided_decoding_backend"}, {"guided": "xgrammar"}, "guided_decoding_backend"),
        ("1.1.0", set(), {"kv_dtype": "fp8"}, "kv_cache_config.dtype"),
    ],
)
def test_a_release_without_something_that_is_needed(
    library, make_settings, version, missing, given, name
):
    surface = Surface(version, {"LLM": KNOWN["LLM"].keys() - missing})
    with pytest.raises(LoadFailed, match=f"does not take {name}: install 1.2.1"):
        llm_arguments(replace(library, surface=surface), make_settings(**given))


def test_the_launch_can_be_typed(make_settings):
    settings = make_settings(path="/models/m")
    told = launch_text(settings, {"model": 1, "kv_cache_config": 2, "scheduler_config": 3})
    assert told == (
        "tensorrt_llm.LLM(model='/models/m', kv_cache_config=KvCacheConfig("
        "enable_block_reuse=True, free_gpu_memory_fraction=0.9), "
        "scheduler_config=SchedulerConfig(capacity_scheduler_policy='GUARANTEED_NO_EVICT'))"
    )
