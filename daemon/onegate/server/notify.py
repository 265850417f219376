"""What systemd is told: ready, status, alive, stopping, reloading. Silent outside systemd."""

from collections.abc import Callable, MutableMapping
from typing import Protocol, cast

from sdnotify import SystemdNotifier

from onegate import clock

# One line is all that `systemctl status` shows.
_MAX_STATUS = 200


class _Socket(Protocol):
    def setblocking(self, flag: bool) -> None: ...


class Backend(Protocol):
    """What this module needs of `sdnotify.SystemdNotifier`."""

    socket: _Socket

    def notify(self, state: str) -> None: ...


def _connect() -> Backend:
    # With debug the package raises instead of keeping quiet; what to ignore is decided here.
    return cast(Backend, SystemdNotifier(debug=True))


class Notifier:
    """Messages to the service manager. Sent without waiting, so that a manager too busy to read
    cannot stop the event loop; `lost` counts what did not get through.

    `watchdog_interval_s`: how often to call `watchdog`, half of what systemd allows; None where
    it does not watch. `problem`: why there is no connection though systemd asked for one.
    """

    def __init__(
        self, backend: Backend | None, watchdog_interval_s: float | None, problem: str = ""
    ) -> None:
        self._backend = backend
        self.watchdog_interval_s = watchdog_interval_s
        self.problem = problem
        self.lost = 0

    @classmethod
    def from_environ(
        cls,
        environ: MutableMapping[str, str],
        pid: int,
        connect: Callable[[], Backend] = _connect,
    ) -> "Notifier":
        """The notifier that the environment asks for.

        Unsets NOTIFY_SOCKET and WATCHDOG_* afterwards: a child that found them could report
        itself ready, or alive, in our name. `connect` reads NOTIFY_SOCKET itself.
        """
        interval_s = _watchdog_interval_s(
            environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", ""), pid
        )
        backend: Backend | None = None
        problem = ""
        try:
            if environ.get("NOTIFY_SOCKET"):
                backend = connect()
                backend.socket.setblocking(False)
        except OSError as error:
            problem = f"cannot reach the service manager: {error.strerror or error}"
        finally:
            for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
                environ.pop(name, None)
        return cls(backend, interval_s if backend is not None else None, problem)

    @property
    def enabled(self) -> bool:
        """Whether a service manager listens."""
        return self._backend is not None

    def ready(self, status: str) -> None:
        """Started, or done with a reload."""
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={_line(status)}")

    def watchdog(self) -> None:
        """Still alive. To be called from the event loop, so that a blocked loop is noticed."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Reading the configuration again; `ready` ends it."""
        # Type=notify-reload tells an old message from a new one by this time.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={clock.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """Going down."""
        self._send(f"STOPPING=1\nSTATUS={_line(status)}")

    def extend_timeout(self, seconds: float) -> None:
        """Starting or stopping may take this much longer, counted from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def _send(self, state: str) -> None:
        if self._backend is None:
            return
        try:
            self._backend.notify(state)
        except OSError:
            self.lost += 1  # the next one repeats what matters; a watchdog message certainly does


def _watchdog_interval_s(usec: str, watched_pid: str, pid: int) -> float | None:
    """sd_watchdog_enabled(3): WATCHDOG_PID, if set, names the process that is watched."""
    if watched_pid not in ("", str(pid)):
        return None
    if not usec.isascii() or not usec.isdigit() or len(usec) > 18 or int(usec) == 0:
        return None
    return int(usec) / 2_000_000


def _line(text: str) -> str:
    """One line of ASCII: a line end would start another assignment."""
    shown = "".join(c if " " <= c <= "~" else "?" for c in text)
    return shown[:_MAX_STATUS]
