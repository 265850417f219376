"""From a TOML file, or the name of a shipped one, to a checked `Scenario`."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import structs

from onegate.bench.files import Unreadable, read_text
from onegate.bench.scenario import Lengths, LoadClass, Scenario
from onegate.bench.traces import TraceError, read_trace
from onegate.config.model import ConfigError, ConfigProblem
from onegate.config.read import Reader, nearest, show
from onegate.config.shape import NONE_WORD

SUFFIX = ".toml"
TRACE = "trace:"
MAX_SCENARIO_BYTES = 64 * 1024
# A schedule is held in memory; far above what one machine can send.
MAX_ARRIVALS = 2_000_000
_PREFIX = "scenario"
_MAX_CLASSES = 64

# Keys that mean something for some kinds only; elsewhere they would be ignored without a word.
_ARRIVALS_KINDS = {"cv": ("gamma",), "size": ("burst",), "every_s": ("burst",)}
_LENGTHS_KINDS = {
    **{"tok": ("fixed",), "low_tok": ("uniform",), "high_tok": ("uniform",)},
    **{"p50_tok": ("lognormal",), "p95_tok": ("lognormal",)},
}
_RETRY_KINDS = {"wait_ms": ("constant", "honour"), "most": ("constant", "honour", "hammer")}
_LEAVE_PHASES = {"after_ms": ("queued", "prefill"), "after_tok": ("decode",)}


def shipped() -> list[str]:
    """Names of the scenarios that come with the package."""
    folder = files("onegate.bench") / "scenarios"
    found = [entry.name for entry in folder.iterdir() if entry.name.endswith(SUFFIX)]
    return sorted(name.removesuffix(SUFFIX) for name in found)


def shipped_text(name: str) -> str:
    """The file of a shipped scenario. Raises ConfigError for a name that there is not."""
    if name not in shipped():
        known = ", ".join(shipped())
        raise ConfigError(
            [
                ConfigProblem(
                    "scenario",
                    f"there is no shipped scenario {name!r}{nearest(name, shipped())}; there are "
                    f"{known}; a file of your own is a path with a / in it, or ending in {SUFFIX}",
                )
            ]
        )
    return (files("onegate.bench") / "scenarios" / f"{name}{SUFFIX}").read_text(encoding="utf-8")


def load_scenario(name: str) -> Scenario:
    """A shipped scenario by its name, any by its path, or `trace:FILE`.

    Raises ConfigError with every problem.
    """
    if name.startswith(TRACE):
        return check_scenario(_trace_text(name.removeprefix(TRACE)))
    if "/" not in name and not name.endswith(SUFFIX):
        return check_scenario(shipped_text(name))
    try:
        return check_scenario(read_text(name, MAX_SCENARIO_BYTES))
    except Unreadable as error:
        raise _unreadable(str(error)) from error


def lasting(scenario: Scenario, duration_s: float) -> Scenario:
    """The same scenario with a window of that length. Raises ConfigError."""
    found = structs.replace(scenario, duration_s=duration_s)
    reader = Reader()
    _times(reader, found)
    return _sound(reader, found)


def excess(scenario: Scenario, rates: Mapping[str, float]) -> str | None:
    """One sentence where more would be sent than a schedule can hold, at these rates at load 1."""
    span_s = scenario.duration_s + scenario.warmup_s
    per_s = sum(
        _rate(cls, rates.get(cls.name, 0.0), max(scenario.loads)) for cls in scenario.classes
    )
    if per_s * span_s <= MAX_ARRIVALS:
        return None
    return f"more than {MAX_ARRIVALS} requests in one part of the run"


def _rate(cls: LoadClass, per_s: float, load: float) -> float:
    if cls.arrivals.kind == "burst":
        return max(1.0, cls.arrivals.size * load) / cls.arrivals.every_s
    return per_s * load


def _trace_text(path: str) -> str:
    """A trace as the only class of a scenario, at a load that most targets bear."""
    return (
        f"title = {json.dumps(f'The trace {Path(path).name}')}\n"
        '[[class]]\nname = "trace"\nclients = 8\n'
        f'arrivals = {{ kind = "trace", share = 0.7, file = {json.dumps(path)} }}\n'
    )


def _unreadable(message: str) -> ConfigError:
    return ConfigError([ConfigProblem("file", message)])


def check_scenario(text: str) -> Scenario:
    """The scenario that `text` (TOML) describes. Raises ConfigError with every problem there is."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _unreadable(f"not TOML: {detail[:300]}") from error
    reader = Reader()
    scenario = reader.table(Scenario, document, _PREFIX)
    _contradictions(reader, document)
    return _sound(reader, scenario)


