"""The host's one loop: what the daemon sent, then one step of the engine, then what came of it."""

import selectors
import socket

import msgspec

from onegate.engines.host.desk import Desk
from onegate.engines.host.engine import HostEngine
from onegate.engines.host.notify import Notifier
from onegate.engines.host.outbox import DaemonGone, Outbox
from onegate.engines.host.wire import Heartbeat, ToHost, read
from onegate.protocol.framing import FrameReader

EXIT_PROTOCOL = 76


class HostLoop:
    """Serves one daemon over one socket until it leaves.

    Between two steps everything that has arrived is carried out, so a cancellation takes effect
    within the next step. The loop waits for the socket, and for an engine that computes elsewhere,
    only when no step is due, or when the daemon is so far behind that more output would only pile
    up. Every turn of the loop, and no other thread, tells `notifier` that it lives.
    """

    def __init__(
        self, sock: socket.socket, engine: HostEngine, reader: FrameReader, notifier: Notifier
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._reader = reader
        self._notifier = notifier
        self._decoder: msgspec.msgpack.Decoder[ToHost] = msgspec.msgpack.Decoder(ToHost)
        self.outbox = Outbox(sock)
        self._desk = Desk(engine, self.outbox)
        self._wake = engine.wake

    def beat(self) -> None:
        """For the second thread: that the process lives, and which step it is in. Raises
        DaemonGone."""
        self.outbox.post(Heartbeat(steps=self._desk.steps, busy=self._desk.stepping))

    def run(self, early: list[bytes]) -> int:
        """Serve until the daemon says `Exit` or the engine breaks; the exit code, as in sysexits.

        `early` are frames that came together with the first one. Raises DaemonGone when the
        connection has ended; RemoteProtocolError for a broken wire.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            return self._serve(selector, early)

    def _serve(self, selector: selectors.BaseSelector, frames: list[bytes]) -> int:
        desk = self._desk
        may_step = False
        while True:
            for payload in frames:
                desk.take(read(self._decoder, payload))
            desk.settle()
            self._notifier.turn(loading=desk.loading)
            if may_step and desk.due and desk.exit_code is None:
                desk.step()
                desk.settle()
            if desk.exit_code is not None:
                return desk.exit_code
            self.outbox.flush()
            may_step = desk.due and not self.outbox.full
            frames = self._wait(selector, 0.0 if may_step else self._notifier.interval_s)

    def _wait(self, selector: selectors.BaseSelector, timeout_s: float | None) -> list[bytes]:
        writing = selectors.EVENT_WRITE if self.outbox.waiting_bytes else 0
        selector.modify(self._sock, selectors.EVENT_READ | writing)
        # What the engine has to tell waits while the daemon does not read.
        wake = None if self.outbox.full else self._wake
        if wake is not None:
            selector.register(wake, selectors.EVENT_READ)
        ready = selector.select(timeout_s)
        if wake is not None:
            selector.unregister(wake)
        from_daemon = [mask for key, mask in ready if key.fileobj is self._sock]
        return self._read() if any(mask & selectors.EVENT_READ for mask in from_daemon) else []

    def _read(self) -> list[bytes]:
        frames: list[bytes] = []
        while True:
            try:
                data = self._sock.recv(1 << 18)
            except BlockingIOError:
                return frames
            except OSError as error:
                raise DaemonGone(str(error)) from error
            if not data:
                raise DaemonGone("end of file")
            frames += self._reader.feed(data)
