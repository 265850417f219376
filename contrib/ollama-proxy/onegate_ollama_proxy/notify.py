"""What systemd is told, sd_notify(3): ready, alive, stopping. Silent outside systemd."""

import os
import socket
from collections.abc import MutableMapping


class Notifier:
    """Messages to the service manager; `watchdog_s`: how often to say that this is alive."""

    def __init__(self, address: str | None, watchdog_s: float | None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str]) -> "Notifier":
        """The one that the environment asks for. What asked is taken out of it: a child would
        speak in our name."""
        address = environ.pop("NOTIFY_SOCKET", "")
        usec = environ.pop("WATCHDOG_USEC", "")
        pid = environ.pop("WATCHDOG_PID", "")
        watched = pid in ("", str(os.getpid())) and usec.isascii() and usec.isdigit()
        half_s = int(usec) / 2_000_000 if watched and len(usec) < 18 and int(usec) else None
        return cls(address or None, half_s if address else None)

    def say(self, *lines: str) -> None:
        """Send these. A manager that does not listen is not waited for."""
        if self._address is None:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, kind) as sock:
            try:
                sock.sendto("\n".join(lines).encode(), address)
            except OSError:
                return  # the next message says what matters again
