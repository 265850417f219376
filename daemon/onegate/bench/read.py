"""From a TOML file, or the name of a shipped one, to a checked `Scenario`."""

import json
import tomllib
from importlib.resources import files
from pathlib import Path

from onegate.bench.scenario import Lengths, LoadClass, Scenario
from onegate.bench.traces import TraceError, read_trace
from onegate.config.model import ConfigError, ConfigProblem
from onegate.config.read import Reader, nearest, show

SUFFIX = ".toml"
TRACE = "trace:"
MAX_SCENARIO_BYTES = 1024 * 1024
# A schedule is held in memory; far above what one machine can send.
MAX_ARRIVALS = 2_000_000
_PREFIX = "scenario"


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
        with Path(name).open("rb") as file:
            data = file.read(MAX_SCENARIO_BYTES + 1)
    except OSError as error:
        raise _unreadable(f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_SCENARIO_BYTES:
        raise _unreadable(f"longer than {MAX_SCENARIO_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _unreadable("not UTF-8") from error
    return check_scenario(text)


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
    if scenario is not None:
        _contradictions(reader, scenario)
    if reader.problems:
        raise ConfigError(
            [ConfigProblem(p.path.removeprefix(f"{_PREFIX}."), p.message) for p in reader.problems]
        )
    assert scenario is not None
    return scenario


def _contradictions(reader: Reader, scenario: Scenario) -> None:
    """What no key alone can show."""
    if not scenario.classes:
        reader.say(f"{_PREFIX}.class", "a scenario has at least one [[class]]")
    names = [cls.name for cls in scenario.classes]
    for i, cls in enumerate(scenario.classes):
        path = f"{_PREFIX}.class[{i}]"
        if cls.name in names[:i]:
            reader.say(f"{path}.name", f'"{cls.name}" is the name of an earlier class')
        _arrivals(reader, cls, f"{path}.arrivals", scenario)
        for key in ("prompt", "output"):
            _lengths(reader, getattr(cls, key), f"{path}.{key}")
        if cls.cut and cls.arrivals.share is not None:
            reader.say(f"{path}.cut", "what is measured by how fast it finishes cannot be cut")
        if cls.start_s >= scenario.duration_s:
            reader.say(f"{path}.start_s", f"after the end of the window, {scenario.duration_s:g} s")
    for i, name in enumerate(scenario.isolate):
        if name not in names:
            known = f"there are {', '.join(names)}{nearest(name, names)}"
            reader.say(f"{_PREFIX}.isolate[{i}]", f"there is no such class; {known}")


def _arrivals(reader: Reader, cls: LoadClass, path: str, scenario: Scenario) -> None:
    arrivals = cls.arrivals
    if arrivals.kind == "burst":
        for key in ("rate_per_s", "share"):
            if getattr(arrivals, key) is not None:
                reader.say(f"{path}.{key}", "a burst has size and every_s instead")
        per_s = arrivals.size / arrivals.every_s
    else:
        if (arrivals.kind == "trace") is (arrivals.file is None):
            reader.say(f"{path}.file", 'kind = "trace" has one, and nothing else has')
        elif arrivals.file is not None:
            _trace(reader, arrivals.file, f"{path}.file")
        if (arrivals.rate_per_s is None) == (arrivals.share is None):
            reader.say(path, "give one of rate_per_s and share")
        per_s = arrivals.rate_per_s or 0.0
    span_s = scenario.duration_s + scenario.warmup_s
    if per_s * span_s * max(scenario.loads) > MAX_ARRIVALS:
        reader.say(path, f"more than {MAX_ARRIVALS} requests in one part of the run")


def _trace(reader: Reader, path: str, where: str) -> None:
    try:
        read_trace(path)
    except TraceError as error:
        for problem in str(error).splitlines():
            reader.say(where, f"{show(path)}: {problem}")


def _lengths(reader: Reader, lengths: Lengths, path: str) -> None:
    needed = {"uniform": ["low_tok", "high_tok"], "lognormal": ["p50_tok", "p95_tok"]}
    keys = needed.get(lengths.kind, [])
    values: list[int | None] = [getattr(lengths, key) for key in keys]
    for key, value in zip(keys, values, strict=True):
        if value is None:
            reader.say(f"{path}.{key}", f'missing; kind = "{lengths.kind}" needs it')
    given = [value for value in values if value is not None]
    if len(given) > 1 and given != sorted(given):
        reader.say(f"{path}.{keys[0]}", f"{given[0]} is above {keys[1]}, {given[1]}")
