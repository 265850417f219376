"""From text, file and environment to a checked `Config`."""

import os
import stat
import tomllib
from collections.abc import Mapping

from msgspec import Struct, ValidationError, convert

from onegate.config.checks import contradictions
from onegate.config.classes import SHIPPED_CLASSES, ClassConfig
from onegate.config.engine import EngineConfig
from onegate.config.gate import GateConfig
from onegate.config.log import LogConfig
from onegate.config.model import Config, ConfigError, ConfigProblem
from onegate.config.read import Reader, nearest, show
from onegate.config.rules import Grant, Hint, shipped_grants
from onegate.config.shape import shapes
from onegate.config.units import MAX_SOCKET_PATH_BYTES, Name
from onegate.config.usage import UsageConfig

CONFIG_PATH = "/etc/onegate/onegate.toml"
SYSTEM_SOCKET_PATH = "/run/onegate/onegate.sock"

# Far above any real file; a wrong path may name a disk image.
MAX_CONFIG_BYTES = 1024 * 1024
MAX_CLASSES = 16
MAX_RULES = 256

_TOP = ("engine", "gate", "usage", "log", "class", "grant", "hint")


class _Named(Struct):
    name: Name


def check(text: str, *, own_uid: int | None = None) -> Config:
    """The configuration that `text` (TOML) describes, everything in it optional.

    `own_uid`: see `rules.shipped_grants`. Raises ConfigError with every problem there is.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # An integer of thousands of digits is a plain ValueError, deep nesting a RecursionError.
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError([ConfigProblem("file", f"not TOML: {detail[:300]}")]) from error
    reader = Reader()
    for key in document:
        if key not in _TOP:
            known = f"known are {', '.join(_TOP)}{nearest(key, list(_TOP))}"
            reader.say(show(key)[1:-1], f"unknown table; {known}")
    classes, names = _classes(reader, document.get("class", []))
    config = Config(
        engine=reader.table(EngineConfig, document.get("engine", {}), "engine") or EngineConfig(),
        gate=reader.table(GateConfig, document.get("gate", {}), "gate") or GateConfig(),
        usage=reader.table(UsageConfig, document.get("usage", {}), "usage") or UsageConfig(),
        log=reader.table(LogConfig, document.get("log", {}), "log") or LogConfig(),
        classes=tuple(sorted(classes, key=lambda cls: cls.rank)),
        grants=_grants(reader, document.get("grant", []), names),
        hints=_hints(reader, document.get("hint", []), names),
        shipped_grants=shipped_grants(own_uid),
    )
    problems = reader.problems + contradictions(config, reader.bad)
    if problems:
        raise ConfigError(problems)
    return config


def _classes(reader: Reader, value: object) -> tuple[list[ClassConfig], list[str]]:
    """The classes that can be built, and every name that was declared, buildable or not."""
    found = {cls.name: cls for cls in SHIPPED_CLASSES}
    names = list(found)
    seen: set[str] = set()
    for i, item in enumerate(reader.array(value, "class", MAX_CLASSES)):
        name = _class_name(item)
        if name in seen:
            reader.say(f"class[{i}].name", f'"{name}" has an entry already')
            continue
        path = f"class[{i}]" if name is None else f"class.{name}"
        cls = reader.table(ClassConfig, item, path, None if name is None else found.get(name))
        if name is not None:
            seen.add(name)
            if name not in names:
                names.append(name)
            if cls is not None:
                found[name] = cls
    return list(found.values()), names


def _class_name(item: object) -> str | None:
    try:
        return convert(item, _Named).name
    except ValidationError:
        return None  # the reader says what is wrong with it


def _grants(reader: Reader, value: object, classes: list[str]) -> tuple[Grant, ...]:
    found = []
    for i, item in enumerate(reader.array(value, "grant", MAX_RULES)):
        path = f"grant[{i}]"
        before = len(reader.problems)
        grant = reader.table(Grant, item, path)
        if grant is None or len(reader.problems) > before:
            continue
        if not grant.conditions():
            reader.say(
                path, "matches everybody; state at least one of uid, gid, group, unit, slice"
            )
        if (grant.ceiling, grant.delegate, grant.admin) == (None, None, None):
            reader.say(path, "grants nothing; state at least one of ceiling, delegate, admin")
        _known_class(reader, f"{path}.ceiling", grant.ceiling, classes)
        found.append(grant)
    return tuple(found)


def _hints(reader: Reader, value: object, classes: list[str]) -> tuple[Hint, ...]:
    found = []
    for i, item in enumerate(reader.array(value, "hint", MAX_RULES)):
        path = f"hint[{i}]"
        before = len(reader.problems)
        hint = reader.table(Hint, item, path)
        if hint is None or len(reader.problems) > before:
            continue
        if not hint.conditions():
            reader.say(path, "matches everybody; state at least one of tty, unit, app")
        if hint.class_ is None:
            reader.say(f"{path}.class", f"missing; expected one of {', '.join(classes)}")
        _known_class(reader, f"{path}.class", hint.class_, classes)
        found.append(hint)
    return tuple(found)


def _known_class(reader: Reader, path: str, name: str | None, classes: list[str]) -> None:
    if name is not None and name not in classes:
        known = f"known are {', '.join(classes)}{nearest(name, classes)}"
        reader.say(path, f'no class is called "{name}"; {known}')


def load(path: str | None, *, environ: Mapping[str, str], own_uid: int | None = None) -> Config:
    """The configuration of a file: `path`, else ONEGATE_CONFIG, else the system's if there is one.

    A file that was named must be there. Raises ConfigError.
    """
    named = path or environ.get("ONEGATE_CONFIG")
    try:
        with open(named or CONFIG_PATH, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) and named != os.devnull:
                text = f"{named or CONFIG_PATH} is no regular file"
                raise ConfigError([ConfigProblem("file", text)])
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        if named is None and isinstance(error, FileNotFoundError):
            return check("", own_uid=own_uid)
        text = f"cannot read {named or CONFIG_PATH}: {error.strerror}"
        raise ConfigError([ConfigProblem("file", text)]) from error
    except ValueError as error:
        raise ConfigError([ConfigProblem("file", "its path holds a zero byte")]) from error
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError([ConfigProblem("file", f"longer than {MAX_CONFIG_BYTES} bytes")])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        at = f"byte {error.start} is not UTF-8, which TOML is written in"
        raise ConfigError([ConfigProblem("file", at)]) from error
    return check(text, own_uid=own_uid)


def _open_at_once(path: str, flags: int) -> int:
    """A pipe that nobody writes to opens too, instead of waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def socket_path(config: Config, *, environ: Mapping[str, str], uid: int) -> str:
    """Where the daemon listens when systemd gives it no socket.

    ONEGATE_SOCKET, else `gate.socket_path`, else the system's place for root and the user's own
    runtime directory for everybody else. Never a world-writable directory, where another user
    could be there first. Raises ConfigError for a path that no socket can have.
    """
    if override := environ.get("ONEGATE_SOCKET"):
        return _bindable("ONEGATE_SOCKET", override)
    if config.gate.socket_path is not None:
        return _bindable("gate.socket_path", config.gate.socket_path)
    if uid == 0:
        return SYSTEM_SOCKET_PATH
    for variable, below in (
        ("XDG_RUNTIME_DIR", ""),
        ("XDG_CACHE_HOME", "onegate"),
        ("HOME", ".cache/onegate"),
    ):
        # The base directory specification has relative values ignored.
        if (base := environ.get(variable, "")).startswith("/"):
            return _bindable(variable, os.path.join(base, below, "onegate.sock"))
    text = "neither XDG_RUNTIME_DIR nor HOME is set; say where to listen with ONEGATE_SOCKET"
    raise ConfigError([ConfigProblem("gate.socket_path", text)])


def _bindable(source: str, path: str) -> str:
    length = len(os.fsencode(path))
    if not path.startswith("/") or "\0" in path:
        raise ConfigError([ConfigProblem(source, f"expected an absolute path, got {show(path)}")])
    if length > MAX_SOCKET_PATH_BYTES:
        text = f"{length} bytes long; a socket's path has at most {MAX_SOCKET_PATH_BYTES}"
        raise ConfigError([ConfigProblem(source, text)])
    return path


def needs_restart(old: Config, new: Config) -> list[str]:
    """The changed keys that a reload cannot apply, as paths; the rest of `new` may be taken."""
    return [
        f"{table}.{key}"
        for table in ("engine", "gate", "usage", "log")
        for key, (field, shape) in shapes(type(getattr(new, table))).items()
        if shape.extra("restart")
        and getattr(getattr(old, table), field.name) != getattr(getattr(new, table), field.name)
    ]
