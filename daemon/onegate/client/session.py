"""One connection, without I/O: who waits for which answer, and how the connection ended.

Bytes go in by `feed` and `eof`; messages come out by `take`, per request. Frames for a request that
nobody waits for any more are discarded, so that a cancelled one leaves the connection usable.
"""

from collections import deque
from typing import Final

import msgspec

from onegate.client.errors import (
    InvalidRequest,
    OnegateError,
    ProtocolError,
    Unavailable,
    error_of,
    invalid,
)
from onegate.protocol import messages as m
from onegate.protocol.connection import ClientConnection
from onegate.protocol.content import U32_MAX
from onegate.protocol.errors import LocalProtocolError, Phase, Reason, RemoteProtocolError
from onegate.protocol.framing import DEFAULT_MAX_FRAME_BYTES

# The mailbox of `Welcome` and of failures during the handshake; request ids are never negative.
HANDSHAKE: Final = -1

# What the daemon sends in one frame is not bounded by what it accepts; embeddings of a long list
# are the largest answer there is. A client trusts its daemon further than the daemon its clients.
MAX_ANSWER_BYTES: Final = 16 * DEFAULT_MAX_FRAME_BYTES


class Session:
    """State of one connection. Its owner feeds it, and writes what `encode` returns."""

    def __init__(self) -> None:
        self._wire = ClientConnection(max_frame_bytes=MAX_ANSWER_BYTES)
        self._mail: dict[int, deque[m.DaemonMessage]] = {HANDSHAKE: deque()}
        self._next_id = 1
        self._end: Unavailable | ProtocolError | m.Failed | None = None
        self.max_frame_bytes = DEFAULT_MAX_FRAME_BYTES

    @property
    def live(self) -> int:
        """Requests whose answers are still waited for."""
        return len(self._mail) - (HANDSHAKE in self._mail)

    @property
    def ended(self) -> OnegateError | None:
        """Why nothing can be asked here any more, as a new exception each time; None while open."""
        match self._end:
            case None:
                return None
            case m.Failed():
                return error_of(self._end, started=False)
            case _:
                return type(self._end)(*self._end.args)

    def begin(self) -> int:
        """A request id that is free, with a mailbox."""
        # A cancelled request keeps its id until the daemon has said that it is over.
        while self._next_id in self._mail or self._wire.is_live(self._next_id):
            self._next_id = self._next_id % U32_MAX + 1
        call_id = self._next_id
        self._next_id = self._next_id % U32_MAX + 1
        self._mail[call_id] = deque()
        return call_id

    def finish(self, call_id: int) -> None:
        """Nobody waits for `call_id` any more; what still comes for it is discarded."""
        self._mail.pop(call_id, None)

    def encode(self, message: m.ClientMessage) -> bytes:
        """The bytes to write. Raises InvalidRequest for what cannot be said, or is too long."""
        try:
            data = self._wire.send(message)
        except LocalProtocolError as error:
            # Schemas and tool parameters are the caller's own objects, and may hold anything.
            if isinstance(error.__cause__, UnicodeEncodeError):
                field = _field_not_utf8(message)
                raise invalid(f"{field} holds text that is not UTF-8", field) from error
            raise invalid(str(error)) from error
        if len(data) > self.max_frame_bytes:
            raise InvalidRequest(
                m.Failed(
                    reason=Reason.TOO_LARGE,
                    message=(
                        f"the request is {len(data)} bytes; the daemon takes "
                        f"{self.max_frame_bytes} in one message"
                    ),
                    retryable=False,
                    phase=Phase.ARRIVAL,
                    limit=self.max_frame_bytes,
                    used=len(data),
                )
            )
        return data

    def feed(self, data: bytes) -> list[int]:
        """Take bytes from the daemon (none: it closed). Returns the mailboxes that changed."""
        if not data:
            self.end(Unavailable("the daemon closed the connection"))
            return list(self._mail)
        changed: list[int] = []
        try:
            for message in self._wire.receive(data):
                changed += self._file(message)
        except RemoteProtocolError as error:
            self.end(ProtocolError(f"the daemon sent something that is no message: {error}"))
            return list(self._mail)
        return changed

    def end(self, why: Unavailable | ProtocolError) -> None:
        """Nothing more will come; the first reason counts."""
        if self._end is None:
            self._end = why

    def take(self, call_id: int) -> m.DaemonMessage | None:
        """The next message for `call_id`; None: not yet. What came before the end still comes."""
        mail = self._mail.get(call_id)
        return mail.popleft() if mail else None

    def _file(self, message: m.DaemonMessage) -> list[int]:
        if isinstance(message, m.Failed) and message.id is None:
            if self._end is None:
                self._end = message
            for mail in self._mail.values():
                mail.append(message)
            return list(self._mail)
        if isinstance(message, m.Welcome):
            self.max_frame_bytes = message.limits.max_frame_bytes
        call_id = HANDSHAKE if isinstance(message, m.Welcome) else message.id
        if call_id is None or call_id not in self._mail:
            return []
        self._mail[call_id].append(message)
        return [call_id]


def _field_not_utf8(message: m.ClientMessage) -> str:
    """The name, as the wire has it, of the first field with a lone surrogate."""
    for field in msgspec.structs.fields(message):
        try:
            msgspec.msgpack.encode(getattr(message, field.name))
        except UnicodeEncodeError:
            return field.encode_name
    raise AssertionError("every field can be encoded")