def _sound(reader: Reader, scenario: Scenario | None) -> Scenario:
    if reader.problems:
        raise ConfigError(
            [ConfigProblem(p.path.removeprefix(f"{_PREFIX}."), p.message) for p in reader.problems]
        )
    assert scenario is not None
    return scenario


def _contradictions(reader: Reader, document: dict[str, Any]) -> None:
    """What no key alone can show, in whatever is well-typed; the rest is as if it were not there.

    Each place is told once: what is ill-typed has been.
    """
    raw = document.get("class")
    tables = raw[:_MAX_CLASSES] if isinstance(raw, list) else []
    lenient = Reader()
    base = lenient.table(Scenario, document | {"class": []}, _PREFIX)
    assert base is not None
    places: list[int] = []
    classes: list[LoadClass] = []
    for i, table in enumerate(tables):
        path = f"{_PREFIX}.class[{i}]"
        if not isinstance(table, dict):
            continue
        # A class whose name is no name is judged all the same.
        named = table if f"{path}.name" not in reader.bad else table | {"name": f"unnamed-{i}"}
        cls = lenient.table(LoadClass, named, path)
        assert cls is not None
        places.append(i)
        classes.append(cls)
        _class(reader, cls, table, path)
    if raw == []:
        reader.say(f"{_PREFIX}.class", "a scenario has at least one [[class]]")
    scenario = structs.replace(base, classes=tuple(classes))
    names = [cls.name for cls in classes]
    _lists(reader, scenario, names)
    for place, (i, name) in enumerate(zip(places, names, strict=True)):
        if name in names[:place]:
            path = f"{_PREFIX}.class[{i}].name"
            reader.say(path, f'"{name}" is the name of an earlier class')
    _times(reader, scenario, places)


def _class(reader: Reader, cls: LoadClass, table: dict[str, Any], path: str) -> None:
    """`table` is the class as it was written: a key that was left out is no mistake."""
    _arrivals(reader, cls, path)
    _belonging(reader, table, f"{path}.arrivals", _ARRIVALS_KINDS, [cls.arrivals.kind])
    for key in ("prompt", "output"):
        lengths: Lengths = getattr(cls, key)
        if cls.arrivals.kind == "trace":
            _of_trace(reader, table.get(key), f"{path}.{key}")
            continue
        _lengths(reader, lengths, f"{path}.{key}")
        _belonging(reader, table, f"{path}.{key}", _LENGTHS_KINDS, [lengths.kind])
    _belonging(reader, table, f"{path}.retry", _RETRY_KINDS, [cls.retry.kind])
    if cls.leave is not None:
        _belonging(reader, table, f"{path}.leave", _LEAVE_PHASES, cls.leave.phases, "phase")
    if cls.cut and cls.arrivals.share is not None:
        reader.say(f"{path}.cut", "what is measured by how fast it finishes cannot be cut")


def _belonging(
    reader: Reader,
    table: dict[str, Any],
    path: str,
    owners: Mapping[str, Sequence[str]],
    chosen: Sequence[str],
    what: str = "kind",
) -> None:
    """Tell of keys that nothing of what was `chosen` reads."""
    key = path.rpartition(".")[2]
    given = table.get(key)
    if not isinstance(given, dict) or _ill_typed(reader, path):
        return
    for name, kinds in owners.items():
        if given.get(name, NONE_WORD) != NONE_WORD and not set(kinds) & set(chosen):
            listed = " or ".join(f'{what} = "{kind}"' for kind in kinds)
            reader.say(f"{path}.{name}", f"`{name}` belongs to {listed}")


