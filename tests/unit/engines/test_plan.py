import os
import sys

import pytest
from msgspec import structs

from onegate.config import EngineConfig, ScriptedConfig, ScriptedPool, TensorRtLlmConfig
from onegate.engines import plan
from onegate.engines.base import PoolState
from onegate.engines.host.settings import (
    OpenVinoSettings,
    ScriptedSettings,
    TensorRtLlmSettings,
    read_settings,
)
from onegate.engines.models import ModelUnavailable
from onegate.engines.plan import (
    EngineUnprepared,
    openvino_plan,
    scripted_plan,
    tensorrt_llm_plan,
)


def test_a_packaged_model_is_looked_up_at_each_start(monkeypatch):
    there = []

    def find(name):
        if not there:
            raise ModelUnavailable("install it")
        return there[0]

    monkeypatch.setattr(plan, "embedded_model_path", find)
    made = openvino_plan(EngineConfig(kind="openvino", model="small"), None)
    assert [pool.model for pool in made.pools] == ["small"]
    with pytest.raises(EngineUnprepared, match="install it"):
        made.table()
    there.append("/models/small.gguf")
    settings = read_settings(made.table())
    assert isinstance(settings, OpenVinoSettings)
    assert (settings.path, settings.model) == ("/models/small.gguf", "small")


@pytest.mark.parametrize(
    ("model", "name", "path"),
    [
        ("/models/qwen2.5-0.5b.gguf", "qwen2.5-0.5b", "/models/qwen2.5-0.5b.gguf"),
        ("/models/qwen2.5-ov/", "qwen2.5-ov", "/models/qwen2.5-ov"),
        ("x.gguf", "x", os.path.abspath("x.gguf")),
        ("~/m.gguf", "m", os.path.expanduser("~/m.gguf")),
        ("./folder", "folder", os.path.abspath("folder")),
    ],
)
def test_a_path_is_absolute_and_its_name_the_models(model, name, path):
    settings = read_settings(openvino_plan(EngineConfig(model=model), None).table())
    assert (settings.model, settings.path) == (name, path)


def test_every_key_of_the_engine_reaches_the_host():
    config = EngineConfig(
        model="/m.gguf",
        device="GPU",
        threads=3,
        context_tok=11,
        kv_tok=12,
        max_seqs=13,
        max_step_tok=14,
        prefix_cache=False,
        python="/opt/venv/bin/python",
        host_socket="/run/h.sock",
        stall_floor_s=15.0,
        restart_backoff_ms=16,
        restart_backoff_max_ms=17,
        restart_reset_s=18.0,
    )
    made = openvino_plan(config, 40.0)
    settings = read_settings(made.table())
    assert settings.step_target_ms == 40.0
    for key in (
        "device",
        "threads",
        "context_tok",
        "kv_tok",
        "max_seqs",
        "max_step_tok",
        "prefix_cache",
    ):
        assert getattr(settings, key) == getattr(config, key)
    assert (made.python, made.host_socket) == ("/opt/venv/bin/python", "/run/h.sock")
    assert (made.stall_floor_s, made.backoff_first_ms, made.backoff_max_ms) == (15.0, 16, 17)
    assert made.backoff_reset_s == 18.0
    made = openvino_plan(EngineConfig(), None)
    assert (made.python, made.host_socket) == (sys.executable, None)


def test_every_key_of_tensorrt_llm_reaches_the_host():
    own = TensorRtLlmConfig(
        kv_tok=20,
        kv_share=0.5,
        kv_dtype="fp8",
        tensor_parallel=2,
        chunked_prefill=False,
        policy="max_utilization",
        guided="xgrammar",
        trust_remote_code=True,
        load_timeout_s=21.0,
    )
    config = EngineConfig(
        kind="tensorrt-llm",
        model="/models/tuned",
        context_tok=11,
        max_seqs=13,
        max_step_tok=14,
        prefix_cache=True,
        stall_floor_s=15.0,
        tensorrt_llm=own,
    )
    made = tensorrt_llm_plan(config, 40.0)
    settings = read_settings(made.table())
    assert isinstance(settings, TensorRtLlmSettings)
    assert (made.kind, settings.model, settings.path) == ("tensorrt-llm", "tuned", "/models/tuned")
    for key in ("context_tok", "max_seqs", "max_step_tok", "prefix_cache"):
        assert getattr(settings, key) == getattr(config, key)
    for key in structs.asdict(own).keys() - {"load_timeout_s"}:
        assert getattr(settings, key) == getattr(own, key)
    assert (settings.load_s, settings.stall_s, settings.step_target_ms) == (21.0, 15.0, 40.0)
    assert made.pools[0].model == "tuned"


@pytest.mark.parametrize(
    ("given", "salted"),
    [
        ({}, True),
        ({"prefix_cache_scope": "principal"}, True),
        ({"prefix_cache_scope": "shared"}, False),
        ({"prefix_cache": False}, False),
    ],
)
def test_users_are_apart_where_there_is_a_cache_unless_it_is_to_be_shared(given, salted):
    made = tensorrt_llm_plan(EngineConfig(model="/m", **given), None)
    assert read_settings(made.table()).salted is salted


def test_a_model_of_tensorrt_llm_is_a_folder():
    made = tensorrt_llm_plan(EngineConfig(kind="tensorrt-llm", model="small"), None)
    with pytest.raises(EngineUnprepared, match="'small' is no path"):
        made.table()


def test_the_pools_of_the_script():
    pools = tuple(ScriptedPool(model=name, reservation="full") for name in "abc")
    config = EngineConfig(kind="scripted", scripted=ScriptedConfig(pools=pools, loadable=2))
    made = scripted_plan(config, None)
    assert [(pool.model, pool.state) for pool in made.pools] == [
        ("a", PoolState.LOADING),
        ("b", PoolState.LOADING),
        ("c", PoolState.COLD),
    ]
    settings = read_settings(made.table())
    assert isinstance(settings, ScriptedSettings)
    assert [pool.reservation for pool in settings.pools] == ["full"] * 3
    assert settings.loadable == 2


def test_parameters_are_known_before_the_host_has_said_anything():
    for made in (
        openvino_plan(EngineConfig(), None),
        scripted_plan(EngineConfig(kind="scripted"), None),
    ):
        assert {"max_tokens", "stop"} <= made.pools[0].params
