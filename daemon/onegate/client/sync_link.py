"""The blocking transport: one plain socket, read by whoever waits for an answer."""

import socket
import time
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any, TypeVar

from onegate.client.connect import Waits, try_connect
from onegate.client.errors import OnegateError, Unavailable
from onegate.client.session import Session
from onegate.clock import monotonic_ns
from onegate.protocol import messages as m

T = TypeVar("T")

READ_BYTES = 65_536
# A daemon that does not read for this long while a client leaves is told by the closed socket.
SEND_NOW_S = 1.0


def _block(seconds: float) -> None:
    time.sleep(seconds)


def run(steps: Coroutine[Any, Any, T]) -> T:
    """Run to the end what awaits only the blocking transport, which never suspends."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    steps.close()
    raise AssertionError("the blocking transport suspended")


class Blocking:
    """Connects and sleeps on the calling thread."""

    async def connect(self, path: str, deadline_ns: int) -> "BlockingLink":
        waits = Waits(path, deadline_ns)
        while (sock := try_connect(path)) is None:
            _block(waits.next_s())
        return BlockingLink(sock)

    async def sleep(self, seconds: float) -> None:
        _block(seconds)

    def lock(self) -> nullcontext[None]:
        return nullcontext()


class BlockingLink:
    """One connection of the calling thread; nothing is read but while somebody waits."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.session = Session()

    async def send(self, data: bytes, deadline_ns: int | None) -> None:
        self.look()
        if (ended := self.session.ended) is not None:
            raise ended
        self._send(data, deadline_ns)

    def send_now(self, data: bytes) -> None:
        try:
            self._send(data, monotonic_ns() + round(SEND_NOW_S * 1e9))
        except (OnegateError, TimeoutError):
            self.close()

    def _send(self, data: bytes, deadline_ns: int | None) -> None:
        timeout_s = _seconds_to(deadline_ns)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
        except TimeoutError:
            self._break("the daemon takes no more from this connection")
            raise
        except OSError as error:
            self.look()  # a daemon that hung up has usually said why
            raise self._break(f"the connection to the daemon broke: {error}") from error
        except BaseException:
            # Part of a frame may be out: nothing more can be said on this connection.
            self._break("the connection was closed by an interrupt")
            raise

    async def receive(self, call_id: int, deadline_ns: int | None) -> m.DaemonMessage:
        while (message := self.session.take(call_id)) is None:
            if (ended := self.session.ended) is not None:
                raise ended
            self._read(_seconds_to(deadline_ns))
        return message

    def look(self) -> None:
        while self.session.ended is None:
            try:
                self._read(0.0)
            except BlockingIOError:
                return

    def _read(self, timeout_s: float | None) -> None:
        try:
            self._socket.settimeout(timeout_s)
            self.session.feed(self._socket.recv(READ_BYTES))
        except (TimeoutError, BlockingIOError):
            raise
        except OSError as error:
            self._break(f"the connection to the daemon broke: {error}")
        except BaseException:
            # Interrupted between the kernel and us, bytes may be lost: the stream of frames is.
            self._break("the connection was closed by an interrupt")
            raise

    def _break(self, why: str) -> OnegateError:
        """Close, and return the error that holds from now on: an earlier one, or `why`."""
        self.session.end(Unavailable(why))
        self.close()
        ended = self.session.ended
        assert ended is not None
        return ended

    def close(self) -> None:
        self.session.end(Unavailable("this client is closed"))
        self._socket.close()


def _seconds_to(deadline_ns: int | None) -> float | None:
    """Seconds to a deadline, for a socket; TimeoutError once it is past."""
    if deadline_ns is None:
        return None
    left_ns = deadline_ns - monotonic_ns()
    if left_ns <= 0:
        raise TimeoutError
    return left_ns / 1e9
