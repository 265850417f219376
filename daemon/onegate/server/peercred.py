"""Who is at the other end of a Unix socket, by the kernel's word.

The socket tells uid, gid, groups and pid of the process that connected, as they were then. Unit,
slice and terminal have to be read from /proc by pid, and a pid can belong to another process by
the time it is read. So a pidfd pins the process: SO_PEERPIDFD (Linux 6.5) names exactly the one
that connected; what was read while that process was alive before *and* after is about it. Without
SO_PEERPIDFD the pid is opened later, so the process found there must also run under the peer's uid
and must have started before we looked: what is left of the race stays inside one uid, and inside
the time between connect and accept.

The executable is not looked at: another user's cannot be read without capabilities.
"""

import socket
from typing import Literal

from msgspec import Struct

from onegate.cgroup import Place, parse_cgroup
from onegate.server.kernel import Kernel

Source = Literal["peer_pidfd", "pidfd_open"]


class Peer(Struct, frozen=True, kw_only=True):
    """A connected process. `unreadable` is empty where the facts below it can be trusted.

    unit, slice: of the system manager; None where it is in none. user_unit: of a user's own
    manager, which that user names at will. owner_uid: whose user-UID.slice it is in.
    started_ticks: clock ticks from boot to its start.
    """

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...]
    source: Source
    unreadable: str = ""
    cgroup: str = ""
    unit: str | None = None
    slice: str | None = None
    user_unit: str | None = None
    owner_uid: int | None = None
    tty: bool = False
    started_ticks: int | None = None

    @property
    def verified(self) -> bool:
        """Whether unit, slice and terminal are facts about this very process."""
        return not self.unreadable


class _Unreadable(Exception):
    """The facts of a peer cannot be had; the text says why."""


class _Facts(Struct, frozen=True, kw_only=True):
    uid: int
    place: Place
    tty: bool
    started_ticks: int


def identify(sock: socket.socket, kernel: Kernel) -> Peer:
    """The peer of a connected Unix socket; call it right after accept.

    A peer whose facts cannot be read is still a Peer, with `unreadable` saying why. Raises OSError
    where the socket itself does not answer: it is no Unix socket, or not connected.
    """
    pid, uid, gid = kernel.credentials(sock)
    groups = tuple(sorted({gid, *kernel.groups(sock)}))
    source: Source = "peer_pidfd"
    try:
        pidfd = _peer_pidfd(sock, kernel)
        if pidfd is None:
            source = "pidfd_open"
            facts = _facts_by_pid(pid, uid, kernel)
        else:
            facts = _facts_by_pidfd(pid, pidfd, kernel)
    except _Unreadable as error:
        return Peer(pid=pid, uid=uid, gid=gid, groups=groups, source=source, unreadable=str(error))
    return Peer(
        pid=pid,
        uid=uid,
        gid=gid,
        groups=groups,
        source=source,
        cgroup=facts.place.path,
        unit=facts.place.unit,
        slice=facts.place.slice,
        user_unit=facts.place.user_unit,
        owner_uid=facts.place.owner_uid,
        tty=facts.tty,
        started_ticks=facts.started_ticks,
    )


def _peer_pidfd(sock: socket.socket, kernel: Kernel) -> int | None:
    try:
        return kernel.peer_pidfd(sock)
    except ProcessLookupError as error:
        raise _Unreadable("the process has exited") from error
    except OSError as error:
        raise _Unreadable(f"the kernel gives no pidfd of it: {error.strerror}") from error


def _facts_by_pidfd(pid: int, pidfd: int, kernel: Kernel) -> _Facts:
    try:
        return _pinned_facts(pid, pidfd, kernel)
    finally:
        kernel.close(pidfd)


def _facts_by_pid(pid: int, uid: int, kernel: Kernel) -> _Facts:
    """Facts of the process that has this pid now, if it can be the one that connected."""
    # Before the pid is opened: whatever starts later is not what connected.
    looked_ticks = _uptime_ticks(kernel)
    pidfd = _open_pidfd(pid, kernel)
    try:
        facts = _pinned_facts(pid, pidfd, kernel)
    finally:
        kernel.close(pidfd)
    if facts.started_ticks > looked_ticks:
        raise _Unreadable("its pid has been taken over by a younger process")
    if facts.uid != uid:
        raise _Unreadable("its pid has been taken over by another user's process")
    return facts


def _open_pidfd(pid: int, kernel: Kernel) -> int:
    if pid <= 0:
        raise _Unreadable("the process is in another pid namespace")
    try:
        return kernel.open_pidfd(pid)
    except ProcessLookupError as error:
        raise _Unreadable("the process has exited") from error
    except OSError as error:
        raise _Unreadable(f"the kernel gives no pidfd of it: {error.strerror}") from error


def _pinned_facts(pid: int, pidfd: int, kernel: Kernel) -> _Facts:
    if pid <= 0:
        raise _Unreadable("the process is in another pid namespace")
    if not kernel.alive(pidfd):
        raise _Unreadable("the process has exited")
    stat = _read(f"/proc/{pid}/stat", kernel)
    uid = _effective_uid(_read(f"/proc/{pid}/status", kernel))
    place = parse_cgroup(_read(f"/proc/{pid}/cgroup", kernel))
    # Alive now, so it had this pid the whole time, and what was read is about it.
    if not kernel.alive(pidfd):
        raise _Unreadable("the process exited while it was looked at")
    tty, started_ticks = _parse_stat(stat)
    return _Facts(uid=uid, place=place, tty=tty, started_ticks=started_ticks)


def _read(path: str, kernel: Kernel) -> bytes:
    try:
        return kernel.read(path)
    except OSError as error:
        raise _Unreadable(f"cannot read {path}: {error.strerror}") from error


def _parse_stat(stat: bytes) -> tuple[bool, int]:
    """(has a controlling terminal, start in clock ticks since boot), proc_pid_stat(5)."""
    # The program's name is in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(b")")[2].split()
    try:
        return int(fields[4]) != 0, int(fields[19])
    except (IndexError, ValueError) as error:
        raise _Unreadable("/proc/PID/stat is not as proc_pid_stat(5) says") from error


def _effective_uid(status: bytes) -> int:
    for line in status.split(b"\n"):
        if line.startswith(b"Uid:"):
            try:
                return int(line.split()[2])
            except (IndexError, ValueError) as error:
                raise _Unreadable("/proc/PID/status has no uid") from error
    raise _Unreadable("/proc/PID/status has no uid")


def _uptime_ticks(kernel: Kernel) -> int:
    """Now, in the ticks that /proc/PID/stat counts a start in. Both round down, so a process
    that started before this was read never compares as younger."""
    raw = _read("/proc/uptime", kernel)
    try:
        # Two decimals, and USER_HZ is 100: the same unit.
        seconds, _, hundredths = raw.split()[0].partition(b".")
        return int(seconds) * 100 + int(hundredths)
    except (IndexError, ValueError) as error:
        raise _Unreadable("/proc/uptime is not as proc_uptime(5) says") from error
