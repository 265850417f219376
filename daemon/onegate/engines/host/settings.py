"""What the daemon tells the host about its engine: the table in `Attach`, read strictly."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from onegate.engines.base import Reservation

# No less strict than an engine needs them to be; the daemon's configuration has narrower ones.
# What is no number is beyond every bound.
_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Seconds = Annotated[float, Meta(gt=0, le=1e9)]
_CostMs = Annotated[float, Meta(ge=0, le=1e9)]
_Path = Annotated[str, Meta(pattern=r"^/[^\x00]*\Z")]


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the tables; a key that one side does not know is an error, not a default. So a change
    of the keys is another version of the wire."""


class OpenVinoSettings(_Settings, frozen=True, tag_field="kind", tag="openvino"):
    """`path` is an absolute path to a GGUF file or an OpenVINO model folder; `model` its name.

    A step has `max_step_tok` tokens at most, fewer where it would take longer than
    `step_target_ms`.

    `threads` None: one less than the cores that this process may use, at least one, so that the
    daemon's loop on the same machine is never starved.
    """

    model: str
    path: _Path
    device: str
    threads: _Count | None
    context_tok: _Count
    kv_tok: _Count
    max_seqs: _Count
    max_step_tok: _Count
    step_target_ms: _CostMs | None
    prefix_cache: bool

    @property
    def prompt_step_tok(self) -> int:
        """The longest prompt that is read in one step, its answer not counted."""
        return min(self.max_step_tok, self.context_tok, self.kv_tok)


class TensorRtLlmSettings(_Settings, frozen=True, tag_field="kind", tag="tensorrt-llm"):
    """`path` is an absolute path to a folder with a Hugging Face model; `model` its name.

    `kv_tok` None: as many tokens as `kv_share` of the memory holds that the model leaves. `salted`:
    prefixes are shared by requests of one principal only. `step_target_ms` changes nothing and is
    compared with what steps take.
    """

    model: str
    path: _Path
    tensor_parallel: _Count
    context_tok: _Count
    kv_tok: _Count | None
    kv_share: Annotated[float, Meta(gt=0, le=1)]
    kv_dtype: str
    max_seqs: _Count
    max_step_tok: _Count
    chunked_prefill: bool
    policy: Literal["guaranteed_no_evict", "max_utilization"]
    guided: Literal["xgrammar", "llguidance"] | None
    prefix_cache: bool
    salted: bool
    trust_remote_code: bool
    step_target_ms: _CostMs | None
    stall_s: _Seconds
    load_s: _Seconds


class ScriptedPool(_Settings, frozen=True):
    """One model of the scripted engine; a step costs `a + b * prefill_tok + c * seqs`."""

    model: str
    max_seqs: _Count
    kv_tok: _Count
    context_tok: _Count
    max_step_tok: _Count | None
    reservation: Reservation
    switch_cost_ms: _CostMs
    a_ms: _CostMs
    b_ms_per_prefill_tok: _CostMs
    c_ms_per_seq: _CostMs


class ScriptedSettings(_Settings, frozen=True, tag_field="kind", tag="scripted"):
    """`loadable` of the pools are in memory at a time."""

    pools: list[ScriptedPool]
    loadable: _Count


HostSettings = OpenVinoSettings | TensorRtLlmSettings | ScriptedSettings


def read_settings(table: dict[str, Any] | None) -> HostSettings:
    """Raises msgspec.ValidationError naming the key that is wrong."""
    settings: HostSettings = msgspec.convert(table, HostSettings)
    return settings
