"""The engine out of its configuration."""

import pytest

from onegate.config import EngineConfig, OllamaConfig, OllamaModel
from onegate.engines.base import PoolState
from onegate.engines.ollama.plan import ollama_engine
from onegate.engines.plan import EngineUnprepared


def build(**given):
    models = (OllamaModel(model="a", max_seqs=2), OllamaModel(model="b"))
    config = EngineConfig(kind="ollama", ollama=OllamaConfig(models=models, **given))
    return ollama_engine(config, log=lambda line: None, crashed=lambda name, error: None)


def test_its_pools_are_known_before_the_server_is():
    pools = build().pools()
    assert [(p.model, p.state, p.capacity.max_seqs) for p in pools] == [
        ("a", PoolState.LOADING, 2),
        ("b", PoolState.LOADING, 1),
    ]


def test_an_address_that_is_none():
    with pytest.raises(EngineUnprepared, match="base_url"):
        build(base_url="ftp://x")
