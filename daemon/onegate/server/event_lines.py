"""The lines of the event log: what was told to the admission core, and what it made of that.

Each line is one JSON object with its kind in `t`:

- `began`, the first line of all: `version` of this format, and `limits`, `classes` and `pools`,
  with which the core was made.
- `step`: an event that it was given at `now_ns` (of the monotonic clock), and its `effects`, in
  order. An event or effect is an object with its name in `t`, such as `class_closed`, and its
  fields by their own names.
- `lost`: here `count` steps are missing.
- `went_on`: the first line of a file that continues another, of the same name with `.1` at its end.

Given the events, a core that was made the same way gives the same effects. Nothing here is text of
a prompt or an answer; the core knows only their sizes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec

from onegate.admission.effects import Effect
from onegate.admission.events import Event
from onegate.admission.model import ClassSpec, GateLimits, PoolSpec

# To be raised when a reader of older lines would be wrong about newer ones.
VERSION = 1
EARLIER = ".1"
# The longest line is a shutdown's, which refuses thousands that wait.
MAX_LINE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Began:
    """With what the core was made."""

    limits: GateLimits
    classes: tuple[ClassSpec, ...]
    pools: tuple[PoolSpec, ...]


@dataclass(frozen=True, slots=True)
class WentOn:
    """What came before is in an earlier file, or in none any more."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the core."""

    now_ns: int
    event: Event
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """So many steps are missing here, and what follows can't be replayed."""

    count: int


Line = Began | WentOn | Step | Lost


def _names(union: Any) -> dict[str, type]:
    """The types of a union by their names in lower case: `class_closed`."""
    return {
        re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(union)
    }


_EVENTS, _EFFECTS = _names(Event), _names(Effect)
_NAME = {kind: name for names in (_EVENTS, _EFFECTS) for name, kind in names.items()}
# Looked up once: a busy daemon writes some thousand a second.
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _NAME}


def _tagged(value: Event | Effect) -> dict[str, Any]:
    kind = type(value)
    return {"t": _NAME[kind], **{name: getattr(value, name) for name in _FIELDS[kind]}}


def encode(line: Line) -> bytes:
    """The line with its end. Raises UnicodeError for a name that is no text."""
    made: dict[str, Any]
    match line:
        case Step(now_ns, event, effects):
            made = {"t": "step", "now_ns": now_ns, "event": _tagged(event)}
            made["effects"] = list(map(_tagged, effects))
        case Began(limits, classes, pools):
            made = {"t": "began", "version": VERSION}
            made |= {"limits": limits, "classes": classes, "pools": pools}
        case WentOn():
            made = {"t": "went_on", "version": VERSION}
        case Lost(count):
            made = {"t": "lost", "count": count}
    return msgspec.json.encode(made) + b"\n"


def decode(text: bytes) -> Line:
    """The line of that text. Raises ValueError for what is none, or of another version."""
    try:
        made = msgspec.json.decode(text, type=dict[str, Any])
        if (version := made.pop("version", VERSION)) != VERSION:
            raise ValueError(f"lines of version {version}, and {VERSION} is the one known here")
        match made.pop("t"):
            case "step":
                effects = tuple(_untagged(effect, _EFFECTS) for effect in made["effects"])
                return Step(int(made["now_ns"]), _untagged(made["event"], _EVENTS), effects)
            case "began":
                return msgspec.convert(made, Began)
            case "went_on":
                return WentOn()
            case "lost":
                return msgspec.convert(made, Lost)
            case other:
                raise ValueError(f"no line is called {str(other)[:40]!a}")
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no line of an event log: {error!r}") from error


def _untagged(made: dict[str, Any], names: dict[str, type]) -> Any:
    return msgspec.convert(made, names[made.pop("t")])


def read(path: str) -> Iterator[Line]:
    """The lines of a log, and before them those of the earlier file if it continues that.

    A last line without an end was cut off and is left out. Raises ValueError with the place of a
    line that is none, and OSError.
    """
    with Path(path).open("rb") as file:
        continued = file.readline(MAX_LINE_BYTES) == encode(WentOn())
    for place in (path + EARLIER, path) if continued else (path,):
        with Path(place).open("rb") as file:
            lines = iter(partial(file.readline, MAX_LINE_BYTES), b"")
            for number, text in enumerate(lines, 1):
                if not text.endswith(b"\n"):
                    if len(text) == MAX_LINE_BYTES:
                        raise ValueError(
                            f"{place}:{number}: no line of an event log: it is endless"
                        )
                    break
                try:
                    yield decode(text)
                except ValueError as error:
                    raise ValueError(f"{place}:{number}: {error}") from error
