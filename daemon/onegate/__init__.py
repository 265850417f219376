"""onegate: the only gate between local programs and the text-generation engine.

    from onegate import Client

    with Client() as gate:
        print(gate.generate("Why is the sky blue?", max_tokens=64).text)

Names are loaded when they are asked for: the blocking client brings no event loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onegate.client.aio import AsyncClient, AsyncStream
    from onegate.client.errors import (
        Failed,
        InvalidRequest,
        NotPermitted,
        OnegateError,
        ProtocolError,
        Rejected,
        RequestError,
        Unavailable,
        Unsupported,
        WrongModel,
    )
    from onegate.client.reply import Reply
    from onegate.client.sync import Client, Stream

__version__ = "0.1.0"

_ERRORS = (
    "Failed",
    "InvalidRequest",
    "NotPermitted",
    "OnegateError",
    "ProtocolError",
    "Rejected",
    "RequestError",
    "Unavailable",
    "Unsupported",
    "WrongModel",
)
_HOME = {
    "AsyncClient": "aio",
    "AsyncStream": "aio",
    "Client": "sync",
    "Reply": "reply",
    "Stream": "sync",
} | dict.fromkeys(_ERRORS, "errors")

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "Client",
    "Failed",
    "InvalidRequest",
    "NotPermitted",
    "OnegateError",
    "ProtocolError",
    "Rejected",
    "Reply",
    "RequestError",
    "Stream",
    "Unavailable",
    "Unsupported",
    "WrongModel",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'onegate' has no attribute {name!r}")
    return getattr(import_module(f"onegate.client.{_HOME[name]}"), name)