def _of_trace(reader: Reader, given: object, path: str) -> None:
    for name in given if isinstance(given, dict) else ():
        if name == "kind" or name in _LENGTHS_KINDS:
            reader.say(f"{path}.{name}", "the trace says how long each is; only `max_tok` cuts it")


def _ill_typed(reader: Reader, path: str) -> bool:
    """Whether a table has a mistake already: what it chooses is then not known."""
    return any(bad == path or bad.startswith(f"{path}.") for bad in reader.bad)


def _times(reader: Reader, scenario: Scenario, places: Sequence[int] | None = None) -> None:
    """What depends on how long it lasts. `places` are the numbers of the classes in the file."""
    if f"{_PREFIX}.duration_s" in reader.bad:
        return
    for i, cls in zip(places or range(len(scenario.classes)), scenario.classes, strict=True):
        path = f"{_PREFIX}.class[{i}]"
        if cls.start_s >= scenario.duration_s:
            reader.say(f"{path}.start_s", f"after the end of the window, {scenario.duration_s:g} s")
        rates = {cls.name: cls.arrivals.rate_per_s or 0.0}
        if text := excess(structs.replace(scenario, classes=(cls,)), rates):
            reader.say(f"{path}.arrivals", text)
            return
    rates = {cls.name: cls.arrivals.rate_per_s or 0.0 for cls in scenario.classes}
    if text := excess(scenario, rates):
        reader.say(f"{_PREFIX}.class", text)


def _lists(reader: Reader, scenario: Scenario, names: list[str]) -> None:
    for key, values in (("loads", scenario.loads), ("isolate", scenario.isolate)):
        for i, value in enumerate(values):
            if value in values[:i]:
                reader.say(f"{_PREFIX}.{key}[{i}]", f"{show(value)} is there already")
    if any(bad.startswith(f"{_PREFIX}.class") and bad.endswith(".name") for bad in reader.bad):
        return  # a name that is mistyped is not missing
    for i, name in enumerate(scenario.isolate):
        if name not in names:
            known = f"there are {', '.join(names)}{nearest(name, names)}"
            reader.say(f"{_PREFIX}.isolate[{i}]", f"there is no such class; {known}")


def _arrivals(reader: Reader, cls: LoadClass, where: str) -> None:
    arrivals, path = cls.arrivals, f"{where}.arrivals"
    if _ill_typed(reader, path):
        return
    if arrivals.kind == "burst":
        for key in ("rate_per_s", "share"):
            if getattr(arrivals, key) is not None:
                reader.say(f"{path}.{key}", "a burst has size and every_s instead")
        return
    if (arrivals.kind == "trace") is (arrivals.file is None):
        reader.say(f"{path}.file", 'kind = "trace" has one, and nothing else has')
    elif arrivals.file is not None:
        _trace(reader, arrivals.file, f"{path}.file")
    if (arrivals.rate_per_s is None) == (arrivals.share is None):
        reader.say(path, "give one of rate_per_s and share")


def _trace(reader: Reader, path: str, where: str) -> None:
    try:
        read_trace(path)
    except TraceError as error:
        for problem in str(error).splitlines():
            reader.say(where, f"{show(path)}: {problem}")


def _lengths(reader: Reader, lengths: Lengths, path: str) -> None:
    if _ill_typed(reader, path):
        return
    needed = {"uniform": ["low_tok", "high_tok"], "lognormal": ["p50_tok", "p95_tok"]}
    keys = needed.get(lengths.kind, [])
    values: list[int | None] = [getattr(lengths, key) for key in keys]
    for key, value in zip(keys, values, strict=True):
        if value is None:
            reader.say(f"{path}.{key}", f'missing; kind = "{lengths.kind}" needs it')
    given = [value for value in values if value is not None]
    if len(given) > 1 and given != sorted(given):
        reader.say(f"{path}.{keys[0]}", f"{given[0]} is above {keys[1]}, {given[1]}")
