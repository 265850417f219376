"""What both ends of a connection share: how far it has come, its frame, its open exchanges."""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from msgspec import msgpack

from onegate.protocol.errors import LocalProtocolError
from onegate.protocol.exchange import State
from onegate.protocol.framing import FrameReader
from onegate.protocol.messages import ClientMessage, DaemonMessage, Failed, Hello, Welcome


class Stage(Enum):
    """How far a connection has come, seen from either end."""

    NEW = auto()
    GREETED = auto()  # there was a Hello
    OPEN = auto()  # there was a Welcome
    BROKEN = auto()  # the daemon broke the protocol, and its client cannot follow it any more
    OVER = auto()  # a Failed without id was the last message


# What moves a connection. Requests and answers move their own exchanges; see `exchange`.
STAGES: Mapping[tuple[Stage, type], Stage] = MappingProxyType(
    {
        (Stage.NEW, Hello): Stage.GREETED,
        (Stage.GREETED, Welcome): Stage.OPEN,
        (Stage.NEW, Failed): Stage.OVER,
        (Stage.GREETED, Failed): Stage.OVER,
        (Stage.OPEN, Failed): Stage.OVER,
    }
)

_ENCODER: Final = msgpack.Encoder()


class Connection:
    """What both ends share: the frame being received, and the exchanges that are open."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._reader = FrameReader(max_frame_bytes)
        self._stage = Stage.NEW
        self._live: dict[int, tuple[type[ClientMessage], State]] = {}

    @property
    def stage(self) -> Stage:
        """How far the connection has come."""
        return self._stage

    @property
    def incomplete(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._reader.incomplete

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished frame that are held."""
        return self._reader.buffered_bytes

    @property
    def frames(self) -> int:
        """Frames completed so far; with `incomplete` it tells when a frame's first byte came."""
        return self._reader.frames

    @property
    def live(self) -> int:
        """Requests that have an answer to come."""
        return len(self._live)

    def is_live(self, request_id: int) -> bool:
        """Whether that id is taken."""
        return request_id in self._live

    def _forget_frame(self) -> None:
        """The stream cannot be followed: what was held of a frame is of no use any more."""
        self._reader = FrameReader(self._max_frame_bytes)

    @staticmethod
    def _encode(message: ClientMessage | DaemonMessage) -> bytes:
        try:
            return _ENCODER.encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            # JSON schemas and tool parameters are a caller's own objects, and may hold anything.
            raise LocalProtocolError(f"a message cannot be encoded: {error}") from error
