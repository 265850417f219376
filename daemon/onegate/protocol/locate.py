"""Where in a field the text is that is not UTF-8: the one mistake that the codec does not place.

The field is taken apart along its type, one level at a time, only where it failed and never into
more pieces than a good one has: what is looked for costs no more than what was sent.
"""

from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, msgpack

# What decoding raises. Older codecs let bad UTF-8 and map keys that cannot be keys through as the
# interpreter's own errors. Bottomless nesting, a RecursionError, is none of them.
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, TypeError)
# No message has half as many fields; checked before a map becomes a dict.
MAX_FIELDS: Final = 64

_FIELDS: Final = msgpack.Decoder(dict[str, Raw])
_ITEMS: Final = msgpack.Decoder(list[Raw])


def not_utf8(error: Exception) -> bool:
    """Whether that is what decoding has met."""
    return str(error).startswith(("Invalid UTF-8", "'utf-8' codec"))


def n_fields(payload: bytes | memoryview) -> int | None:
    """How many fields the map in `payload` says that it has; None where it is no map."""
    first = payload[0]
    if 0x80 <= first <= 0x8F:
        return first & 0x0F
    if first == 0xDE:
        return int.from_bytes(payload[1:3], "big")
    if first == 0xDF:
        return int.from_bytes(payload[1:5], "big")
    return None


@cache
def decoder(hint: Any) -> msgpack.Decoder[Any]:
    """The decoder of a type, constraints included."""
    return msgpack.Decoder(hint)


def bad_text(hint: Any, raw: Raw) -> str:
    """The path, below a value of type `hint`, of the first text that is not UTF-8.

    Empty where it is the value itself, or cannot be said: a name of a field, or inside of JSON.
    """
    try:
        parts = list(_parts(hint, raw))
    except UNREADABLE:
        return ""
    for step, below, part in parts:
        try:
            decoder(below).decode(part)
        except UNREADABLE as error:
            if not_utf8(error):
                return step + bad_text(below, part)
    return ""


def _parts(hint: Any, raw: Raw) -> Iterator[tuple[str, Any, Raw]]:
    """Each part of a value that has a type of its own, as (step, type, bytes)."""
    size = n_fields(memoryview(raw))
    for member in _members(hint):
        if size is None and get_origin(member) is list:
            (below,) = get_args(member)
            # The codec minds the length of a list before its items, so this one is not too long.
            for i, part in enumerate(_ITEMS.decode(raw)):
                yield f"[{i}]", below, part
        elif size is not None and size <= MAX_FIELDS and hasattr(member, "__struct_fields__"):
            hints = _fields_of(member)
            for name, part in _FIELDS.decode(raw).items():
                if name in hints:
                    yield f".{name}", hints[name], part


def _members(hint: Any) -> list[Any]:
    """The alternatives of a type, without their descriptions."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _members(get_args(hint)[0])
    if origin in (Union, UnionType):
        return [member for inner in get_args(hint) for member in _members(inner)]
    return [] if hint is NoneType else [hint]


@cache
def _fields_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of a struct's fields by their names on the wire, its tag included."""
    hints = get_type_hints(kind, include_extras=True)
    found = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}
    tag_field = kind.__struct_config__.tag_field
    return found if tag_field is None else found | {tag_field: str}
