"""The daemon's end of the wire to an engine host."""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from onegate.engines.base import EngineMalformed, EngineRefused
from onegate.engines.host.wire import MAX_TO_HOST_BYTES, FromHost, ToHost, read
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader, frame

# One step's output, or the vectors of one embedding call; far above both.
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Link(asyncio.Protocol):
    """Messages in and out. `lost` ends when the host has left or has broken the wire.

    `on_message` raises EngineMalformed for a message that makes no sense where it comes; that, like
    bytes that are no message, ends the link with the offence as its reason.
    """

    def __init__(self, on_message: Callable[[FromHost], None]) -> None:
        self._on_message = on_message
        self._reader = FrameReader(MAX_FRAME_BYTES)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[FromHost] = msgspec.msgpack.Decoder(FromHost)
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[EngineMalformed | None] = (
            asyncio.get_running_loop().create_future()
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.lost.done():
            return
        try:
            for payload in self._reader.feed(data):
                self._on_message(read(self._decoder, payload))
        except RemoteProtocolError as error:
            self._break(EngineMalformed(f"the engine broke the wire: {error}"))
        except EngineMalformed as error:
            self._break(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def send(self, message: ToHost) -> None:
        """Queue a message; one that is sent after the end goes nowhere. Raises EngineRefused for
        one that is longer than the host takes."""
        payload = self._encoder.encode(message)
        if len(payload) > MAX_TO_HOST_BYTES:
            raise EngineRefused(
                f"this is {len(payload)} bytes for the engine, which takes {MAX_TO_HOST_BYTES}"
            )
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(payload))

    def abort(self) -> None:
        """Close at once, without what is still unsent."""
        if self._transport is not None:
            self._transport.abort()

    def _break(self, error: EngineMalformed) -> None:
        self.lost.set_result(error)
        self.abort()
