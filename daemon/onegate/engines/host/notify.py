"""What the service manager is told of an engine host: ready, status, alive. Silent without one.

The protocol of sd_notify(3), spoken here because the host's environment has nothing else for it.
"""

import socket
from collections.abc import Callable, MutableMapping

from onegate.clock import monotonic_ns

# As long as the daemon, too, waits for a word from a host that loads a model.
LOAD_USEC = 600_000_000
# Of what the manager allows between two signs of life: so that one that comes late is in time.
_FEED_SHARE = 3
_MAX_STATUS = 200
_NS_PER_USEC = 1000
_USEC_PER_S = 1e6


# One datagram to the manager; raises OSError where it does not get through.
Send = Callable[[bytes], None]


class Notifier:
    """Messages to the service manager, sent without waiting for it.

    Only `turn`, which the step loop calls between two steps and while it is idle, sends signs of
    life: a step that does not end is noticed by their absence. What does not get through is sent
    with the next turn.
    """

    def __init__(
        self,
        send: Send | None = None,
        watchdog_usec: int | None = None,
        *,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._send = send
        self._usec = watchdog_usec if send is not None else None
        self._now_ns = now_ns
        self._fed_ns: int | None = None
        self._loading = False
        self._pending: dict[str, str] = {}

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str], pid: int) -> "Notifier":
        """The notifier that the environment asks for.

        Unsets NOTIFY_SOCKET and WATCHDOG_*: a worker of the engine that found them could report
        itself alive in our name.
        """
        names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        address, usec, watched = (environ.pop(name, "") for name in names)
        if not address.startswith(("/", "@")):
            return cls()
        # '@' stands for the zero byte of a name in the abstract namespace.
        to = "\0" + address[1:] if address.startswith("@") else address

        def send(message: bytes) -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(message, to)

        is_ours = watched in ("", str(pid))
        is_number = usec.isascii() and usec.isdigit() and len(usec) <= 18
        return cls(send, int(usec) or None if is_ours and is_number else None)

    @property
    def interval_s(self) -> float | None:
        """How often `turn` is to be called at least; None where nobody watches."""
        return None if self._usec is None else self._usec / _FEED_SHARE / _USEC_PER_S

    def ready(self, status: str) -> None:
        """A daemon may connect."""
        self._pending["READY"] = "1"
        self.status(status)

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        # One line of ASCII: a line end would start another assignment.
        self._pending["STATUS"] = "".join(c if " " <= c <= "~" else "?" for c in text)[:_MAX_STATUS]
        self._flush()

    def turn(self, *, loading: bool) -> None:
        """Between two steps. `loading`: the next one may be the load of a model, which takes
        minutes and shows no sign of life."""
        if self._usec is not None:
            now_ns = self._now_ns()
            if loading is not self._loading:
                self._loading = loading
                usec = max(LOAD_USEC, self._usec) if loading else self._usec
                self._pending["WATCHDOG_USEC"] = str(usec)
                self._fed_ns = None
            every_ns = self._usec * _NS_PER_USEC // _FEED_SHARE
            if self._fed_ns is None or now_ns - self._fed_ns >= every_ns:
                self._fed_ns = now_ns
                self._pending["WATCHDOG"] = "1"
        self._flush()

    def _flush(self) -> None:
        if self._send is None or not self._pending:
            return
        message = "\n".join(f"{name}={value}" for name, value in self._pending.items())
        try:
            self._send(message.encode("ascii"))
        except OSError:
            return  # kept: a manager too busy to read hears it a turn later
        self._pending.clear()
