"""One setting of a class in several values: the same private daemon, but for that.

`CLASS.KEY=VALUE,VALUE` names them; a value is what a configuration file would have there, without
the quotes.
"""

import json
import tomllib
from typing import Any

from onegate.bench.targets.base import TargetError
from onegate.config import ConfigError, check

_FORM = "it is CLASS.KEY=VALUE,VALUE, as in interactive.itl_target_ms=60,80,none"


def read_vary(text: str) -> list[str]:
    """One `CLASS.KEY=VALUE` for each value. Raises TargetError."""
    place, equals, values = text.partition("=")
    cls, dot, key = place.rpartition(".")
    found = [value.strip() for value in values.split(",")]
    if not (equals and dot and cls and key.isidentifier() and all(found)):
        raise TargetError(f"{text!r} varies nothing: {_FORM}")
    if len(set(found)) < len(found):
        raise TargetError(f"{text!r} has a value twice: A against itself is --aa")
    return [f"{place}={value}" for value in found]


def varied(config: str, setting: str) -> str:
    """The configuration with that setting. Raises TargetError where it has no such class or key."""
    place, _, text = setting.partition("=")
    name, _, key = place.rpartition(".")
    try:
        known = [cls.name for cls in check(config).classes]
        if name not in known:
            raise TargetError(f"{setting}: there is no class {name}; there are {', '.join(known)}")
        table = tomllib.loads(config)
        classes = table.setdefault("class", [])
        own = next((cls for cls in classes if cls["name"] == name), None)
        if own is None:
            own = {"name": name}
            classes.append(own)
        own[key] = _value(text)
        changed = _written(table)
        check(changed)
    except ConfigError as error:
        raise TargetError(f"{setting}: {'; '.join(map(str, error.errors))}") from error
    return changed


def _value(text: str) -> Any:
    """A number, a truth or a list as TOML has it; what is none of them is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _written(table: dict[str, Any]) -> str:
    """TOML of what TOML was: tables and lists of them have headings, so that more may follow."""
    lines = [f"{_key(k)} = {_inline(v)}" for k, v in table.items() if not _headed(v)]
    for name, value in table.items():
        if _headed(value):
            brackets = ("[", "]") if isinstance(value, dict) else ("[[", "]]")
            for each in [value] if isinstance(value, dict) else value:
                lines.append(_key(name).join(brackets))
                lines += [f"{_key(k)} = {_inline(v)}" for k, v in each.items()]
    return "\n".join(lines) + "\n"


def _headed(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)
    )


def _inline(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case bool():
            return "true" if value else "false"
        case str():
            return _key(value)
    return str(value)


def _key(text: str) -> str:
    # TOML's strings are JSON's, but for control characters, which no configuration has.
    return json.dumps(text, ensure_ascii=False)
