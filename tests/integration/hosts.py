"""Engine hosts for the tests: the daemon's side of one, and one that is spoken to by hand."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from onegate.clock import monotonic_ns
from onegate.config import EngineConfig, ScriptedConfig, ScriptedPool
from onegate.engines.base import (
    EngineError,
    EngineEvent,
    EngineRequest,
    PoolChanged,
    PoolState,
)
from onegate.engines.host.wire import WIRE, Attach, FromHost, HostHello, PoolUpdate
from onegate.engines.registry import build_engine
from onegate.protocol.content import Params
from onegate.protocol.framing import FrameReader, frame

PATIENCE_S = 120.0 * float(os.environ.get("ONEGATE_TIMEOUT_FACTOR", "1"))
SLOW = ScriptedPool(a_ms=5.0, b_ms_per_prefill_tok=0.0, c_ms_per_seq=0.0)


def scripted(pool: ScriptedPool = SLOW, **given) -> EngineConfig:
    given.setdefault("restart_backoff_ms", 1)
    return EngineConfig(kind="scripted", scripted=ScriptedConfig(pools=(pool,)), **given)


def hosts(parent: int) -> list[int]:
    """Engine hosts that are children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            command = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and b"onegate.engines.host" in command:
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def environment_names(pid: int) -> set[str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {entry.partition(b"=")[0].decode() for entry in entries}


def closes_on_exec(pid: int, fd: str) -> bool:
    """Whether what a process starts does not get this descriptor."""
    info = Path(f"/proc/{pid}/fdinfo/{fd}").read_text(encoding="utf-8").split()
    return bool(int(info[info.index("flags:") + 1], 8) & os.O_CLOEXEC)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


class Daemon:
    """The daemon's side: an engine, and what it told."""

    def __init__(self, config: EngineConfig) -> None:
        self.log: list[str] = []
        self.events: list[EngineEvent] = []
        self.engine = build_engine(config, log=self.log.append, crashed=self.crashed)

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def crashed(self, name: str, error: BaseException) -> None:
        self.log.append(f"{name} crashed: {error!r}")

    def state(self) -> PoolState:
        return self.engine.pools()[0].state

    async def ready(self) -> None:
        await until(lambda: self.state() is PoolState.READY)

    async def failed(self) -> str:
        def failures() -> list[str]:
            pools = [event.pool for event in self.of(PoolChanged)]
            return [pool.error for pool in pools if pool.state is PoolState.FAILED]

        await until(lambda: bool(failures()))
        return failures()[0]

    async def run(self, id: int, prompt: str, max_tokens: int = 8) -> tuple[list, object]:
        request = EngineRequest(
            id=id,
            model=self.engine.pools()[0].model,
            prompt=prompt,
            max_tokens=max_tokens,
            params=Params(ignore_eos=True),
        )
        items = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for item in self.engine.generate(request):
                    items.append(item)
        except EngineError as error:
            return items, error
        return items, None


class Wire:
    """The daemon's end of a connection to a host, by hand."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE_S)
        self.sock = sock
        self._reader = FrameReader(1 << 24)
        self._frames: list[bytes] = []

    def send(self, message: object) -> None:
        self.sock.sendall(frame(msgspec.msgpack.encode(message)))

    def receive(self) -> FromHost | None:
        while not self._frames:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return msgspec.msgpack.decode(self._frames.pop(0), type=FromHost)

    def receive_a(self, kind: type) -> FromHost:
        deadline = monotonic_ns() + int(PATIENCE_S * 1e9)
        while not isinstance(message := self.receive(), kind):
            assert message is not None
            assert monotonic_ns() < deadline, f"no {kind.__name__}"
        return message

    def ready(self) -> None:
        self.attach()
        pools = self.receive_a(HostHello).pools
        while pools[0].state is not PoolState.READY:
            pools = [self.receive_a(PoolUpdate).pool]

    def attach(self, **pool: object) -> None:
        free = {"a_ms": 0.0, "c_ms_per_seq": 0.0}
        settings = msgspec.to_builtins(ScriptedPool(**{**free, **pool}))
        table = {"kind": "scripted", "pools": [settings], "loadable": 1}
        self.send(Attach(wire=WIRE, daemon_pid=os.getpid(), engine=table))


class Manager:
    """What a service manager is to a host: it hears its messages, ends it, and starts the next."""

    def __init__(self, directory: Path, watchdog_usec: int | None = None, *arguments: str) -> None:
        self.path = str(directory / "host.sock")
        self._log = directory / "host.log"
        self._arguments = arguments
        self._usec = watchdog_usec
        self._address = str(directory / "notify")
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(self._address)
        self.starts = 0
        self.start()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        """Start a host; returns when it says that it is ready."""
        environ = {**os.environ, "NOTIFY_SOCKET": self._address}
        if self._usec is not None:
            environ["WATCHDOG_USEC"] = str(self._usec)
        command = [sys.executable, "-P", "-m", "onegate.engines.host", "--listen", self.path]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._arguments], stderr=log, env=environ, stdin=subprocess.DEVNULL
            )
        self.starts += 1
        while "READY=1" not in self.hear():
            pass

    def hear(self, timeout_s: float = PATIENCE_S) -> list[str]:
        """The next message of the host, as its lines; empty where none comes in time."""
        self._notify.settimeout(timeout_s)
        try:
            return self._notify.recv(4096).decode().splitlines()
        except (TimeoutError, BlockingIOError):
            assert timeout_s < PATIENCE_S, f"no message in time:\n{self.log}"
            return []

    def hear_a(self, line: str) -> None:
        """Hear messages until one has this line."""
        deadline = monotonic_ns() + int(PATIENCE_S * 1e9)
        while line not in self.hear():
            assert monotonic_ns() < deadline, f"no {line}:\n{self.log}"

    def unheard(self) -> list[str]:
        """Every line that has been said and not been heard."""
        lines: list[str] = []
        while message := self.hear(0.0):
            lines += message
        return lines

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def connect(self) -> Wire:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(self.path)
        return Wire(sock)

    def close(self) -> None:
        self.kill()
        self._notify.close()
