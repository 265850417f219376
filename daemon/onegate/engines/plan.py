"""What a host is started with, made from the configuration."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from onegate.config import EngineConfig
from onegate.engines.base import PoolInfo, PoolState, Reservation
from onegate.engines.host.embedded import openvino_pool
from onegate.engines.host.scripted import scripted_pool
from onegate.engines.host.settings import (
    HostSettings,
    OpenVinoSettings,
    ScriptedPool,
    ScriptedSettings,
    TensorRtLlmSettings,
)
from onegate.engines.host.trtllm.pool import trtllm_pool
from onegate.engines.models import ModelUnavailable, embedded_model_path, model_file


class EngineUnprepared(Exception):
    """The host cannot be started as things are; one sentence that names the fix."""


@dataclass(frozen=True)
class HostPlan:
    """How to come to a host, and what is known of its pools before it has said anything.

    `host_socket` is where one listens that is a service of its own; None: `python` starts one.
    `table` is asked again at every start, so that what was missing may be there by then; it raises
    EngineUnprepared.
    """

    kind: str
    python: str
    host_socket: str | None
    table: Callable[[], dict[str, Any]]
    pools: list[PoolInfo]
    stall_floor_s: float
    backoff_first_ms: int
    backoff_max_ms: int
    backoff_reset_s: float


def openvino_plan(config: EngineConfig, step_target_ms: float | None) -> HostPlan:
    """The embedded engine. A model that looks like a path is one; else it is a packaged one's."""
    name, path = model_file(config.model)
    settings = OpenVinoSettings(
        model=name,
        path=str(path or ""),
        device=config.device,
        threads=config.threads,
        context_tok=config.context_tok,
        kv_tok=config.kv_tok,
        max_seqs=config.max_seqs,
        max_step_tok=config.max_step_tok,
        step_target_ms=step_target_ms,
        prefix_cache=config.prefix_cache,
    )

    def table() -> dict[str, Any]:
        try:
            found = path if path is not None else embedded_model_path(config.model)
        except ModelUnavailable as error:
            raise EngineUnprepared(str(error)) from error
        return _table(structs.replace(settings, path=str(found)))

    return _plan(config, table, [openvino_pool(settings)])


def tensorrt_llm_plan(config: EngineConfig, step_target_ms: float | None) -> HostPlan:
    """TensorRT-LLM, in the environment of `engine.python`. Its models are folders."""
    name, path = model_file(config.model)
    own = config.tensorrt_llm
    settings = TensorRtLlmSettings(
        model=name,
        path=str(path or ""),
        tensor_parallel=own.tensor_parallel,
        context_tok=config.context_tok,
        kv_tok=own.kv_tok,
        kv_share=own.kv_share,
        kv_dtype=own.kv_dtype,
        max_seqs=config.max_seqs,
        max_step_tok=config.max_step_tok,
        chunked_prefill=own.chunked_prefill,
        policy=own.policy,
        guided=own.guided,
        prefix_cache=config.prefix_cache,
        salted=config.prefix_cache and config.prefix_cache_scope != "shared",
        trust_remote_code=own.trust_remote_code,
        step_target_ms=step_target_ms,
        stall_s=config.stall_floor_s,
        load_s=own.load_timeout_s,
    )

    def table() -> dict[str, Any]:
        if path is None:
            raise EngineUnprepared(
                f"{config.model!r} is no path: with TensorRT-LLM engine.model is the folder of a "
                "downloaded Hugging Face model"
            )
        return _table(settings)

    return _plan(config, table, [trtllm_pool(settings)])


def scripted_plan(config: EngineConfig, _step_target_ms: float | None) -> HostPlan:
    """The scripted engine, with the pools of its table, whose steps are as its script says."""
    scripted = config.scripted
    settings = ScriptedSettings(
        pools=[
            ScriptedPool(**{**structs.asdict(pool), "reservation": Reservation(pool.reservation)})
            for pool in scripted.pools
        ],
        loadable=scripted.loadable,
    )
    pools = [
        structs.replace(scripted_pool(pool), state=PoolState.LOADING)
        if i < scripted.loadable
        else scripted_pool(pool)
        for i, pool in enumerate(settings.pools)
    ]
    return _plan(config, lambda: _table(settings), pools)


def _table(settings: HostSettings) -> dict[str, Any]:
    table: dict[str, Any] = msgspec.to_builtins(settings)
    return table


def _plan(
    config: EngineConfig, table: Callable[[], dict[str, Any]], pools: list[PoolInfo]
) -> HostPlan:
    return HostPlan(
        kind=config.kind,
        # Not resolved: a virtual environment's interpreter is a link that must stay one.
        python=os.path.abspath(config.python) if config.python else sys.executable,
        host_socket=config.host_socket,
        table=table,
        pools=pools,
        stall_floor_s=config.stall_floor_s,
        backoff_first_ms=config.restart_backoff_ms,
        backoff_max_ms=config.restart_backoff_max_ms,
        backoff_reset_s=config.restart_reset_s,
    )
