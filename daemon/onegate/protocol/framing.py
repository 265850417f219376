"""Frames: a 4-byte big-endian length, then that many bytes of payload.

Both wires use them: client to daemon, and daemon to engine host. Sans-IO: bytes in, payloads out.
"""

from collections.abc import Iterator

from onegate.protocol.errors import LocalProtocolError, RemoteProtocolError

HEADER_BYTES = 4
# Holds a dozen photographs or two million words; more than a context takes, less than hurts.
DEFAULT_MAX_FRAME_BYTES = 8 * 1024 * 1024


def frame(payload: bytes) -> bytes:
    """Return `payload` behind its length.

    Raises LocalProtocolError for a payload that is empty or that a 4-byte length cannot hold.
    """
    if not 0 < len(payload) < 1 << 8 * HEADER_BYTES:
        raise LocalProtocolError(f"a frame cannot hold {len(payload)} bytes")
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class FrameReader:
    """Cuts a byte stream into payloads, however the bytes arrive.

    Holds at most one unfinished frame. Nothing is reserved on the word of a header: memory grows
    with the bytes that came, so that a thousand liars cost nothing.

    `frames` counts the frames completed so far. A shell that times frames starts its clock when
    `incomplete` turns true or `frames` moves, and so times each frame from its first byte.
    """

    __slots__ = ("_body", "_header", "_max_frame_bytes", "_need_bytes", "frames")

    def __init__(self, max_frame_bytes: int) -> None:
        if max_frame_bytes < 1:
            raise ValueError("max_frame_bytes must be at least 1")
        self._max_frame_bytes = max_frame_bytes
        self._header = bytearray()
        self._need_bytes: int | None = None  # announced length; None between headers
        self._body = bytearray()
        self.frames = 0

    @property
    def incomplete(self) -> bool:
        """Whether a frame has begun (one byte of its header is enough) and not ended."""
        return self._need_bytes is not None or bool(self._header)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished frame held here, its header included."""
        if self._need_bytes is None:
            return len(self._header)
        return HEADER_BYTES + len(self._body)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Take the next bytes of the stream and yield the payloads they complete, in order.

        Bytes are taken as the iterator is advanced: exhaust it. Raises RemoteProtocolError as soon
        as a header announces no bytes or more than `max_frame_bytes`, behind the payloads that
        came before it and before any of its own is kept. The reader must not be fed again then: the
        stream cannot be followed any more.
        """
        with memoryview(data) as view:
            position, end = 0, len(view)
            while position < end:
                if self._need_bytes is None:
                    position = self._take_header(view, position)
                    continue
                stop = min(end, position + self._need_bytes - len(self._body))
                if not self._body and stop - position == self._need_bytes:
                    payload = bytes(view[position:stop])  # whole in one piece: one copy
                else:
                    # A bytearray grows by a factor, so that pieces of any size, one byte
                    # included, cost linear time and no per-piece object.
                    self._body += view[position:stop]
                    if len(self._body) < self._need_bytes:
                        return
                    payload = bytes(self._body)
                position = stop
                self._finish()
                yield payload

    def _take_header(self, view: memoryview, position: int) -> int:
        stop = min(len(view), position + HEADER_BYTES - len(self._header))
        self._header += view[position:stop]
        if len(self._header) == HEADER_BYTES:
            need_bytes = int.from_bytes(self._header, "big")
            if need_bytes == 0:
                raise RemoteProtocolError("an empty frame: each frame holds one message")
            if need_bytes > self._max_frame_bytes:
                raise RemoteProtocolError(
                    f"a frame of {need_bytes} bytes was announced; "
                    f"at most {self._max_frame_bytes} are taken"
                )
            self._need_bytes = need_bytes
            self._header = bytearray()
        return stop

    def _finish(self) -> None:
        self._need_bytes = None
        self._body.clear()  # which gives the memory back
        self.frames += 1
