"""Configuration and the engine's word, in the core's terms."""

import pytest

from onegate import config as configuration
from onegate.admission import model
from onegate.engines import base
from onegate.server.translate import class_specs, gate_limits, pool_spec

CONFIG = configuration.check(
    """
    [engine]
    kind = "ollama"
    [gate]
    max_in_flight = 7
    max_queued_tok = 300000
    max_queued_requests = 11
    look_ahead = 1
    floor_window_s = 2.5
    floor_quantum_tok = 99
    [[class]]
    name = "loop"
    max_queued_tok = 1234
    per_principal_share = 0.25
    safety_timeout_s = 2800.5
    when_closed = "wait"
    """
)


def test_limits() -> None:
    assert gate_limits(CONFIG) == model.GateLimits(
        max_in_flight=7,
        max_queued_tok=300_000,
        max_queued_requests=11,
        look_ahead=1,
        floor_window_ns=2_500_000_000,
        floor_quantum_tok=99,
    )


def test_classes_come_best_first() -> None:
    specs = class_specs(CONFIG)
    assert [spec.name for spec in specs] == ["interactive", "loop", "batch"]
    assert specs[1] == model.ClassSpec(
        name="loop",
        rank=1,
        max_queued_tok=1234,
        per_principal_share=0.25,
        safety_timeout_ns=2_800_500_000_000,
        floor_share=0.05,
        waits_when_closed=True,
    )
    assert not specs[0].waits_when_closed


@pytest.mark.parametrize("reservation", list(base.Reservation))
@pytest.mark.parametrize("state", list(base.PoolState))
def test_a_pool(state: base.PoolState, reservation: base.Reservation) -> None:
    info = base.PoolInfo(
        model="tiny",
        state=state,
        capacity=base.EngineCapacity(
            max_seqs=2,
            max_context_tok=100,
            reservation=reservation,
            kv_tok=300,
            max_step_tok=40,
            block_tok=16,
        ),
        switch_cost_ms=1.5,
    )
    spec = pool_spec(info)
    assert (spec.model, spec.state.value, spec.switch_cost_ns) == ("tiny", state.value, 1_500_000)
    assert spec.capacity == model.PoolCapacity(
        max_seqs=2,
        max_context_tok=100,
        reservation=model.Reservation(reservation.value),
        kv_tok=300,
        max_step_tok=40,
        block_tok=16,
    )


def test_what_the_engine_does_not_say_stays_unknown() -> None:
    capacity = base.EngineCapacity(
        max_seqs=1, max_context_tok=10, reservation=base.Reservation.PER_SLOT
    )
    spec = pool_spec(base.PoolInfo(model="t", state=base.PoolState.COLD, capacity=capacity))
    assert (spec.switch_cost_ns, spec.capacity.kv_tok, spec.capacity.max_step_tok) == (None,) * 3
