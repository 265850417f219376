"""The answers to questions about models where there is no Ollama: from what the engine says of
itself.

What is not known has to be something all the same, because clients insist on these fields: sizes
are 0, texts are empty, times are Go's zero time, which Ollama's command line shows as `Never`, and
a digest is all zeros, of which that command line prints the first twelve.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from onegate.protocol.content import Identity
from onegate.protocol.status import PoolStatus

# Of which release's answers these have the shape; clients insist on a number such as this one.
API_VERSION = "0.9.3"

_NEVER = "0001-01-01T00:00:00Z"
_NO_DIGEST = "0" * 64
_LATEST = ":latest"
_FAMILY = "onegate"
_LOADED = ("ready",)
# By the gate's names; programs offer their tools only to a model that says so.
_CAPABILITIES = {
    "tools": "tools",
    "images": "vision",
    "thinking": "thinking",
    "suffix": "insert",
    "embeddings": "embedding",
}


def listed_name(model: str) -> str:
    """A model's name as lists show it: with a tag, as Ollama's do."""
    _, colon, tag = model.rpartition(":")
    return model if colon and "/" not in tag else model + _LATEST


def served(pools: Sequence[PoolStatus], aliases: Mapping[str, str]) -> list[tuple[str, PoolStatus]]:
    """Every name that can be asked for and what it means, the aliases first."""
    by_model = {pool.model: pool for pool in pools}
    found = [(alias, by_model[model]) for alias, model in aliases.items() if model in by_model]
    return found + [(model, pool) for model, pool in by_model.items() if model not in aliases]


def tags(models: Sequence[tuple[str, PoolStatus]]) -> dict[str, Any]:
    """`GET /api/tags`."""
    return {"models": [_entry(name, pool) for name, pool in models]}


def ps(models: Sequence[tuple[str, PoolStatus]]) -> dict[str, Any]:
    """`GET /api/ps`: what is in memory. How much of it and until when, nobody says."""
    loaded = [
        {
            **_entry(name, pool),
            "expires_at": _NEVER,
            "size_vram": 0,
            "context_length": pool.max_context_tok or 0,
        }
        for name, pool in models
        if pool.state in _LOADED
    ]
    for entry in loaded:
        del entry["modified_at"]
    return {"models": loaded}


def show(pool: PoolStatus) -> dict[str, Any]:
    """`POST /api/show`."""
    info: dict[str, Any] = {"general.architecture": _FAMILY, "general.basename": pool.model}
    if pool.max_context_tok is not None:
        info[f"{_FAMILY}.context_length"] = pool.max_context_tok
    identity = pool.identity
    return {
        "license": "",
        "modelfile": f"# {pool.model} is served by the gate and has no Modelfile\n",
        "parameters": "",
        "template": "",
        "details": _details(identity),
        "model_info": info,
        "capabilities": _capabilities(pool.features),
        "modified_at": _NEVER,
    }


def openai_list(models: Sequence[tuple[str, PoolStatus]]) -> dict[str, Any]:
    """`GET /v1/models`."""
    return {"object": "list", "data": [openai_one(name) for name, _ in models]}


def openai_one(name: str) -> dict[str, Any]:
    """`GET /v1/models/NAME`. When it was made nobody says: 0 is 1970."""
    return {"id": listed_name(name), "object": "model", "created": 0, "owned_by": "library"}


def _entry(name: str, pool: PoolStatus) -> dict[str, Any]:
    shown = listed_name(name)
    return {
        "name": shown,
        "model": shown,
        "modified_at": _NEVER,
        "size": 0,
        "digest": _digest(pool.identity),
        "details": _details(pool.identity),
    }


def _capabilities(features: Sequence[str]) -> list[str]:
    return ["completion", *(name for ours, name in _CAPABILITIES.items() if ours in features)]


def _digest(identity: Identity | None) -> str:
    if identity is None or identity.digest is None:
        return _NO_DIGEST
    hexadecimal = identity.digest.rpartition(":")[2].casefold()
    # Shorter ones than Ollama's are not its own kind, and its command line would trip over them.
    return hexadecimal if len(hexadecimal) == len(_NO_DIGEST) else _NO_DIGEST


def _details(identity: Identity | None) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "" if identity is None else identity.engine,
        "family": _FAMILY,
        "families": [_FAMILY],
        "parameter_size": "",
        "quantization_level": "",
    }
