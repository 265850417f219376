"""Golden bytes: one `.json` for people and one `.bin` (a whole frame) per message and variant.

`ONEGATE_ACCEPT=1 pytest tests/wire` writes them anew. A change in a `.bin` that was committed is a
change of the wire, and needs a feature or a reason.
"""

import base64
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect, msgpack

from onegate.protocol.connection import ClientConnection, RequestReceived, ServerConnection
from onegate.protocol.features import KNOWN
from onegate.protocol.framing import FrameReader, frame
from onegate.protocol.messages import ClientMessage, DaemonMessage, Hello

GOLDEN = Path(__file__).parent / "golden"
ACCEPT = os.environ.get("ONEGATE_ACCEPT") == "1"
UNIONS: dict[str, Any] = {"client": ClientMessage, "daemon": DaemonMessage}
CASES = sorted(GOLDEN.glob("*/*.json"))

# Fields that have one possible value, which is therefore never written.
CONSTANT = {"ToolCall.type", "Tool.type", "ForcedTool.type"}


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@cache
def message_in(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes(), type=UNIONS[path.parent.name])


def plain(value: Any) -> Any:
    """What msgpack holds as JSON can say it: bytes in base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", CASES, ids=name)
def test_bytes_are_what_they_were(path: Path) -> None:
    data = frame(msgpack.encode(message_in(path)))
    if ACCEPT:
        path.with_suffix(".bin").write_bytes(data)
    assert path.with_suffix(".bin").read_bytes() == data


@pytest.mark.parametrize("path", CASES, ids=name)
def test_json_says_exactly_what_the_bytes_hold(path: Path) -> None:
    (payload,) = FrameReader(1 << 20).feed(path.with_suffix(".bin").read_bytes())
    held = plain(msgpack.decode(payload))
    if ACCEPT:
        text = json.dumps(held, indent=2, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8")) == held


@pytest.mark.parametrize("path", CASES, ids=name)
def test_bytes_are_read_as_the_message(path: Path) -> None:
    data = path.with_suffix(".bin").read_bytes()
    server, client = ServerConnection(built=KNOWN), ClientConnection()
    hello = client.send(Hello(features=sorted(KNOWN)))
    if path.parent.name == "daemon":
        (payload,) = FrameReader(1 << 20).feed(data)
        assert msgpack.decode(payload, type=DaemonMessage) == message_in(path)
    elif isinstance(message_in(path), Hello):
        (event,) = server.receive(data)
        assert event.message == message_in(path)
    else:
        server.receive(hello)
        assert server.receive(data) == [RequestReceived(message_in(path))]


def test_every_bin_has_its_json() -> None:
    assert {p.stem for p in GOLDEN.glob("*/*.bin")} <= {p.stem for p in CASES}


def structs_below(node: inspect.Type, found: dict[str, inspect.StructType]) -> None:
    match node:
        case inspect.StructType(cls=cls, fields=fields):
            if cls.__name__ not in found:
                found[cls.__name__] = node
                for field in fields:
                    structs_below(field.type, found)
        case inspect.UnionType(types=types):
            for inner in types:
                structs_below(inner, found)
        case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
            structs_below(inner, found)
        case inspect.Metadata(type=inner):
            structs_below(inner, found)


def said(value: Any, found: set[str]) -> None:
    """Adds each field of `value`, at any depth, that is written."""
    if isinstance(value, msgspec.Struct):
        found.add(type(value).__name__)
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            if field.required or inner != field.default:
                found.add(f"{type(value).__name__}.{field.encode_name}")
            said(inner, found)
    elif isinstance(value, list):
        for inner in value:
            said(inner, found)
    elif isinstance(value, dict):
        said(list(value.values()), found)


@pytest.mark.parametrize("side", UNIONS)
def test_every_field_of_every_message_is_in_some_golden(side: str) -> None:
    structs: dict[str, inspect.StructType] = {}
    for kind in get_args(UNIONS[side]):
        structs_below(inspect.type_info(kind), structs)
    needed = {f"{s}.{f.encode_name}" for s, node in structs.items() for f in node.fields}
    found: set[str] = set()
    for path in CASES:
        if path.parent.name == side:
            said(message_in(path), found)
    assert needed - found - CONSTANT == set()
    assert structs.keys() - found == set()
