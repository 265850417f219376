"""Which names TensorRT-LLM takes: what its releases are known to take, and what the installed one
says of itself. One wrong name is a failed start, so nothing else is ever passed."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from onegate.engines.host.engine import LoadFailed

Release = tuple[int, int]

OLDEST: Release = (1, 0)
# The one that this was written for; of the others only the names that they take are known.
WRITTEN_FOR: Release = (1, 2)
_V10, _V11, _V12 = (1, 0), (1, 1), (1, 2)

# The release from which on a name is known, for every call that is made here. What a release added
# before 1.2 was seen in, is taken from the stability lists of its source; 1.2 from 1.2.1 itself.
KNOWN: Mapping[str, Mapping[str, Release]] = {
    "LLM": {
        "model": _V10,
        "trust_remote_code": _V10,
        "tensor_parallel_size": _V10,
        "max_batch_size": _V10,
        "max_num_tokens": _V10,
        "max_seq_len": _V10,
        "kv_cache_config": _V10,
        "scheduler_config": _V10,
        "enable_chunked_prefill": _V10,
        "enable_iter_perf_stats": _V10,
        "guided_decoding_backend": _V10,
    },
    "KvCacheConfig": {
        "enable_block_reuse": _V10,
        "max_tokens": _V10,
        "free_gpu_memory_fraction": _V10,
        "dtype": _V12,
    },
    "SchedulerConfig": {"capacity_scheduler_policy": _V10},
    "SamplingParams": {
        "max_tokens": _V10,
        "ignore_eos": _V10,
        "temperature": _V10,
        "top_p": _V10,
        "top_k": _V10,
        "n": _V10,
        "detokenize": _V10,
        "guided_decoding": _V10,
    },
    "GuidedDecodingParams": {"json": _V10, "json_object": _V10},
    "generate_async": {
        "inputs": _V10,
        "sampling_params": _V10,
        "streaming": _V10,
        "cache_salt": _V11,
    },
}
# In no release up to 1.2.1, and later ones differ: passed exactly where the signature has it.
BY_SIGNATURE: Mapping[str, frozenset[str]] = {"generate_async": frozenset({"priority"})}


def release_of(version: str) -> Release:
    """The first two numbers of a version. Raises LoadFailed for one that is too old or no version.

    A newer one than is known is taken for the newest that is known, and its signatures decide.
    """
    found = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    if found is None:
        raise LoadFailed(f"TensorRT-LLM {version[:40]!r} is no version that is understood here")
    release = (int(found[1]), int(found[2]))
    if release < OLDEST:
        raise LoadFailed(
            f"TensorRT-LLM {version} is too old: install 1.2.1 into engine.python's environment"
        )
    return release


def unproven(version: str) -> str | None:
    """The sentence for a release that behaves as it does and not as it is known to; None for the
    one that this was written for."""
    if release_of(version) == WRITTEN_FOR:
        return None
    return (
        f"TensorRT-LLM {version} is not the release that onegate was written for (1.2.1): only the "
        "names that it takes are compared, see TENSORRT_LLM.md"
    )


class Surface:
    """What may be passed to which call of the installed release.

    `signatures`: the names that each call itself says it takes, None where it does not say.
    """

    def __init__(self, version: str, signatures: Mapping[str, frozenset[str] | None]) -> None:
        self._release = release_of(version)
        self._signatures = signatures

    def takes(self, call: str, name: str) -> bool:
        """Whether a call may be given this name."""
        said = self._signatures.get(call)
        if name in BY_SIGNATURE.get(call, ()):
            return said is not None and name in said
        since = KNOWN[call].get(name)
        if since is None or since > self._release:
            return False
        return said is None or name in said

    def only(self, call: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The part of `given` that the call takes."""
        return {name: value for name, value in given.items() if self.takes(call, name)}


def names_of(call: Callable[..., Any]) -> frozenset[str] | None:
    """The keyword arguments that a call takes; None where it takes any, or does not say.

    A settings class that lists its fields (`model_fields`) takes these.
    """
    fields = getattr(call, "model_fields", None)
    if isinstance(fields, Mapping):
        return frozenset(fields)
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None  # compiled, and without one
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters)
