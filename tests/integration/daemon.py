"""A daemon under observation: what the kernel counts for it, and what it says of itself."""

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.conftest import Daemon, descendants, running_daemon
from tests.integration.raw import Raw, Victim

MIB = 1024 * 1024

# Events of the log that are a bug of the daemon's, whatever a client or an engine has done.
OUR_FAULT = (" ERROR bug ", " ERROR task_crashed ")


def scripted(*, gate: str = "", engine: str = "", rest: str = "", **pool: object) -> str:
    """A configuration with the scripted engine. Keywords are keys of its pool."""
    lines = [f"{key} = {_toml(value)}" for key, value in pool.items()]
    return "\n".join(
        [
            "[engine]",
            'kind = "scripted"',
            engine,
            "[[engine.scripted.pools]]",
            *lines,
            "[gate]",
            gate,
            rest,
            "",
        ]
    )


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Figures:
    """What one process takes: resident bytes, open descriptors, threads."""

    rss_mib: float
    fds: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Figures":
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return cls(
            rss_mib=int(fields["VmRSS"].split()[0]) / 1024,
            fds=len(os.listdir(f"/proc/{pid}/fd")),
            threads=int(fields["Threads"]),
        )


class Observed:
    """A running daemon, the ways to reach it, and what must hold of it after every test."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.socket = daemon.socket
        self.pid = daemon.process.pid
        self.timeout_s = daemon.timeout_s

    def connect(self) -> Raw:
        """A connection that has said nothing yet."""
        return Raw.connect(self.socket, self.timeout_s)

    def greeted(self, **fields: object) -> Raw:
        """A connection that has been welcomed."""
        raw = self.connect()
        raw.greet(**fields)
        return raw

    def victim(self, data: bytes, *, read: bool = True) -> Victim:
        """A connection of a process of its own."""
        return Victim(self.socket, data, self.timeout_s, read=read)

    def wait(self, true: Callable[[], object]) -> None:
        """Poll until it holds."""
        self.daemon.wait(lambda: true() or None)

    def status(self) -> dict[str, Any]:
        with self.greeted() as raw:
            return raw.status()

    def requests(self) -> list[dict[str, Any]]:
        with self.greeted() as raw:
            return raw.requests()

    def pool(self) -> dict[str, Any]:
        """The first pool's part of the status."""
        pool: dict[str, Any] = self.status()["pools"][0]
        return pool

    def class_(self, name: str) -> dict[str, Any]:
        """One class's part of the status."""
        classes: list[dict[str, Any]] = self.status()["classes"]
        return next(found for found in classes if found["name"] == name)

    def wait_states(self, *states: str) -> None:
        """Until exactly such requests are live."""
        self.wait(lambda: sorted(row["state"] for row in self.requests()) == sorted(states))

    def wait_idle(self) -> None:
        """Until nothing is held any more: no request, no permit, no seat, no cache, no bytes."""
        with self.greeted() as raw:
            self.wait(lambda: idle(raw.status()) and not raw.requests())

    def host_pid(self) -> int:
        """The engine host's process."""
        return self.daemon.wait(
            lambda: next((pid for pid in descendants(self.pid) if is_host(pid)), None)
        )

    def figures(self) -> Figures:
        """What the daemon takes now."""
        return Figures.of(self.pid)

    def figures_with(self, watch: Raw) -> Figures:
        """The same once `watch` is the only connection left: comparable to the last descriptor."""
        self.wait(lambda: watch.status()["gate"]["sessions"] == 1)
        # The loop closes a descriptor some turns after its session has gone, or its host has died.
        for _ in range(20):
            time.sleep(0.02)
            watch.status()
        return self.figures()

    def lines(self, event: str) -> list[str]:
        """The log's lines of one event."""
        return [line for line in self.daemon.log.splitlines() if f" {event}" in f"{line} "]

    def limit_fds(self, count: int) -> None:
        """Leave the daemon that many descriptors in all."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (count, hard))

    def check_unharmed(self) -> None:
        """It answers, and nothing that it did was a bug."""
        with self.greeted() as raw:
            raw.ask(1, "still there? [[tokens:1]]")
            assert raw.end(1)["t"] == "done"
        self.check_log()

    def check_log(self) -> None:
        """No line of the log is about a bug."""
        log = self.daemon.log
        faults = [line for line in log.splitlines() if any(word in line for word in OUR_FAULT)]
        assert not faults, "\n".join(faults)
        assert "Traceback" not in log, log


@contextlib.contextmanager
def observed(directory: Path, config: str, timeout_s: float) -> Iterator[Observed]:
    """A daemon of its own. At the end: exit code 0, no bug in the log, no process left."""
    with running_daemon(directory, config, timeout_s) as daemon:
        yield Observed(daemon)
    Observed(daemon).check_log()


def idle(status: dict[str, Any]) -> bool:
    """Whether a daemon holds nothing for anybody."""
    gate = status["gate"]
    return not any(
        [
            gate["in_flight"],
            gate["queued"],
            gate["queued_tok"],
            gate["inbound_bytes"],
            *(pool["seats_used"] for pool in status["pools"]),
            *(pool["seats_quarantined"] for pool in status["pools"]),
            *(pool["kv_tok_used"] for pool in status["pools"]),
        ]
    )


def is_host(pid: int) -> bool:
    """Whether this process is an engine host."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"onegate.engines.host" in command
