"""What is asked of the Linux kernel about the process behind a Unix socket."""

import ctypes
import errno
import os
import select
import socket
import struct
from typing import Protocol

# Numbers of include/uapi/asm-generic/socket.h; Python 3.11 has a name for none of the last two.
_SO_PEERGROUPS = 59
_SO_PEERPIDFD = 77
_UCRED = struct.Struct("=iII")

# NGROUPS_MAX of limits.h: the most the kernel can answer.
_MAX_GROUPS = 65536
# The longest answer of interest: a path of 4096 bytes in each of a dozen cgroup hierarchies.
_MAX_PROC_BYTES = 64 * 1024


class Kernel(Protocol):
    """What is asked of the kernel; a stand-in takes its place in tests."""

    def credentials(self, sock: socket.socket) -> tuple[int, int, int]:
        """(pid, uid, gid) of the peer at connect time; pid 0: not of this pid namespace."""

    def groups(self, sock: socket.socket) -> tuple[int, ...]:
        """Supplementary groups of the peer at connect time."""

    def peer_pidfd(self, sock: socket.socket) -> int | None:
        """A pidfd of the peer; None where the kernel has no SO_PEERPIDFD.

        Raises ProcessLookupError where the peer is gone already.
        """

    def open_pidfd(self, pid: int) -> int:
        """A pidfd of whoever has this pid now. Raises OSError."""

    def close(self, pidfd: int) -> None:
        """Give a pidfd back."""

    def alive(self, pidfd: int) -> bool:
        """Whether the process has not exited; a zombie has."""

    def read(self, path: str) -> bytes:
        """A file below /proc, bounded. Raises OSError."""


class LinuxKernel:
    """The kernel this process runs on. `peer_pidfd_option=False`: as if it were before 6.5."""

    def __init__(self, *, peer_pidfd_option: bool = True) -> None:
        self._peer_pidfd_option = peer_pidfd_option
        self._libc = ctypes.CDLL(None, use_errno=True)

    def credentials(self, sock: socket.socket) -> tuple[int, int, int]:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, gid = _UCRED.unpack(raw)
        return pid, uid, gid

    def groups(self, sock: socket.socket) -> tuple[int, ...]:
        # Python's getsockopt answers at most 1024 bytes, 256 groups; directories give out more.
        size = 4 * 64
        while True:
            room = (ctypes.c_uint32 * (size // 4))()
            length = ctypes.c_uint32(size)
            done = self._libc.getsockopt(
                sock.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, room, ctypes.byref(length)
            )
            if done == 0:
                return tuple(room[: length.value // 4])
            code = ctypes.get_errno()
            if code != errno.ERANGE or not size < length.value <= 4 * _MAX_GROUPS:
                raise OSError(code, f"SO_PEERGROUPS: {os.strerror(code)}")
            size = length.value

    def peer_pidfd(self, sock: socket.socket) -> int | None:
        if not self._peer_pidfd_option:
            return None
        try:
            return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            if error.errno == errno.ENOPROTOOPT:
                return None
            # A reaped peer: ESRCH, or EINVAL from kernels that cannot make a pidfd of it any more.
            if error.errno in (errno.ESRCH, errno.EINVAL):
                raise ProcessLookupError(error.errno, os.strerror(error.errno)) from error
            raise

    def open_pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def close(self, pidfd: int) -> None:
        os.close(pidfd)

    def alive(self, pidfd: int) -> bool:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return not poll.poll(0)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read(_MAX_PROC_BYTES)
