"""The socket the daemon listens on: handed over by systemd, or bound here.

A socket from systemd is never unlinked: it outlives us, so that whoever connects during a restart
waits in the kernel. One that we bind is guarded by a lock beside it (`PATH.lock`), held for as
long as we listen: only who holds it may judge the socket file stale and replace it.
"""

import contextlib
import errno
import fcntl
import grp
import os
import socket
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass

# What systemd calls the socket: its default is the name of the socket unit.
FD_NAME = "onegate.socket"
# The first descriptor it passes, sd_listen_fds(3).
_FIRST_FD = 3
# We expect one; the bound keeps a nonsensical count from closing thousands of descriptors.
_MAX_INHERITED = 64

# More than any backlog: whoever connects faster than that is not served by this either.
_MAX_TURNED_AWAY = 100_000

_ACTIVATION_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


class ListenError(Exception):
    """There is nothing to listen on. The text says what to do about it."""


class AlreadyRunning(ListenError):
    """Another daemon serves this path."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """Descriptors that systemd passed, by name; already close-on-exec."""

    fds: dict[str, int]


@dataclass(slots=True)
class Listener:
    """A listening Unix socket. The owner calls `close` once it accepts no more."""

    sock: socket.socket
    path: str
    inherited: bool
    _lock_fd: int | None = None
    _identity: tuple[int, int] | None = None

    def turn_away(self) -> None:
        """Close the connections that wait, for a daemon that cannot start.

        One that went on waiting would make systemd start the daemon again, as fast as it can.
        """
        with contextlib.suppress(BlockingIOError):  # nobody waits any more
            for _ in range(_MAX_TURNED_AWAY):
                self.sock.accept()[0].close()

    def close(self) -> None:
        """Stop listening. Takes the path away if the file there is still the one we made."""
        if self._identity is not None:
            with contextlib.suppress(FileNotFoundError):  # somebody was faster: the same end
                found = os.lstat(self.path)
                if (found.st_dev, found.st_ino) == self._identity:
                    os.unlink(self.path)
            self._identity = None
        self.sock.close()
        if self._lock_fd is not None:
            _unlock(self.path + ".lock", self._lock_fd)
            self._lock_fd = None


def take_inherited(environ: MutableMapping[str, str], pid: int) -> Inherited | None:
    """The sockets systemd passed to this process, or None where it passed none.

    Unsets LISTEN_* in every case, so that no child takes them for its own. Raises ListenError
    where what was passed makes no sense.
    """
    given = {name: environ.pop(name, "") for name in _ACTIVATION_VARIABLES}
    # Left over from a parent that was activated itself: not meant for us.
    if given["LISTEN_PID"] != str(pid):
        return None
    if not given["LISTEN_FDS"].isascii() or not given["LISTEN_FDS"].isdigit():
        raise ListenError(f"LISTEN_FDS is {given['LISTEN_FDS'][:20]!r}, not a number")
    if len(given["LISTEN_FDS"]) > 4 or (count := int(given["LISTEN_FDS"])) > _MAX_INHERITED:
        raise ListenError(f"LISTEN_FDS says {given['LISTEN_FDS'][:20]} descriptors; one is needed")
    if count == 0:
        return None
    fds = range(_FIRST_FD, _FIRST_FD + count)
    for fd in fds:
        try:
            os.set_inheritable(fd, False)
        except OSError as error:
            raise ListenError(f"LISTEN_FDS says descriptor {fd} is open; it is not") from error
    if not given["LISTEN_FDNAMES"]:
        names = [FD_NAME] if count == 1 else [f"descriptor {fd}" for fd in fds]
    else:
        names = given["LISTEN_FDNAMES"].split(":")
    if len(names) != count or len(set(names)) != count:
        text = f"{count} descriptors are named {given['LISTEN_FDNAMES'][:100]!r}"
        raise ListenError(f"{text}: a socket unit for onegate has exactly one ListenStream=")
    return Inherited(dict(zip(names, fds, strict=True)))


def adopt(inherited: Inherited) -> Listener:
    """The one socket we are meant to serve, out of those that were passed.

    Raises ListenError where its name or its kind is not as expected.
    """
    if set(inherited.fds) != {FD_NAME}:
        names = ", ".join(ascii(name[:40]) for name in inherited.fds)
        text = f"systemd passed {names}; expected one socket named {FD_NAME}"
        raise ListenError(f"{text}: name the unit so, or set FileDescriptorName={FD_NAME}")
    fd = inherited.fds[FD_NAME]
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        raise ListenError(f"descriptor {fd} from systemd is not a socket")
    sock = socket.socket(fileno=fd)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        sock.close()
        raise ListenError("the socket from systemd is not a Unix stream socket: ListenStream=/PATH")
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 1:
        sock.close()
        raise ListenError("the socket from systemd does not listen: set Accept=no")
    sock.setblocking(False)
    return Listener(sock, os.fsdecode(sock.getsockname()), inherited=True)


def bind(path: str, *, mode: int, group: str | None, backlog: int) -> Listener:
    """Listen on `path`, replacing what a dead daemon left there.

    Raises AlreadyRunning where a live one serves it, ListenError where it cannot be bound.
    """
    try:
        gid = None if group is None else grp.getgrnam(group).gr_gid
    except KeyError as error:
        text = f"there is no group {group!a}: create it, or change gate.socket_group"
        raise ListenError(text) from error
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(path), 0o755)
        lock_fd = _lock(path + ".lock")
    except OSError as error:
        text = f"cannot lock {path}.lock: {error.strerror}"
        raise ListenError(f"{text}: make its folder, or listen elsewhere") from error
    try:
        _remove_stale(path)
        sock = _bound(path, mode, gid, backlog)
        made = os.lstat(path)
    except BaseException as error:
        _unlock(path + ".lock", lock_fd)
        if isinstance(error, OSError):
            raise ListenError(f"cannot listen on {path}: {error.strerror or error}") from error
        raise
    return Listener(sock, path, False, lock_fd, (made.st_dev, made.st_ino))


def _lock(path: str) -> int:
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us takes its lock file away when it ends; then this one is nobody's.
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                return fd
        except BlockingIOError as error:
            os.close(fd)
            text = f"another onegated holds {path}: stop it, or listen elsewhere"
            raise AlreadyRunning(text) from error
        except FileNotFoundError:
            pass  # taken away just now: make our own
        except OSError:
            os.close(fd)
            raise
        os.close(fd)


def _unlock(path: str, lock_fd: int) -> None:
    # Taken away while still locked, so nobody can come to hold a file that has no name any more.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.close(lock_fd)


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenError(f"{path} is there and is not a socket; it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A live daemon's full backlog would keep a blocking connect waiting.
        probe.setblocking(False)
        code = probe.connect_ex(path)
    if code == errno.ECONNREFUSED:
        os.unlink(path)
    elif code in (0, errno.EAGAIN):
        raise AlreadyRunning(f"another program serves {path}: stop it, or listen elsewhere")
    elif code != errno.ENOENT:
        raise ListenError(f"cannot tell whether {path} is served: {os.strerror(code)}")


def _bound(path: str, mode: int, gid: int | None, backlog: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = False
    try:
        # Nobody else may connect before group and mode are as configured.
        before = os.umask(0o177)
        try:
            sock.bind(path)
            bound = True
        finally:
            os.umask(before)
        if gid is not None:
            os.chown(path, -1, gid)
        os.chmod(path, mode)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        if bound:
            os.unlink(path)
        sock.close()
        raise
    return sock
