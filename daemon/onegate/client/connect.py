"""Reaching the socket: one attempt, and how long to wait before the next.

A Unix socket whose backlog is full refuses at once with EAGAIN, which asyncio takes for "in
progress"; so the attempt is made here, without an event loop, for both clients. It never blocks.
"""

import os
import random
import socket

from onegate.client.errors import NotPermitted, OnegateError, Unavailable, invalid
from onegate.clock import monotonic_ns
from onegate.protocol import messages as m
from onegate.protocol.address import socket_to_connect
from onegate.protocol.errors import Phase, Reason

FIRST_WAIT_S = 0.01
LONGEST_WAIT_S = 1.0


def socket_path(given: str | os.PathLike[str] | None) -> str:
    """Where to connect: `given`, else what the environment says, else the usual places."""
    return os.fspath(given) if given else socket_to_connect(os.environ, os.path.exists)


def backoff_s(attempt: int) -> float:
    """Seconds before attempt number `attempt` (from 1): doubling, bounded, between half and all.

    The jitter keeps a thousand clients of a restarted daemon from returning in step.
    """
    longest_s: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(attempt - 1, 16))
    return longest_s * random.uniform(0.5, 1.0)


class Waits:
    """The waits between attempts to connect, until `deadline_ns`."""

    def __init__(self, path: str, deadline_ns: int) -> None:
        self._path = path
        self._deadline_ns = deadline_ns
        self._attempts = 0

    def next_s(self) -> float:
        """Seconds to wait now. Raises Unavailable where the deadline comes first."""
        self._attempts += 1
        wait_s = backoff_s(self._attempts)
        if monotonic_ns() + wait_s * 1e9 > self._deadline_ns:
            raise Unavailable(f"the daemon at {self._path} has more connections than it can take")
        return wait_s


def try_connect(path: str) -> socket.socket | None:
    """A connected non-blocking socket; None where the backlog is full and waiting helps.

    Raises Unavailable where nobody listens or this process has no descriptor left, NotPermitted
    where this user may not connect, InvalidRequest for a path that no socket can have.
    """
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    except OSError as error:
        raise _explained(path, error) from error  # this process has no descriptor left
    try:
        sock.setblocking(False)
        sock.connect(path)
    except BlockingIOError:
        sock.close()
        return None
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError | ValueError):
            raise _explained(path, error) from error
        raise
    return sock


def _explained(path: str, error: OSError | ValueError) -> OnegateError:
    match error:
        case FileNotFoundError():
            return Unavailable(f"no daemon: there is no socket at {path}")
        case ConnectionRefusedError():
            return Unavailable(f"no daemon: nobody listens at {path}")
        case PermissionError():
            return NotPermitted(
                m.Failed(
                    reason=Reason.PERMISSION,
                    message=f"this user may not connect to {path}; `ls -l` names the group to join",
                    retryable=False,
                    phase=Phase.HANDSHAKE,
                )
            )
    if isinstance(error, OSError) and error.errno is not None:
        return Unavailable(f"cannot connect to {path}: {error.strerror}")
    return invalid(f"{path!r} is no path of a socket: {error}", "socket")
