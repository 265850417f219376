import importlib.metadata
import sys

import pytest

from onegate.config import EngineConfig
from onegate.engines.base import PoolState
from onegate.engines.host import build
from onegate.engines.host.build import build_engine
from onegate.engines.host.embedded import EmbeddedEngine
from onegate.engines.host.scripted import ScriptedEngine
from onegate.engines.host.settings import OpenVinoSettings, ScriptedSettings, read_settings
from onegate.engines.host.trtllm.engine import TrtLlmEngine
from onegate.engines.plan import tensorrt_llm_plan

OPENVINO = OpenVinoSettings(
    model="m",
    path="/nowhere/m.gguf",
    device="CPU",
    threads=None,
    context_tok=1,
    kv_tok=1,
    max_seqs=1,
    max_step_tok=1,
    step_target_ms=None,
    prefix_cache=False,
)


def hang_up():
    raise AssertionError


def test_each_kind_has_its_engine_and_nothing_is_loaded():
    embedded = build_engine(OPENVINO, hang_up=hang_up)
    assert isinstance(embedded, EmbeddedEngine)
    assert [pool.state for pool in embedded.pools()] == [PoolState.LOADING]
    scripted = build_engine(ScriptedSettings(pools=[], loadable=1), hang_up=hang_up)
    assert isinstance(scripted, ScriptedEngine)
    assert (embedded.kind, scripted.kind) == ("openvino", "scripted")
    assert not scripted.wake
    for engine in (embedded, scripted):
        assert engine.due == engine.busy
        engine.close()


def test_tensorrt_llm_is_not_imported_before_it_loads():
    settings = read_settings(tensorrt_llm_plan(EngineConfig(model="/m"), None).table())
    engine = build_engine(settings, hang_up=hang_up)
    assert isinstance(engine, TrtLlmEngine)
    assert (engine.kind, engine.version) == ("tensorrt-llm", "not installed")
    assert "tensorrt_llm" not in sys.modules


@pytest.mark.parametrize("installed", [True, False])
def test_the_version_is_the_installed_ones(monkeypatch, installed):
    def version(name):
        assert name == "openvino-genai"
        if not installed:
            raise importlib.metadata.PackageNotFoundError
        return "9"

    monkeypatch.setattr(build.importlib.metadata, "version", version)
    engine = build_engine(OPENVINO, hang_up=hang_up)
    assert engine.version == ("9" if installed else "not installed")
