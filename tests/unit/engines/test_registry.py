from typing import get_args, get_type_hints

import pytest

from onegate.config import EngineConfig
from onegate.engines.attached import AttachedEngine
from onegate.engines.http.engine import HttpEngine
from onegate.engines.registry import build_engine

SERVERS = {"ollama", "openai"}
KINDS = set(get_args(get_type_hints(EngineConfig)["kind"]))


def build(kind):
    return build_engine(
        EngineConfig(kind=kind),
        log=lambda line: None,
        crashed=lambda name, error: None,
    )


@pytest.mark.parametrize("kind", sorted(KINDS - SERVERS))
def test_engines_in_a_host(kind):
    engine = build(kind)
    assert isinstance(engine, AttachedEngine)
    assert len(engine.pools()) == 1


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_servers_of_somebody_elses(kind):
    assert kind in KINDS
    assert isinstance(build(kind), HttpEngine)
