"""Which web pages may ask, and under which name this server may be asked: as Ollama has it.

A browser sends a page's requests wherever the page wants, and says in `Origin` which page it was.
A page whose own name suddenly means this machine (DNS rebinding) is no stranger to the browser; it
shows in `Host`. Both are judged before anything else is done.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal")
_PAGES = (
    *(f"{scheme}://{host}" for scheme in ("http", "https") for host in _LOCAL_HOSTS),
    *(f"{scheme}://{host}:*" for scheme in ("http", "https") for host in _LOCAL_HOSTS),
    "app://*",
    "file://*",
    "tauri://*",
    "vscode-webview://*",
    "vscode-file://*",
    "chrome-extension://*",
    "moz-extension://*",
    "safari-web-extension://*",
)
# The longest name of a host has 253 characters; scheme and port come to it.
_MAX_MATCHED = 320
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, User-Agent, Accept, X-Requested-With, X-Onegate-Class, "
        "X-Stainless-Lang, X-Stainless-Package-Version, X-Stainless-OS, X-Stainless-Arch, "
        "X-Stainless-Retry-Count, X-Stainless-Runtime, X-Stainless-Runtime-Version, "
        "X-Stainless-Async, X-Stainless-Helper-Method, X-Stainless-Poll-Helper, "
        "X-Stainless-Custom-Poll-Interval, X-Stainless-Timeout, OpenAI-Beta"
    ),
    "Access-Control-Max-Age": "43200",
}


class Origins:
    """The pages and the host names of one configuration; both patterns may hold `*`."""

    def __init__(self, pages: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        self._pages = _any_of((*_PAGES, *pages))
        self._hosts = _any_of(hosts)
        self._own_name = socket.gethostname().casefold()

    def allows_page(self, origin: str | None) -> bool:
        """Is this `Origin` one that may ask? Programs send none."""
        return origin is None or self._pages(origin.casefold())

    def allows_host(self, host: str | None) -> bool:
        """Is this `Host` a name of this machine?"""
        if not host:
            return True
        name = _without_port(host.casefold())
        if name == "localhost" or name == self._own_name or name.endswith(_LOCAL_SUFFIXES):
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return self._hosts(name)
        return address.is_private or address.is_unspecified or self._hosts(name)


def page_headers(origin: str | None) -> dict[str, str]:
    """What tells the browser that the page may read the answer."""
    return {} if origin is None else {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def preflight_headers(origin: str) -> dict[str, str]:
    """The answer to a browser that asks first."""
    return page_headers(origin) | _PREFLIGHT


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _any_of(patterns: Iterable[str]) -> Callable[[str], bool]:
    # Brackets and dots stand for themselves: addresses have them.
    matchers = [
        re.compile(re.escape(pattern.casefold()).replace(r"\*", ".*")).fullmatch
        for pattern in patterns
    ]

    def fits(text: str) -> bool:
        # Longer ones are no names of hosts, and the beginning of one is another name.
        return len(text) <= _MAX_MATCHED and any(match(text) is not None for match in matchers)

    return fits
