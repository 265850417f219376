"""Parameters of a request as TensorRT-LLM's sampling settings."""

import json
from typing import Any

from msgspec import UNSET

from onegate.engines.base import EngineRequest
from onegate.engines.host.engine import Refusal
from onegate.engines.host.trtllm.library import Library
from onegate.protocol.content import ResponseFormat


def sampling_of(request: EngineRequest, *, max_tokens: int) -> dict[str, Any]:
    """Settings by the library's own names, for an answer of at most `max_tokens` tokens (>= 1).

    Temperature 0, or none, is greedy; `max_tokens` is always set, or it would be 32.
    """
    params = request.params
    values: dict[str, Any] = {"max_tokens": max_tokens, "n": 1, "detokenize": False}
    if params.ignore_eos is not UNSET:
        values["ignore_eos"] = params.ignore_eos
    if params.temperature is UNSET or params.temperature == 0:
        values["top_k"] = 1
        return values
    values["temperature"] = float(params.temperature)
    if params.top_p is not UNSET:
        values["top_p"] = float(params.top_p)
    if params.top_k is not UNSET and params.top_k > 0:
        values["top_k"] = params.top_k
    return values


def guide_of(request: EngineRequest) -> dict[str, Any] | None:
    """What the answer must parse as, as arguments of GuidedDecodingParams: exactly one, or None.

    Raises Refusal for a schema that is not given.
    """
    wanted = request.params.response_format
    if not isinstance(wanted, ResponseFormat) or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"json_object": True}
    if wanted.json_schema is None:
        raise Refusal("invalid", "the schema is missing", path="params.response_format")
    return {"json": json.dumps(wanted.json_schema.schema)}


def params_of(library: Library, values: dict[str, Any], guide: dict[str, Any] | None) -> Any:
    """A new SamplingParams: the library writes into the one that it is given."""
    given = dict(values)
    if guide is not None:
        given["guided_decoding"] = library.guided(
            **library.surface.only("GuidedDecodingParams", guide)
        )
    return library.sampling_params(**library.surface.only("SamplingParams", given))


def priority_of(rank: int) -> float:
    """The library's priority, 0 to 1 and higher first, of a class's rank, 0 first."""
    return 1.0 / (1 + max(0, rank))
