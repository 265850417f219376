"""The engine host as a child process: in a group of its own, and gone with all that it started."""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from onegate.engines.host.processes import MARK, kill, marked, started_by
from onegate.engines.lines import LineSplitter

# What an engine may need to find its libraries, caches and devices. Everything else of the
# daemon's environment stays here: sockets and watchdogs of systemd, and whatever is secret.
_ENVIRONMENT = {
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "OPAL_PREFIX",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_OFFLINE",
}
_ENVIRONMENT_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OV_", "OPENVINO_", "OMP_", "TLLM_", "TRTLLM_")
_POLL_S = 0.01
_POLL_MAX_S = 0.5


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a host gets."""
    return {
        name: value
        for name, value in environment.items()
        if name in _ENVIRONMENT or name.startswith(_ENVIRONMENT_PREFIXES)
    }


class Child:
    """A started host and the daemon's end of its socket pair. Raises OSError from `Child(...)`.

    See `connection.Connection`. `log` gets its standard error and output line by line.
    """

    is_ours = True
    # An interpreter that starts on a busy machine, from a cold disk.
    hello_s = 60.0

    def __init__(self, python: str, log: Callable[[str], None]) -> None:
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.lines = LineSplitter(log)
        self._python = python
        self._mark = secrets.token_hex(8)
        try:
            # -P: the working directory must not be a place that modules come from.
            self._process = subprocess.Popen(
                [python, "-P", "-m", "onegate.engines.host", "--fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**child_environment(os.environ), MARK: self._mark},
                cwd="/",
            )
        except OSError:
            self.sock.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._output: asyncio.BaseTransport | None = None

    @property
    def last_line(self) -> str:
        """What it wrote last, empty for nothing; the fix in place of what an interpreter says that
        cannot run a host."""
        return _mended(self._python, self.lines.last)

    async def follow_output(self) -> None:
        """Begin to read what it writes to its standard error and output."""
        loop = asyncio.get_running_loop()
        self._output, _ = await loop.connect_read_pipe(lambda: self.lines, self._process.stdout)

    def exit_text(self) -> str | None:
        """How it ended, None while it runs. It is not reaped, so that its group keeps its name."""
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        if found.si_code == os.CLD_EXITED:
            return f"exited with code {found.si_status}"
        return f"was ended by {_signal_name(found.si_status)}"

    async def exited(self, timeout_s: float) -> bool:
        """Wait for its end, at most so long; returns whether it ended."""
        try:
            async with asyncio.timeout(timeout_s):
                await _until(lambda: self.exit_text() is not None)
        except TimeoutError:
            return False
        return True

    def kill(self) -> None:
        """End it at once, with everything that it has started."""
        if self._process.returncode is None:
            # Asked first: what has left its group is below it for as long as it lives.
            started = started_by(self.pid, self._mark)
            os.killpg(self.pid, signal.SIGKILL)
            kill(started)

    async def gone(self) -> None:
        """Kill what is left of it and wait until nothing of it exists, however long: the next one
        finds the memory free."""
        self.kill()
        await _until(lambda: self.exit_text() is not None)
        self._process.wait()
        await _until(self._is_nothing_left)
        if self._output is not None:
            self._output.close()
        elif self._process.stdout is not None:
            self._process.stdout.close()

    def _is_nothing_left(self) -> bool:
        if _exists(self.pid):
            return False
        left = marked(self._mark)
        kill(left)
        return not left


def _mended(python: str, line: str) -> str:
    same = f"install there the version that the daemon is: {python} -m pip install …"
    for module in ("onegate", "msgspec"):
        if f"No module named '{module}'" in line:
            return f"{module} is not installed for {python} (engine.python): {same}"
    # The last line of what a Python before 3.11 says to -P.
    if line.startswith("Try `python -h'"):
        return f"{python} (engine.python) is older than Python 3.11: take a newer one, and {same}"
    return line


def _exists(group: int) -> bool:
    """Whether a process of the group still holds anything; one that nobody reaps does not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(_is_live_member(stat, group) for stat in Path("/proc").glob("[0-9]*/stat"))


def _is_live_member(stat: Path, group: int) -> bool:
    try:
        # The command's name may contain anything but the last bracket ends it.
        state, _, its_group, *_ = (
            stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return False  # it ended meanwhile
    return int(its_group) == group and state not in "ZX"


async def _until(condition: Callable[[], bool]) -> None:
    pause_s = _POLL_S
    while not condition():
        await asyncio.sleep(pause_s)
        pause_s = min(_POLL_MAX_S, pause_s * 1.5)


def _signal_name(number: int) -> str:
    """`SIGKILL`, or the number of a real-time signal, which has no name of its own."""
    named = {known.value: known.name for known in signal.Signals}
    return named.get(number, f"signal {number}")
