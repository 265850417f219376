"""How much a model reads, as the library takes it from the model's configuration: it lowers a
context that is longer without a word to its caller, and what then is too long may hang it."""

import json
from pathlib import Path
from typing import Any

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm.folder import unreadable

_MOST_BYTES = 4 << 20
_MOST_TOK = 1 << 30
# Where a configuration does not say; the library's own.
_UNSAID_TOK = 2048
# Ways to stretch positions whose factor is in `max_position_embeddings` already.
_STRETCHED = ("su", "longrope", "llama3", "yarn")


def model_context_tok(path: Path) -> int:
    """The longest prompt and answer that the model in this folder has positions for.

    Raises LoadFailed for a `config.json` that is none.
    """
    config = _config(path / "config.json")
    nested = config.get("text_config")
    text = nested if isinstance(nested, dict) else {}
    most = _number(config.get("max_position_embeddings", text.get("max_position_embeddings")))
    if most is None:
        return _UNSAID_TOK
    return min(_MOST_TOK, max(1, int(most * _factor(config.get("rope_scaling")))))


def _factor(scaling: Any) -> float:
    if not isinstance(scaling, dict):
        return 1.0
    if scaling.get("type", scaling.get("rope_type")) in _STRETCHED:
        return 1.0
    return _number(scaling.get("factor")) or 1.0


def _config(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise unreadable(error, file) from error
    try:
        found = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LoadFailed(f"{file} is no model's configuration: download the folder again")
    return found


def _number(value: Any) -> float | None:
    """A number that can be counted with, above 0 and finite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value <= _MOST_TOK else None
