"""Configuration and the engine's word, in the core's terms."""

import pytest

from onegate import config as configuration
from onegate.admission import model
from onegate.engines import base
from onegate.protocol.content import Identity
from onegate.server.translate import class_specs, gate_limits, pool_spec

CONFIG = configuration.check(
    """
    [engine]
    kind = "tensorrt-llm"
    [gate]
    max_in_flight = 7
    max_queued_tok = 300000
    max_queued_requests = 11
    look_ahead = 1
    floor_window_s = 2.5
    floor_quantum_tok = 99
    preempt_delta_ms = 125
    recompute_budget = 0.5
    probe_after_refusals = 3
    ticket_grace = 0.125
    [[class]]
    name = "loop"
    max_queued_tok = 1234
    per_principal_share = 0.25
    safety_timeout_s = 2800.5
    when_closed = "wait"
    preempt = "never"
    preempt_grace_ms = 1500
    itl_target_ms = 40
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
        preempt_delta_ns=125_000_000,
        recompute_share=0.5,
        probe_after=3,
        ticket_grace=0.125,
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
        preempts=False,
        preemptible=True,
        preempt_grace_ns=1_500_000_000,
        itl_target_ns=40_000_000,
    )
    assert not specs[0].waits_when_closed
    assert [(spec.preempts, spec.preemptible) for spec in specs] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    assert specs[0].itl_target_ns is None


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


@pytest.mark.parametrize(
    ("features", "keeps"),
    [
        ({base.Feature.PREFIX_CACHE, base.Feature.RESUME_EXACT, base.Feature.ABORT}, True),
        ({base.Feature.PREFIX_CACHE}, False),  # nothing to go on from
        ({base.Feature.RESUME_EXACT}, False),
        (set(), False),
    ],
)
def test_what_a_stopped_request_finds_again(features: set[base.Feature], keeps: bool) -> None:
    capacity = base.EngineCapacity(
        max_seqs=1, max_context_tok=10, reservation=base.Reservation.GROW
    )
    info = base.PoolInfo(
        model="t", state=base.PoolState.READY, capacity=capacity, features=frozenset(features)
    )
    assert pool_spec(info).keeps_prefix is keeps


def test_what_was_learned_holds_for_the_same_engine_and_weights() -> None:
    capacity = base.EngineCapacity(
        max_seqs=1, max_context_tok=10, reservation=base.Reservation.GROW
    )

    def identity(**fields: str) -> str | None:
        plain = {"engine": "openvino", "model": "t", "digest": "sha256:1"}
        info = base.PoolInfo(
            model="t",
            state=base.PoolState.READY,
            capacity=capacity,
            identity=Identity(**(plain | fields)),
        )
        return pool_spec(info).identity

    assert identity() is not None
    assert identity() == identity()
    assert identity(digest="sha256:2") != identity() != identity(engine="other")
    bare = base.PoolInfo(model="t", state=base.PoolState.COLD, capacity=capacity)
    assert pool_spec(bare).identity is None


def test_as_shipped_people_go_first() -> None:
    interactive, loop, batch = class_specs(configuration.check(""))
    assert (interactive.preempts, interactive.preemptible) == (True, False)
    assert (loop.preempts, loop.preemptible, loop.preempt_grace_ns) == (True, True, 2 * 10**9)
    assert (batch.preempts, batch.preemptible, batch.preempt_grace_ns) == (False, True, 0)


def test_what_the_engine_does_not_say_stays_unknown() -> None:
    capacity = base.EngineCapacity(
        max_seqs=1, max_context_tok=10, reservation=base.Reservation.PER_SLOT
    )
    spec = pool_spec(base.PoolInfo(model="t", state=base.PoolState.COLD, capacity=capacity))
    assert (spec.switch_cost_ns, spec.capacity.kv_tok, spec.capacity.max_step_tok) == (None,) * 3
