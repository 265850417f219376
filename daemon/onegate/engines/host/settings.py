"""What the daemon tells the host about its engine: the table in `Attach`, read strictly."""

from typing import Any

import msgspec

from onegate.engines.base import Reservation


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the tables; a key that one side does not know is an error, not a default."""


class OpenVinoSettings(_Settings, frozen=True, tag_field="kind", tag="openvino"):
    """`path` is an absolute path to a GGUF file or an OpenVINO model folder; `model` its name.

    `threads` None: one less than the cores that this process may use, at least one, so that the
    daemon's loop on the same machine is never starved.
    """

    model: str
    path: str
    device: str
    threads: int | None
    context_tok: int
    kv_tok: int
    max_seqs: int
    max_step_tok: int
    prefix_cache: bool


class ScriptedPool(_Settings, frozen=True):
    """One model of the scripted engine; a step costs `a + b * prefill_tok + c * seqs`."""

    model: str
    max_seqs: int
    kv_tok: int
    context_tok: int
    max_step_tok: int | None
    reservation: Reservation
    switch_cost_ms: float
    a_ms: float
    b_ms_per_prefill_tok: float
    c_ms_per_seq: float


class ScriptedSettings(_Settings, frozen=True, tag_field="kind", tag="scripted"):
    """`loadable` of the pools are in memory at a time."""

    pools: list[ScriptedPool]
    loadable: int


HostSettings = OpenVinoSettings | ScriptedSettings


def read_settings(table: dict[str, Any] | None) -> HostSettings:
    """Raises msgspec.ValidationError naming the key that is wrong."""
    settings: HostSettings = msgspec.convert(table, HostSettings)
    return settings
