"""Which adapter serves which `engine.kind`."""

import importlib
from collections.abc import Callable

from onegate.config import EngineConfig
from onegate.engines.attached import AttachedEngine
from onegate.engines.base import Engine
from onegate.engines.plan import EngineUnprepared, openvino_plan, scripted_plan, tensorrt_llm_plan

_PLANS = {
    "openvino": openvino_plan,
    "scripted": scripted_plan,
    "tensorrt-llm": tensorrt_llm_plan,
}
# Servers of somebody else's. Their adapters are loaded where one is configured: the others do
# without an HTTP client.
_SERVERS = {
    "ollama": ("onegate.engines.ollama.plan", "ollama_engine"),
    "openai": ("onegate.engines.openai.plan", "openai_engine"),
}


def build_engine(
    config: EngineConfig,
    *,
    step_target_ms: float | None = None,
    log: Callable[[str], None],
    crashed: Callable[[str, BaseException], None],
) -> Engine:
    """The configured engine, not started.

    Where an engine lets us choose, its steps take no longer than `step_target_ms`.
    `log` gets what its processes write, line by line; `crashed` is told of the adapter's own bug,
    after which nobody watches the engine any more. Raises EngineUnprepared where the
    configuration leads to nothing.
    """
    if config.kind in _SERVERS:
        return _server(config, log=log, crashed=crashed)
    return AttachedEngine(_PLANS[config.kind](config, step_target_ms), log=log, crashed=crashed)


def _server(
    config: EngineConfig,
    *,
    log: Callable[[str], None],
    crashed: Callable[[str, BaseException], None],
) -> Engine:
    module, name = _SERVERS[config.kind]
    try:
        build = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "onegate":
            raise
        raise EngineUnprepared(
            f'an engine of kind "{config.kind}" needs {error.name}: install onegate[http]'
        ) from error
    engine: Engine = build(config, log=log, crashed=crashed)
    return engine
