"""The engine's defaults fit each other."""

import pytest

from onegate.config.engine import EngineConfig, ScriptedConfig


def test_a_daemon_without_a_file_has_a_model() -> None:
    engine = EngineConfig()
    assert (engine.kind, engine.model) == ("openvino", "smollm2-135m-instruct")


def test_text_stays_on_this_machine_unless_the_owner_says_otherwise() -> None:
    assert not EngineConfig().allow_remote


def test_the_scripted_engine_needs_no_configuration() -> None:
    (pool,) = ScriptedConfig().pools
    assert pool.model == "scripted"
    assert pool.context_tok <= pool.kv_tok


@pytest.mark.parametrize(
    ("kind", "path", "needed"),
    [
        ("openvino", "/run/h.sock", True),
        ("tensorrt-llm", "/run/h.sock", True),
        ("scripted", "/run/h.sock", True),
        ("openvino", None, False),
        ("ollama", "/run/h.sock", False),
        ("openai", "/run/h.sock", False),
    ],
)
def test_a_host_of_its_own_is_for_engines_that_live_in_one(kind, path, needed) -> None:
    assert EngineConfig(kind=kind, host_socket=path).needs_host is needed
