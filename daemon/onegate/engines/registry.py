"""Which adapter serves which `engine.kind`."""

from collections.abc import Callable

from onegate.config import EngineConfig
from onegate.engines.attached import AttachedEngine
from onegate.engines.base import Engine
from onegate.engines.plan import openvino_plan, scripted_plan, tensorrt_llm_plan

_PLANS = {
    "openvino": openvino_plan,
    "scripted": scripted_plan,
    "tensorrt-llm": tensorrt_llm_plan,
}


class EngineKindMissing(Exception):
    """The configuration names a kind of engine that this version has no adapter for."""


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
    after which nobody watches the engine any more. Raises EngineKindMissing.
    """
    plan = _PLANS.get(config.kind)
    if plan is None:
        known = ", ".join(sorted(_PLANS))
        raise EngineKindMissing(
            f'this version has no engine of kind "{config.kind}": set engine.kind to one of {known}'
        )
    return AttachedEngine(plan(config, step_target_ms), log=log, crashed=crashed)
