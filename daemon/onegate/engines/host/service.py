"""An engine host that is a service of its own: daemons come and go, the model stays.

One daemon at a time; the next one waits in the backlog until the connection before it has ended.
Whatever a daemon leaves behind is aborted, and the next one is greeted when nothing of it runs.
"""

import contextlib
import socket
import sys

import msgspec

from onegate.engines.host.build import build_engine
from onegate.engines.host.desk import Desk
from onegate.engines.host.engine import HostEngine
from onegate.engines.host.greeting import (
    WireDiffers,
    first_frames,
    hello_of,
    read_attach,
)
from onegate.engines.host.heart import Heart
from onegate.engines.host.listen import Listener, readable
from onegate.engines.host.loop import EXIT_PROTOCOL, HostLoop
from onegate.engines.host.notify import Notifier
from onegate.engines.host.outbox import DaemonGone
from onegate.engines.host.settings import HostSettings, read_settings
from onegate.engines.host.wire import MAX_TO_HOST_BYTES, Attach, FromHost
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader

# EX_TEMPFAIL: started anew, it will do.
EXIT_ANEW = 75
_WAITING = "waits for a daemon"
# How long the seats of a daemon that has left are waited for at a time.
_SEATS_S = 1.0


class _Leave(Exception):
    """The host ends with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Nobody:
    """Where the engine's messages go while no daemon is attached."""

    def post(self, message: FromHost) -> None:
        pass

    def post_raw(self, data: bytes) -> None:
        pass


class Service:
    """Serves one daemon after the other with the engine that the first of them asked for.

    A model that is being loaded when its daemon leaves is loaded to the end. The loop tells
    `notifier` of every turn, whether or not a daemon is attached.
    """

    def __init__(self, listener: Listener, notifier: Notifier) -> None:
        self._listener = listener
        self._notifier = notifier
        self._settings: HostSettings | None = None
        self._engine: HostEngine | None = None
        self._alone: Desk | None = None
        self._sock: socket.socket | None = None

    def run(self) -> int:
        """Serve until a daemon says `Exit`, the engine breaks, or only a new process will do; the
        exit code follows sysexits."""
        self._notifier.ready(_WAITING)
        try:
            while True:
                self._serve_next()
        except _Leave as leave:
            return leave.code
        finally:
            if self._engine is not None:
                self._engine.close()

    def _serve_next(self) -> None:
        while not self._turn(self._listener.sock, None):
            pass
        found = self._listener.accept()
        if isinstance(found, str):
            sys.stderr.write(f"{found}\n")
            return
        with found as self._sock:
            try:
                self._attend(found)
            except (DaemonGone, ConnectionError) as error:
                sys.stderr.write(f"the daemon has left: {error}\n")
            except RemoteProtocolError as error:
                sys.stderr.write(f"the daemon broke the wire: {error}\n")
            finally:
                self._abort_all()
                self._notifier.status(_WAITING)

    def _attend(self, sock: socket.socket) -> None:
        reader = FrameReader(MAX_TO_HOST_BYTES)
        first, *early = first_frames(sock, reader, lambda timeout_s: self._turn(sock, timeout_s))
        try:
            attach = read_attach(sock, first)
        except WireDiffers as error:
            sys.stderr.write(f"{error}: to be started anew\n")
            raise _Leave(EXIT_PROTOCOL) from error
        engine = self._engine_for(attach)
        while self._ids():
            self._turn(None, _SEATS_S)
        engine.look_again()
        loop = HostLoop(sock, engine, reader, self._notifier)
        loop.outbox.post(hello_of(engine))
        text = f"serves the daemon with process id {attach.daemon_pid}"
        sys.stderr.write(f"{text}\n")
        self._notifier.status(text)
        # A step that never ends is the service manager's to end.
        with Heart(loop.beat, gone=lambda: None):
            raise _Leave(loop.run(early))

    def _engine_for(self, attach: Attach) -> HostEngine:
        try:
            settings = read_settings(attach.engine)
        except msgspec.ValidationError as error:
            # Another version's would come over another wire: no process reads these, and the one
            # that has the model loaded is not given up for them.
            raise RemoteProtocolError(f"the engine's settings are wrong: {error}") from error
        if self._engine is None:
            self._settings = settings
            self._engine = build_engine(settings, hang_up=self._hang_up)
            self._alone = Desk(self._engine, _Nobody())
        elif settings != self._settings:
            sys.stderr.write("a daemon wants other settings of the engine: to be started anew\n")
            raise _Leave(EXIT_ANEW)
        return self._engine

    def _turn(self, sock: socket.socket | None, timeout_s: float | None) -> bool:
        """Let the engine go on with what is in it while nobody is attached, or wait; returns
        whether there is something at `sock`."""
        desk = self._alone
        self._notifier.turn(loading=desk is not None and desk.loading)
        if desk is not None and desk.due:
            desk.step()
            if desk.exit_code is not None:
                raise _Leave(desk.exit_code)
            return readable(sock, 0.0)
        waits = [wait_s for wait_s in (timeout_s, self._notifier.interval_s) if wait_s is not None]
        wake = self._engine.wake if self._engine is not None else None
        return readable(sock, min(waits, default=None), wake=wake)

    def _ids(self) -> list[int]:
        engine = self._engine
        if engine is None:
            return []
        return [id for pool in engine.pools() for id in engine.running(pool.model)]

    def _abort_all(self) -> None:
        for id in self._ids():
            assert self._engine is not None
            self._engine.abort(id)

    def _hang_up(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(OSError):  # the daemon was faster
                self._sock.shutdown(socket.SHUT_RDWR)
