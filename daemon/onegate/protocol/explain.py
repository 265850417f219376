"""From the codec's complaint to a sentence that says which field is wrong and what it takes.

The codec quotes values; a value may be somebody's prompt, and errors travel into logs. So values
are left out, and the choices that there were are said instead.
"""

import re
from typing import Any, Final

from msgspec import inspect

MAX_QUOTED: Final = 64

_PLACE: Final = re.compile(
    r"^(?P<what>.*?)(?: - at `(?:key` in `)?\$(?P<path>[^`]*)`)?$", re.DOTALL
)
_STEP: Final = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


_NIL: Final = re.compile(r"(?<=[`| ])(?:null|None)(?=[`| ])")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def quoted(name: str) -> str:
    """`name` in quotes, in ASCII, cut to 64 characters: fit to be said in an error."""
    return ascii(name if len(name) <= MAX_QUOTED else name[:MAX_QUOTED] + "...")


def _step_of(name: str) -> str:
    """A stranger's name as a step of a path: as it is only where it can be no more than a name."""
    return name if _PLAIN.match(name) else quoted(name)


def explain(kind: type, field: str, complaint: str) -> tuple[str, str]:
    """(path, sentence) for the codec's `complaint` about `field` of message type `kind`."""
    place = _PLACE.match(complaint)
    what, below = (place["what"], place["path"] or "") if place else (complaint, "")
    path = field + below
    nodes = _types_at(kind, path)
    if what.startswith(("Invalid enum value", "Invalid value")):
        return path, f"must be one of: {', '.join(_choices(kind, path, nodes))}"
    if what.startswith("Object contains unknown field"):
        name = what.removeprefix("Object contains unknown field ").strip("`")
        known = sorted({f.encode_name for n in nodes for f in _fields(n)})
        return f"{path}.{_step_of(name)}", f"is no field of {path}: it has {', '.join(known)}"
    if what.startswith("Object missing required field"):
        return f"{path}.{what.rsplit(' ', 1)[-1].strip('`')}", "is missing"
    if what.startswith("Expected"):
        return path, f"is wrong: {what[0].lower()}{_NIL.sub('nil', what[1:])}"
    return path, "cannot be read"


def _fields(node: inspect.Type) -> tuple[inspect.Field, ...]:
    return node.fields if isinstance(node, inspect.StructType) else ()


def _types_at(kind: type, path: str) -> list[inspect.Type]:
    nodes: list[inspect.Type] = [inspect.type_info(kind)]
    for step in _STEP.findall(path):
        nodes = [below for node in nodes for below in _step(node, step)]
    return nodes


def _step(node: inspect.Type, step: str) -> list[inspect.Type]:
    if step.startswith("["):
        below = node.item_type if isinstance(node, inspect.ListType) else None
        return [] if below is None else _flat(below)
    return [t for field in _fields(node) if field.encode_name == step for t in _flat(field.type)]


def _flat(node: inspect.Type) -> list[inspect.Type]:
    """The alternatives of a type, without their descriptions."""
    if isinstance(node, inspect.Metadata):
        return _flat(node.type)
    if isinstance(node, inspect.UnionType):
        return [t for member in node.types for t in _flat(member)]
    return [node]


def _choices(kind: type, path: str, nodes: list[inspect.Type]) -> list[str]:
    choices: list[Any] = [v for n in nodes if isinstance(n, inspect.LiteralType) for v in n.values]
    if not choices:  # not a field but the tag that tells the alternatives apart
        above, _, tag_field = path.rpartition(".")
        choices = [
            n.tag
            for n in _types_at(kind, above)
            if isinstance(n, inspect.StructType) and n.tag_field == tag_field
        ]
    return [str(choice) for choice in choices]
