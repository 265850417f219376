"""`[engine]`: the one engine of this daemon, and the scripted stand-in for it."""

from typing import Annotated, Literal

from msgspec import Struct

from onegate.config.http import OpenAiConfig
from onegate.config.ollama import OllamaConfig
from onegate.config.units import (
    CostMs,
    Count,
    Line,
    Milliseconds,
    Seconds,
    Share,
    Tok,
    why,
)


class ScriptedPool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of the scripted engine. A step costs `a + b * prefill_tok + c * seqs`."""

    model: Annotated[Line, why("the name requests ask for")] = "scripted"
    max_seqs: Annotated[Count, why("seats", "sequences")] = 16
    kv_tok: Annotated[Tok, why("cache for all its sequences together", "tokens")] = 32768
    context_tok: Annotated[Tok, why("longest prompt and answer of one request", "tokens")] = 4096
    max_step_tok: Annotated[
        Tok | None, why("prompt tokens of one step; `none`: the engine does not say", "tokens")
    ] = 256
    reservation: Annotated[
        Literal["full", "grow", "per_slot"],
        why("how it reserves cache: prompt + maximum, as the answer grows, or a slot each"),
    ] = "grow"
    switch_cost_ms: Annotated[CostMs, why("time to load it", "ms")] = 0.0
    a_ms: Annotated[CostMs, why("what a step costs by itself", "ms")] = 5.0
    b_ms_per_prefill_tok: Annotated[CostMs, why("plus this for each prompt token", "ms")] = 0.05
    c_ms_per_seq: Annotated[CostMs, why("plus this for each sequence that decodes", "ms")] = 0.5


class ScriptedConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine.scripted]`: an engine without a model, for tests, demonstrations and measuring
    the daemon itself. Faults are asked for by the prompt of a request, never configured."""

    pools: Annotated[
        tuple[ScriptedPool, ...], why("its models, one `[[engine.scripted.pools]]` each")
    ] = (ScriptedPool(),)
    loadable: Annotated[Count, why("how many of them may be loaded at a time", "models")] = 1


class TensorRtLlmConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine.tensorrt_llm]`: beside the keys of `[engine]`, of which `context_tok` is its
    max_seq_len, `max_seqs` its max_batch_size, `max_step_tok` its max_num_tokens and `prefix_cache`
    its enable_block_reuse."""

    kv_tok: Annotated[
        Tok | None,
        why("kv_cache_config.max_tokens; `none`: what `kv_share` holds", "tokens", restart=True),
    ] = None
    kv_share: Annotated[
        Share,
        why(
            "kv_cache_config.free_gpu_memory_fraction: of the memory that the model leaves",
            restart=True,
        ),
    ] = 0.9
    kv_dtype: Annotated[
        Literal["auto", "fp8"],
        why("kv_cache_config.dtype; `fp8` holds twice the tokens of 16 bits", restart=True),
    ] = "auto"
    tensor_parallel: Annotated[
        Count, why("tensor_parallel_size: over so many GPUs", "GPUs", restart=True)
    ] = 1
    chunked_prefill: Annotated[
        bool,
        why(
            "enable_chunked_prefill; without it a prompt above `max_step_tok` is refused",
            restart=True,
        ),
    ] = True
    policy: Annotated[
        Literal["guaranteed_no_evict", "max_utilization"],
        why(
            "scheduler_config.capacity_scheduler_policy: reserve cache for the longest answer, or "
            "pause requests when it runs out",
            restart=True,
        ),
    ] = "guaranteed_no_evict"
    guided: Annotated[
        Literal["xgrammar", "llguidance"] | None,
        why(
            "guided_decoding_backend, for JSON and schemas; `none`: they are refused", restart=True
        ),
    ] = None
    trust_remote_code: Annotated[
        bool, why("trust_remote_code: run Python that comes with the model", restart=True)
    ] = False
    load_timeout_s: Annotated[
        Seconds, why("a load that takes longer has failed", "s", restart=True)
    ] = 1800.0


# Where the engine's service listens that install.sh makes.
HOST_SOCKET_PATH = "/run/onegate-engine/host.sock"

# Kinds that run inside an engine host; the others are servers that somebody else runs.
_HOSTED_KINDS = ("openvino", "tensorrt-llm", "scripted")


class EngineConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine]`: what generates the text. Any change here needs a restart."""

    kind: Annotated[
        Literal["openvino", "tensorrt-llm", "ollama", "openai", "scripted"],
        why("what runs the model", restart=True),
    ] = "openvino"
    model: Annotated[
        Line,
        why(
            "the embedded model's name, a path to a GGUF or an OpenVINO folder; for tensorrt-llm "
            "the folder of a Hugging Face model",
            restart=True,
        ),
    ] = "smollm2-135m-instruct"
    device: Annotated[
        Line, why("where the engine computes, in its own words: CPU, GPU, GPU.1", restart=True)
    ] = "CPU"
    threads: Annotated[
        Count | None,
        why(
            "`none`: one less than the cores, so that the gate is never starved",
            "threads",
            restart=True,
        ),
    ] = None
    python: Annotated[
        Line | None,
        why(
            "interpreter of the engine's own virtual environment; `none`: the daemon's. Its own "
            "service gets it by `sudo ./install.sh`",
            restart=True,
        ),
    ] = None
    host_socket: Annotated[
        Line | None,
        why(
            "where an engine host listens that is a service of its own and keeps its model when "
            "the daemon restarts; `none`: the daemon starts one, which ends with it",
            restart=True,
        ),
    ] = None
    context_tok: Annotated[
        Tok, why("longest prompt and answer of one request", "tokens", restart=True)
    ] = 4096
    kv_tok: Annotated[
        Tok,
        why(
            "cache for all sequences together; costs memory. tensorrt-llm has a key of its own",
            "tokens",
            restart=True,
        ),
    ] = 32768
    max_seqs: Annotated[
        Count, why("seats; more of them slow each other down", "sequences", restart=True)
    ] = 16
    max_step_tok: Annotated[
        Tok,
        why(
            "tokens of one step at most; fewer keep running answers smooth while prompts are read, "
            "and a class's `itl_target_ms` says how smooth",
            "tokens",
            restart=True,
        ),
    ] = 256
    prefix_cache: Annotated[
        bool, why("keep what prompts have in common; agents live from it", restart=True)
    ] = True
    prefix_cache_scope: Annotated[
        Literal["principal", "shared"] | None,
        why(
            "by timing, a shared cache tells users about each other's prompts; `none`: separate "
            "where the engine can",
            restart=True,
        ),
    ] = None
    allow_remote: Annotated[
        bool, why("text may leave this machine: never without the owner saying so", restart=True)
    ] = False
    stall_floor_s: Annotated[
        Seconds,
        why(
            "no progress for this long, or four times the predicted prefill, is a stall",
            "s",
            restart=True,
        ),
    ] = 30.0
    restart_backoff_ms: Annotated[
        Milliseconds, why("wait before the first restart; doubles", "ms", restart=True)
    ] = 500
    restart_backoff_max_ms: Annotated[
        Milliseconds,
        why("longest wait between restarts: a fixed engine is back within it", "ms", restart=True),
    ] = 60_000
    restart_reset_s: Annotated[
        Seconds, why("up for this long, the engine counts as healthy again", "s", restart=True)
    ] = 300.0
    ollama: Annotated[OllamaConfig, why('read when `kind = "ollama"`', restart=True)] = (
        OllamaConfig()
    )
    openai: Annotated[OpenAiConfig, why('read when `kind = "openai"`', restart=True)] = (
        OpenAiConfig()
    )
    scripted: Annotated[ScriptedConfig, why('read when `kind = "scripted"`', restart=True)] = (
        ScriptedConfig()
    )

    tensorrt_llm: Annotated[
        TensorRtLlmConfig, why('read when `kind = "tensorrt-llm"`', restart=True)
    ] = TensorRtLlmConfig()

    @property
    def needs_host(self) -> bool:
        """Whether this engine lives in an engine host that is a service of its own."""
        return self.host_socket is not None and self.kind in _HOSTED_KINDS
