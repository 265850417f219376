"""A gate and a proxy in front of it, as processes, for clients that know of neither."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.conftest import Daemon, running_daemon
from tests.integration.daemon import Observed

OUR_FAULT = (" ERROR bug ", "Traceback")


@dataclass
class Rig:
    """`url` is where an Ollama would be."""

    url: str
    daemon: Daemon
    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_idle(self) -> None:
        """Until the gate holds nothing for anybody. The seat of a request that was left is the
        engine's until it says so, and whoever comes next would wait for it."""
        Observed(self.daemon).wait_idle()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def speaks_for_others() -> str:
    """The grant that makes whoever runs the tests a delegate."""
    return f"\n[[grant]]\nuid = {os.getuid()}\ndelegate = true\n"


@contextmanager
def proxied(
    directory: Path, gate: str, timeout_s: float, *, upstream: str | None = None, more: str = ""
) -> Iterator[Rig]:
    """A daemon with the configuration `gate`, and a proxy with `more`. Both have to end with exit
    code 0, and nothing in a log may be a bug."""
    with running_daemon(directory / "gate", gate + speaks_for_others(), timeout_s) as daemon:
        port = free_port()
        config = directory / "ollama-proxy.toml"
        top = "" if upstream is None else f'upstream = "{upstream}"\n'
        listener = f'[[listener]]\naddress = "127.0.0.1:{port}"\n'
        config.write_text(top + more + listener, encoding="utf-8")
        log_path = directory / "proxy.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "onegate_ollama_proxy"),
                    *("--config", str(config), "--gate", daemon.socket),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        rig = Rig(f"http://127.0.0.1:{port}", daemon, process, log_path)
        try:
            _wait(rig, timeout_s)
            yield rig
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout_s)
    assert code == 0, rig.log
    faults = [line for line in rig.log.splitlines() if any(word in line for word in OUR_FAULT)]
    assert not faults, "\n".join(faults)


def _wait(rig: Rig, timeout_s: float) -> None:
    ends = time.monotonic() + timeout_s  # noqa: TID251  a test's own guard
    while True:
        assert rig.process.poll() is None, rig.log
        try:
            urllib.request.urlopen(rig.url + "/", timeout=timeout_s).close()
            return
        except urllib.error.HTTPError:
            return  # it answers, if only that it can't
        except urllib.error.URLError:
            assert time.monotonic() < ends, rig.log  # noqa: TID251
            time.sleep(0.05)
