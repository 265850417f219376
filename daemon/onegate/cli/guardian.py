"""Stands between a command and a child that must not outlive it, however the command ends.

`python -m onegate.cli.guardian DIRECTORY PROGRAM ...`: standard input is a pipe from the command.
When that is closed, by whatever end of the command, the child is ended and the directory removed.
"""

import os
import select
import shutil
import signal
import subprocess
import sys

# Longer than a drain without running work takes.
STOP_TIMEOUT_S = 15.0


def main(arguments: list[str]) -> int:
    """Until the child has ended; its exit code. Being terminated terminates the child."""
    directory, *command = arguments
    endings = {signal.SIGTERM}
    # Held back until there is a child to pass it on to.
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, endings),
    )
    signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, endings)
    if _left_alone(child.pid):
        _end(child)
        shutil.rmtree(directory, ignore_errors=True)  # the command may have begun to
    code = child.wait()
    return code if code >= 0 else 128 - code


def _left_alone(pid: int) -> bool:
    """Wait; whether it was the command that ended, and not the child."""
    over = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([0, over], [], [])
        return over not in ready
    finally:
        os.close(over)


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()  # its engine ends with it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
