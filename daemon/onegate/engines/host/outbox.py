"""Bytes on their way to the daemon, without ever waiting for it."""

import socket
import threading
from collections import deque

import msgspec

from onegate.engines.host.wire import FromHost
from onegate.protocol.framing import frame

# Past it the loop stops stepping: some thousand steps of sixteen streams that nobody reads.
HIGH_WATER_BYTES = 4 * 1024 * 1024


class DaemonGone(Exception):
    """The daemon closed its end, or died."""


class Outbox:
    """Frames in order, sent as far as the socket takes them; safe from several threads.

    The heartbeat comes from a second thread, so that it is sent while the loop's own thread is
    inside a step.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._chunks: deque[memoryview] = deque()
        self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._waiting_bytes

    @property
    def full(self) -> bool:
        """Whether the daemon is too far behind to make more for it."""
        return self._waiting_bytes > HIGH_WATER_BYTES

    def post(self, message: FromHost) -> None:
        """Send a message, or keep it until the socket takes it. Raises DaemonGone."""
        self.post_raw(frame(msgspec.msgpack.encode(message)))

    def post_raw(self, data: bytes) -> None:
        """Send bytes that are a frame already, or on purpose none. Raises DaemonGone."""
        with self._lock:
            self._chunks.append(memoryview(data))
            self._waiting_bytes += len(data)
            self._send()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it. Raises DaemonGone."""
        with self._lock:
            self._send()

    def _send(self) -> None:
        while self._chunks:
            chunk = self._chunks[0]
            try:
                sent = self._sock.send(chunk)
            except BlockingIOError:
                return
            except OSError as error:
                raise DaemonGone(str(error)) from error
            self._waiting_bytes -= sent
            if sent == len(chunk):
                self._chunks.popleft()
            else:
                self._chunks[0] = chunk[sent:]
