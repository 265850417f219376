"""Configuration and the engine's word, in the core's terms."""

from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    Reservation,
)
from onegate.config import ClassConfig, Config
from onegate.engines.base import Feature, PoolInfo

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def gate_limits(config: Config) -> GateLimits:
    """The bounds over all classes."""
    gate = config.gate
    return GateLimits(
        max_in_flight=gate.max_in_flight,
        max_queued_tok=gate.max_queued_tok,
        max_queued_requests=gate.max_queued_requests,
        look_ahead=gate.look_ahead,
        floor_window_ns=round(gate.floor_window_s * NS_PER_S),
        floor_quantum_tok=gate.floor_quantum_tok,
        preempt_delta_ns=gate.preempt_delta_ms * NS_PER_MS,
        recompute_share=gate.recompute_budget,
        probe_after=gate.probe_after_refusals,
        ticket_grace=gate.ticket_grace,
    )


def class_specs(config: Config) -> tuple[ClassSpec, ...]:
    """The classes, best rank first."""
    return tuple(map(class_spec, config.classes))


def class_spec(class_: ClassConfig) -> ClassSpec:
    """A class as it is configured."""
    return ClassSpec(
        name=class_.name,
        rank=class_.rank,
        max_queued_tok=class_.max_queued_tok,
        per_principal_share=class_.per_principal_share,
        safety_timeout_ns=round(class_.safety_timeout_s * NS_PER_S),
        floor_share=class_.floor_share,
        waits_when_closed=class_.when_closed == "wait",
        preempts=class_.preempt == "lower_rank",
        preemptible=class_.preemptible,
        preempt_grace_ns=class_.preempt_grace_ms * NS_PER_MS,
        itl_target_ns=_ns(class_.itl_target_ms),
    )


def _ns(ms: int | None) -> int | None:
    return None if ms is None else ms * NS_PER_MS


def pool_spec(pool: PoolInfo, released_until_ns: int | None = None) -> PoolSpec:
    """A pool as the engine describes it; a released one is taken back at `released_until_ns`."""
    capacity, identity = pool.capacity, pool.identity
    switch_ms = pool.switch_cost_ms
    return PoolSpec(
        model=pool.model,
        state=PoolState(pool.state.value),
        capacity=PoolCapacity(
            max_seqs=capacity.max_seqs,
            max_context_tok=capacity.max_context_tok,
            reservation=Reservation(capacity.reservation.value),
            kv_tok=capacity.kv_tok,
            max_step_tok=capacity.max_step_tok,
            block_tok=capacity.block_tok,
        ),
        switch_cost_ns=None if switch_ms is None else round(switch_ms * NS_PER_MS),
        released_until_ns=released_until_ns,
        keeps_prefix={Feature.PREFIX_CACHE, Feature.RESUME_EXACT} <= pool.features,
        identity=None if identity is None else f"{identity.engine} {identity.digest}",
    )
