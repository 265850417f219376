"""The reference page of the configuration, written from the structs that read it."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import NODEFAULT, Struct, structs

from onegate.config.classes import SHIPPED_CLASSES, ClassConfig
from onegate.config.engine import (
    EngineConfig,
    ScriptedConfig,
    ScriptedPool,
    TensorRtLlmConfig,
)
from onegate.config.gate import GateConfig
from onegate.config.http import OpenAiConfig, OpenAiPool
from onegate.config.log import LogConfig
from onegate.config.ollama import OllamaConfig, OllamaModel
from onegate.config.rules import SHIPPED_HINTS, Grant, Hint, shipped_grants
from onegate.config.shape import NONE_WORD, Shape, shapes
from onegate.config.usage import UsageConfig

_HEAD = """\
# Configuration

One TOML file, everything in it optional: `--config`, else `ONEGATE_CONFIG`, else
`/etc/onegate/onegate.toml`. An unknown key is an error. `onegate check-config FILE` prints every
error at once. Where "none" is allowed, write it as the word: `timeout_ms = "none"`.
The environment wins over the file for `ONEGATE_SOCKET` alone, the path to listen on.
SIGHUP reloads the file; keys marked *restart* keep their value until the daemon is restarted.
"""


def reference() -> str:
    """The page as Markdown. Deterministic, so that a stored copy can be compared with it."""
    parts = [
        _HEAD,
        _table("[engine]", EngineConfig),
        _table("[engine.ollama]", OllamaConfig),
        _table("[[engine.ollama.models]]", OllamaModel),
        _table("[engine.openai]", OpenAiConfig),
        _table("[[engine.openai.pools]]", OpenAiPool),
        _table("[engine.scripted]", ScriptedConfig),
        _table("[[engine.scripted.pools]]", ScriptedPool),
        _table("[engine.tensorrt_llm]", TensorRtLlmConfig),
        _table("[gate]", GateConfig),
        _table("[usage]", UsageConfig),
        _table("[log]", LogConfig),
        _classes(),
        _rules("[[grant]]", Grant, shipped_grants(None)),
        "A daemon that a plain user starts by hand adds, last: that user's `uid`, "
        '`ceiling = "interactive"`, `admin = true`.\n',
        _rules("[[hint]]", Hint, SHIPPED_HINTS),
    ]
    return "\n".join(parts)


def toml_value(value: object, shape: Shape | None = None) -> str:
    """A default as it would be written in the file."""
    if value is None:
        return f'"{NONE_WORD}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        octal = shape is not None and "0o" in str(shape.extra("form"))
        return f"0o{value:o}" if octal else str(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple) and not any(isinstance(entry, Struct) for entry in value):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    return "see below"


def rule_text(rule: Grant | Hint) -> str:
    """One rule on one line: `slice = "user-*.slice" -> ceiling = "interactive"`."""
    conditions = rule.conditions()
    stated = {
        key: getattr(rule, field.name)
        for key, (field, _) in shapes(type(rule)).items()
        if getattr(rule, field.name) is not None
    }
    left = ", ".join(f"{key} = {toml_value(value)}" for key, value in conditions.items())
    right = (f"{key} = {toml_value(value)}" for key, value in stated.items())
    return f"{left} -> {', '.join(part for part in right if part not in left.split(', '))}"


def _doc(kind: type[Struct]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _rows(
    kind: type[Struct], columns: list[str], cells: Callable[[structs.FieldInfo, Shape], list[str]]
) -> str:
    heads = ["key", "allowed", *columns, "why"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for key, (field, shape) in shapes(kind).items():
        reason = shape.reason + (" *(restart)*" if shape.extra("restart") else "")
        lines.append(_row([f"`{key}`", shape.allowed(), *cells(field, shape), reason]))
    return "\n".join(lines) + "\n"


def _default(field: structs.FieldInfo) -> Any:
    return None if field.default is NODEFAULT else field.default


def _table(title: str, kind: type[Struct]) -> str:
    rows = _rows(kind, ["default"], lambda field, shape: [toml_value(_default(field), shape)])
    return f"## `{title}`\n\n{_doc(kind)}\n\n{rows}"


def _classes() -> str:
    rows = _rows(
        ClassConfig,
        [cls.name for cls in SHIPPED_CLASSES],
        lambda field, shape: [toml_value(getattr(c, field.name), shape) for c in SHIPPED_CLASSES],
    )
    return f"## `[[class]]`\n\n{_doc(ClassConfig)}\n\n{rows}"


def _rules(title: str, kind: type[Grant] | type[Hint], shipped: Sequence[Grant | Hint]) -> str:
    rows = _rows(kind, [], lambda field, shape: [])
    listed = "\n".join(f"{i}. `{rule_text(rule)}`" for i, rule in enumerate(shipped))
    return f"## `{title}`\n\n{_doc(kind)}\n\n{rows}\nShipped, in this order:\n\n{listed}\n"
