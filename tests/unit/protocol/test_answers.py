"""What the daemon sends."""

from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from onegate.protocol.content import ToolCall
from onegate.protocol.enums import OpenEnum
from onegate.protocol.messages import DaemonMessage


def below(node: inspect.Type) -> list[inspect.Type]:
    """A type and all types in it."""
    inner: list[Any] = []
    match node:
        case inspect.StructType(fields=fields):
            inner = [field.type for field in fields]
        case inspect.UnionType(types=types):
            inner = list(types)
        case inspect.ListType(item_type=item):
            inner = [item]
        case inspect.DictType(value_type=value):
            inner = [value]
        case inspect.Metadata(type=plain):
            inner = [plain]
    return [node, *(found for t in inner for found in below(t))]


@pytest.mark.parametrize("kind", get_args(DaemonMessage), ids=lambda kind: kind.__name__)
def test_a_client_survives_a_newer_daemon(kind: type) -> None:
    """Unknown fields at any depth and unknown values of enumerations can be read."""
    for node in below(inspect.type_info(kind)):
        if isinstance(node, inspect.StructType) and not _fixed(node.cls):
            assert not node.cls.__struct_config__.forbid_unknown_fields, node.cls
        if isinstance(node, inspect.EnumType):
            assert issubclass(node.cls, OpenEnum), node.cls


def _fixed(cls: type[msgspec.Struct]) -> bool:
    # What a client sends back as it is, to a daemon that may be older.
    return cls is ToolCall or cls.__name__ == "FunctionCall"
