"""The listening sockets: handed over by systemd, sd_listen_fds(3), or bound here."""

import os
import socket
from collections.abc import MutableMapping

_FIRST_FD = 3
# A listener each; the bound keeps a nonsensical count from opening thousands of descriptors.
_MAX_INHERITED = 64


# ip(7), ipv6(7): bind to what is no address of this machine yet.
_FREEBIND = {
    socket.AF_INET: (socket.IPPROTO_IP, 15),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 78),
}


class ListenError(Exception):
    """An address cannot be listened on. The text says what to do about it."""


def sockets_for(
    endpoints: list[tuple[str, int]], environ: MutableMapping[str, str], backlog: int
) -> list[socket.socket]:
    """A listening socket for each (host, port), in that order. Raises ListenError.

    What systemd handed over is told apart by its address; one that no listener has is an error,
    because whoever connects there would wait for ever.
    """
    inherited = {_address(sock): sock for sock in _inherited(environ)}
    found: list[socket.socket] = []
    try:
        for endpoint in endpoints:
            sock = inherited.pop(endpoint, None)
            found.append(_bound(endpoint, backlog) if sock is None else sock)
        if inherited:
            host, port = next(iter(inherited))
            raise ListenError(
                f"systemd listens on {host} port {port}, and no [[listener]] has that address: add "
                "one, or take it out of the socket unit"
            )
    except ListenError:
        for sock in (*found, *inherited.values()):
            sock.close()
        raise
    return found


def _inherited(environ: MutableMapping[str, str]) -> list[socket.socket]:
    given = {
        name: environ.pop(name, "")
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
    }
    count = given["LISTEN_FDS"]
    # Left over from a parent that was activated itself: not meant for us.
    if given["LISTEN_PID"] != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    if len(count) > 4 or int(count) > _MAX_INHERITED:
        raise ListenError(f"LISTEN_FDS says {count[:20]} descriptors, at most {_MAX_INHERITED}")
    found = []
    for fd in range(_FIRST_FD, _FIRST_FD + int(count)):
        try:
            os.set_inheritable(fd, False)
            sock = socket.socket(fileno=fd)
            listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise ListenError(f"descriptor {fd} from systemd is no socket") from error
        if not listens or sock.family not in (socket.AF_INET, socket.AF_INET6):
            sock.close()
            raise ListenError(f"descriptor {fd} from systemd is no listening TCP socket")
        sock.setblocking(False)
        found.append(sock)
    return found


def _address(sock: socket.socket) -> tuple[str, int]:
    host, port = sock.getsockname()[:2]
    return host, port


def _bound(endpoint: tuple[str, int], backlog: int) -> socket.socket:
    host, port = endpoint
    try:
        kinds = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = kinds[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"{host} is no address of this machine: {error.strerror}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The address of a network of containers may come later than this, and must not keep the
        # other listeners waiting.
        level, option = _FREEBIND[family]
        sock.setsockopt(level, option, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        hint = ""
        if port == 11434:
            hint = "; if Ollama has it, move Ollama to another port (OLLAMA_HOST)"
        raise ListenError(f"cannot listen on {host} port {port}: {error.strerror}{hint}") from error
    return sock


def is_here(sock: socket.socket) -> bool:
    """Has this machine the address of a listening socket now?"""
    host = sock.getsockname()[0]
    with socket.socket(sock.family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
