"""The socket on which an engine host waits for its daemon."""

import errno
import fcntl
import os
import select
import socket
import stat
import struct

# Daemons that wait for the one before them to be gone; there are never more than two or three.
_BACKLOG = 8
# Read and write for owner and group: the group is the directory's, which only the daemon is in.
_UMASK = 0o117
_MS_PER_S = 1000
_UCRED = struct.Struct("3i")


class CannotListen(Exception):
    """There is nothing to listen on. The text says what to do about it."""


class Listener:
    """A listening Unix socket at `path`, mode 0660. Raises CannotListen.

    A lock beside it (`PATH.lock`) is held for the life of the process, so that only one host at a
    time may judge the socket file stale and replace it. `uids` may connect, and nobody else.
    """

    def __init__(self, path: str, uids: frozenset[int]) -> None:
        self._uids = uids
        try:
            self._lock_fd = _lock(f"{path}.lock")
            _remove_stale(path)
            self.sock = _bound(path)
        except OSError as error:
            raise CannotListen(f"cannot listen on {path}: {error.strerror or error}") from error

    def accept(self) -> socket.socket | str:
        """The next connection, or the sentence that says why it was turned away. Waits for one."""
        try:
            sock, _ = self.sock.accept()
        except ConnectionAbortedError:
            return "a connection ended before it was accepted"
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, _ = _UCRED.unpack(found)
        if uid in self._uids:
            return sock
        sock.close()
        return f"process {pid} of uid {uid} may not connect: --peer-uid says who may"


def readable(
    sock: socket.socket | None, timeout_s: float | None, *, wake: int | None = None
) -> bool:
    """Whether there is something to read at `sock`, or to accept; waits so long for it, None for
    ever, and no longer than until `wake` can be read."""
    poll = select.poll()
    if sock is not None:
        poll.register(sock, select.POLLIN)
    if wake is not None:
        poll.register(wake, select.POLLIN)
    # Rounded up: a wait that ends a moment too early would only be begun again.
    ready = poll.poll(None if timeout_s is None else -int(-timeout_s * _MS_PER_S // 1))
    return sock is not None and any(fd == sock.fileno() for fd, _ in ready)


def _lock(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise CannotListen(f"another engine host holds {path}: stop it first") from error
    return fd


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(f"{path} is there and is not a socket; it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(path)
    if code != errno.ECONNREFUSED:
        raise CannotListen(f"another program serves {path}; it is left alone")
    os.unlink(path)


def _bound(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_UMASK)
    try:
        sock.bind(path)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock
