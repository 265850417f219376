"""A process that outlives its host by a moment, to end what the host had started.

A host that is killed ends nothing. Where a service manager or a daemon is there to do it, it does;
where a host was started by hand, or its daemon died with it, workers of MPI would stay, and with
them a GPU's memory.

`python -m onegate.engines.host.warden`, with a pipe from the host as its standard input.
"""

import os
import signal
import subprocess
import sys
import time

from onegate.engines.host.processes import MARK, kill, marked

WARDEN = "onegate.engines.host.warden"
_PAUSE_S = 0.05


class Warden:
    """Started here, it waits for the end of this process. What has no mark has no warden: nobody
    could tell what it has started."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not os.environ.get(MARK):
            return
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", WARDEN],
                # Nothing is written; it ends with the last process that could, which is this one.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            sys.stderr.write(f"nobody will end what a host that is killed leaves: {error}\n")

    @property
    def pid(self) -> int | None:
        """None where there is none."""
        return None if self._process is None else self._process.pid


def main() -> None:
    """Wait for the host's end, then end everything with its mark."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    while left := marked(os.environ.get(MARK, "")):
        kill(left)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
