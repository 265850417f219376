"""A daemon of one's own for a short time, in a directory that nobody else can enter."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from onegate.cli.endings import ENDINGS

# Longer than a drain without running work takes, short enough for whoever watches.
STOP_TIMEOUT_S = 15.0
LOG_LINES_SHOWN = 5

# What a service manager says to its own child only.
_NOT_INHERITED = (
    *("ONEGATE_SOCKET", "ONEGATE_CONFIG", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"),
)


class DaemonEnded(Exception):
    """The daemon is gone although nobody stopped it; the text is the end of its log."""


class PrivateDaemon:
    """`with PrivateDaemon(config) as daemon:` runs `onegated` at `daemon.socket`.

    However the block is left, the daemon and its engine have ended and the directory is gone; soon
    after also where this process is killed.
    """

    def __init__(self, config: str) -> None:
        self._config = config
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = ""

    def __enter__(self) -> Self:
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="onegate-"))  # mode 0700
            self.socket = str(self._directory / "onegate.sock")
            config = self._directory / "onegate.toml"
            config.write_text(self._config, encoding="utf-8")
            environment = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
            with self._log.open("wb") as log:
                # A session of its own, so that the terminal's Ctrl-C reaches this process only,
                # which then ends the daemon in good order.
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "onegate.cli.guardian", self._directory),
                        *(sys.executable, "-m", "onegate.server.main"),
                        *("--config", config, "--socket", self.socket),
                    ],
                    # Closed with this process, also where that cannot end it itself.
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        assert self._directory is not None
        return self._directory / "log"

    def check(self) -> None:
        """Raises DaemonEnded if the daemon no longer runs."""
        if self._process is not None and (code := self._process.poll()) is not None:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            said = "; ".join(lines[-LOG_LINES_SHOWN:]) or "it said nothing"
            raise DaemonEnded(f"the daemon ended with exit code {code}: {said}")

    def stop(self) -> None:
        """End the daemon and remove the directory; an impatient second Ctrl-C changes nothing."""
        with _unimpressed():
            if self._process is not None:
                _end(self._process)
                self._process = None
            if self._directory is not None:
                shutil.rmtree(self._directory)
                self._directory = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


@contextmanager
def _unimpressed() -> Iterator[None]:
    """Signals that would end this process are ignored meanwhile."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
