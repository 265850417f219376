import pytest

from onegate.config import EngineConfig, OpenAiConfig, OpenAiPool
from onegate.engines.openai.plan import openai_engine
from onegate.engines.plan import EngineUnprepared


def build(**given):
    config = EngineConfig(kind="openai", openai=OpenAiConfig(**given))
    return openai_engine(config, log=lambda line: None, crashed=lambda name, error: None)


async def test_pools_that_are_named_are_there_at_once():
    engine = build(pools=(OpenAiPool(model="a"), OpenAiPool(model="b")))
    assert [pool.model for pool in engine.pools()] == ["a", "b"]
    assert engine.health().state == "starting"
    assert build().pools() == []


async def test_a_key_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(EngineUnprepared, match="api_key_file"):
        build(api_key_file=str(tmp_path / "none"))
