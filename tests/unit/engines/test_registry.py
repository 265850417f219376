import pytest

from onegate.config import EngineConfig
from onegate.engines.attached import AttachedEngine
from onegate.engines.http.engine import HttpEngine
from onegate.engines.registry import EngineKindMissing, build_engine


def build(kind):
    return build_engine(
        EngineConfig(kind=kind),
        log=lambda line: None,
        crashed=lambda name, error: None,
    )


@pytest.mark.parametrize("kind", ["openvino", "scripted"])
def test_engines_in_a_host(kind):
    engine = build(kind)
    assert isinstance(engine, AttachedEngine)
    assert len(engine.pools()) == 1


@pytest.mark.parametrize("kind", ["tensorrt-llm"])
def test_kinds_without_an_adapter_are_named(kind):
    with pytest.raises(EngineKindMissing, match=f'"{kind}".*openvino, scripted'):
        build(kind)


@pytest.mark.parametrize("kind", ["ollama", "openai"])
def test_servers_of_somebody_elses(kind):
    assert isinstance(build(kind), HttpEngine)
