"""Where an address leads: on this machine, or away from it."""

import ipaddress
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from onegate.engines.base import EngineUnavailable

_UNIX = "unix:"
_PORTS = {"http": 80, "https": 443}


class AddressRefused(EngineUnavailable):
    """The address is not one that this daemon may speak to."""


@dataclass(frozen=True)
class Address:
    """A base URL taken apart. `socket` is the path of a Unix socket, else None.

    `prefix` is what every path is appended to, without a slash at its end.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    socket: str | None = None

    @property
    def origin(self) -> str:
        """`http://HOST:PORT`, as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        return f"{_UNIX}{self.socket}" if self.socket is not None else self.origin + self.prefix


def parse_address(url: str) -> Address:
    """A base URL: `http://HOST:PORT/PREFIX`, `https://…`, or `unix:/PATH` with `:/PREFIX` behind
    the path where there is one. Raises ValueError with a sentence that says what is wrong."""
    if url.startswith(_UNIX):
        path, _, prefix = url.removeprefix(_UNIX).partition(":")
        if not path.startswith("/"):
            raise ValueError("unix: is followed by an absolute path")
        return Address("http", "localhost", 80, prefix.rstrip("/"), socket=path)
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("expected http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a name or a password has no place in it: use api_key_file")
    if parts.query or parts.fragment:
        raise ValueError("expected no ? and no # in it")
    port = parts.port  # raises ValueError where it is no number
    return Address(
        parts.scheme,
        parts.hostname,
        _PORTS[parts.scheme] if port is None else port,
        parts.path.rstrip("/"),
    )


def is_local(ip: str) -> bool:
    """Whether this IP address is this machine's own and nobody else's."""
    try:
        found = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def check_local(host: str, ips: list[str]) -> None:
    """Raises AddressRefused unless every one of `ips`, which is what `host` means, is local."""
    away = [ip for ip in ips if not is_local(ip)]
    if away or not ips:
        where = f" is {away[0]}" if away and away[0] != host else ""
        raise AddressRefused(
            f"{host}{where}, which is not this machine: text would leave it. Use an address on "
            "127.0.0.1 or a Unix socket, or set engine.allow_remote = true"
        )


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Verifies names and chains; `ca_file` is trusted instead of the system's authorities."""
    return ssl.create_default_context(cafile=ca_file)
