"""Questions to the kernel: the parts that need no socket."""

import errno
import os
import socket
import subprocess
from typing import cast

import pytest

from onegate.server.kernel import LinuxKernel


class OptionSocket:
    """Answers getsockopt as it is told."""

    def __init__(self, answer: int | bytes | OSError) -> None:
        self._answer = answer

    def getsockopt(self, level: int, option: int, length: int = 0) -> int | bytes:
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer


def answering(answer: int | bytes | OSError) -> socket.socket:
    return cast(socket.socket, OptionSocket(answer))


def refusing(code: int) -> socket.socket:
    return answering(OSError(code, os.strerror(code)))


def test_credentials_are_unsigned() -> None:
    raw = (77).to_bytes(4, "little") + b"\xfe\xff\xff\xff" + b"\xfd\xff\xff\xff"
    assert LinuxKernel().credentials(answering(raw)) == (77, 0xFFFFFFFE, 0xFFFFFFFD)


def test_a_kernel_without_the_option_has_no_pidfd_for_us() -> None:
    assert LinuxKernel().peer_pidfd(refusing(errno.ENOPROTOOPT)) is None


def test_the_option_can_be_left_alone() -> None:
    assert LinuxKernel(peer_pidfd_option=False).peer_pidfd(answering(5)) is None
    assert LinuxKernel().peer_pidfd(answering(5)) == 5


@pytest.mark.parametrize("code", [errno.ESRCH, errno.EINVAL])
def test_a_peer_that_is_gone(code: int) -> None:
    with pytest.raises(ProcessLookupError):
        LinuxKernel().peer_pidfd(refusing(code))


def test_other_errors_are_not_taken_for_that() -> None:
    with pytest.raises(OSError, match="Too many open files"):
        LinuxKernel().peer_pidfd(refusing(errno.EMFILE))


def test_a_pidfd_tells_life_from_death() -> None:
    kernel = LinuxKernel()
    # `cat` lives for as long as its input is open.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        pidfd = kernel.open_pidfd(child.pid)
        try:
            assert kernel.alive(pidfd)
            assert child.stdin is not None
            child.stdin.close()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert not kernel.alive(pidfd)  # a zombie has exited
        finally:
            kernel.close(pidfd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pidfd)


def test_files_are_read_up_to_a_bound() -> None:
    kernel = LinuxKernel()
    assert kernel.read("/proc/self/stat").startswith(b"%d (" % os.getpid())
    assert len(kernel.read("/dev/zero")) == 64 * 1024
