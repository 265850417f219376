"""The gate's defaults, as documented."""

from onegate.config.gate import MIB, GateConfig


def test_documented_defaults() -> None:
    gate = GateConfig()
    assert (gate.max_in_flight, gate.max_queued_tok, gate.max_queued_requests) == (64, 262144, 4096)
    assert (gate.inbound_bytes, gate.inbound_bytes_per_principal) == (192 * MIB, 64 * MIB)
    assert (gate.max_frame_bytes, gate.write_high_water_bytes) == (8 * MIB, MIB)
    assert (gate.frame_timeout_s, gate.drain_timeout_s, gate.floor_window_s) == (10, 30, 30)
    assert (gate.sessions_per_uid, gate.floor_quantum_tok, gate.look_ahead) == (64, 256, 0)
    assert gate.socket_mode == 0o660
    assert (gate.preempt_delta_ms, gate.recompute_budget) == (250, 0.15)
    assert (gate.probe_after_refusals, gate.ticket_grace) == (8, 0.25)
