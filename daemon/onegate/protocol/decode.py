"""From one frame of a client to a message, or to what is wrong with it.

A good message costs one typed decode. Only what fails is taken apart, to tell an offence that ends
the connection from a mistake inside one request. Nothing but RemoteProtocolError is raised, and no
text from the frame reaches an error but field names and tags, escaped and cut.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, get_args, get_type_hints

import msgspec
from msgspec import msgpack

from onegate.protocol.content import RequestId
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.explain import explain, quoted
from onegate.protocol.locate import MAX_FIELDS, UNREADABLE, bad_text, decoder, n_fields, not_utf8
from onegate.protocol.messages import ClientMessage, Hello
from onegate.protocol.validate import validate

# A byte of msgpack can cost a hundred in memory where any JSON is taken (an empty list), so the
# two fields that hold JSON have bounds of their own, below that of the frame.
JSON_BYTES: Mapping[str, int] = MappingProxyType({"tools": 512 * 1024, "params": 256 * 1024})
_WEIGH_ABOVE_BYTES: Final = 64 * 1024  # what a frame this small can cost is no danger


@dataclass(frozen=True, slots=True)
class Invalid:
    """A request whose id could be read and whose inside is wrong.

    `path` is the offending field, such as `params.stop[2]`; `kind` the request's type.
    """

    id: int
    kind: type[ClientMessage]
    path: str
    message: str


def decode_request(payload: bytes) -> ClientMessage | Invalid:
    """The message in `payload`; raises RemoteProtocolError when the connection must end."""
    _look_at_head(payload)
    fields = _split(payload) if len(payload) > _WEIGH_ABOVE_BYTES else {}
    if any(
        name in fields and len(memoryview(fields[name])) > most for name, most in JSON_BYTES.items()
    ):
        return _classify(fields)
    try:
        message = _DECODER.decode(payload)
    except RecursionError:
        raise RemoteProtocolError("a message is nested too deeply") from None
    except UNREADABLE:
        return _classify(_split(payload))
    problem = validate(message)
    if problem is None:
        return message
    path, sentence = problem
    if isinstance(message, Hello):
        raise RemoteProtocolError(f"the hello is wrong: {path} {sentence}")
    return Invalid(message.id, type(message), path, sentence)


_DECODER: Final = msgpack.Decoder(ClientMessage)
_SPLITTER: Final = msgpack.Decoder(dict[str, msgspec.Raw])
_TAG: Final = msgpack.Decoder(str)
_ID: Final = msgpack.Decoder(RequestId)
KINDS: Mapping[str, type[ClientMessage]] = MappingProxyType(
    {str(kind.__struct_config__.tag): kind for kind in get_args(ClientMessage)}
)


def _look_at_head(payload: bytes) -> None:
    """Refuse what is no map, and maps so large that taking them apart would be the attack."""
    size = n_fields(payload)
    if size is None:
        raise RemoteProtocolError("a message must be a msgpack map")
    if size > MAX_FIELDS:
        raise RemoteProtocolError(f"a message of {size} fields: none has that many")


def _split(payload: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _SPLITTER.decode(payload)
    except RecursionError:
        raise RemoteProtocolError("a message is nested too deeply") from None
    except UNREADABLE as error:
        raise RemoteProtocolError(
            f"a message is no msgpack map with string keys: {error}"
        ) from None


def _classify(fields: dict[str, msgspec.Raw]) -> Invalid:
    """What is wrong with a message that does not decode; raises where that ends the connection."""
    kind = KINDS[_tag(fields)]
    tag, names = kind.__struct_config__.tag, kind.__struct_encode_fields__
    for name in fields:
        if name != "t" and name not in names:
            raise RemoteProtocolError(f"{tag} has no field {quoted(name)}")
    if kind is Hello:
        path, sentence = _first_problem(kind, fields)
        raise RemoteProtocolError(f"the hello is wrong: {path} {sentence}")
    try:
        request_id = _ID.decode(fields["id"])
    except KeyError:
        raise RemoteProtocolError(f"{tag} without an id") from None
    except UNREADABLE:
        raise RemoteProtocolError(f"the id of {tag} is no integer from 0 to 2^32-1") from None
    return Invalid(request_id, kind, *_first_problem(kind, fields))


def _tag(fields: dict[str, msgspec.Raw]) -> str:
    if "t" not in fields:
        raise RemoteProtocolError("a message without its tag, the field t")
    try:
        tag = _TAG.decode(fields["t"])
    except UNREADABLE:
        raise RemoteProtocolError("the tag, field t, must be a string") from None
    if tag not in KINDS:
        raise RemoteProtocolError(f"there is no message {quoted(tag)}")
    return tag


def _first_problem(kind: type[ClientMessage], fields: dict[str, msgspec.Raw]) -> tuple[str, str]:
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name not in fields:
            if field.required:
                return name, "is missing"
            continue
        n_bytes, most = len(memoryview(fields[name])), JSON_BYTES.get(name)
        if most is not None and n_bytes > most:
            return name, f"is {n_bytes} bytes long: {most} are taken"
        hint = _hints(kind)[field.name]
        try:
            decoder(hint).decode(fields[name])
        except UNREADABLE as error:
            if not_utf8(error):
                return name + bad_text(hint, fields[name]), "holds text that is not UTF-8"
            return explain(kind, name, str(error))
    # A duplicated tag, for one: typed decoding met a mistake that no single field has.
    raise RemoteProtocolError(f"{kind.__struct_config__.tag} cannot be read")


@cache
def _hints(kind: type[ClientMessage]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
