"""Daemons for the tests: a real one in a directory of its own, and one that a test plays."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from onegate import Client, OnegateError
from onegate.protocol import messages as m
from onegate.protocol.connection import HelloReceived, RequestReceived, ServerConnection
from onegate.protocol.content import FinishReason, Identity, Usage
from onegate.protocol.errors import Phase, Reason

T = TypeVar("T")

SCRIPTED = '[engine]\nkind = "scripted"\n'
OPENVINO = '[engine]\nkind = "openvino"\n'


def grant(uid: int) -> str:
    """Whoever runs the tests may use every class and administer."""
    return f'\n[[grant]]\nuid = {uid}\nceiling = "interactive"\nadmin = true\n'


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where pytest-xdist runs tests side by side, what is to be alone goes to one worker: a model
    is loaded once for all of its tests, and a benchmark does not measure another one."""
    for item in items:
        if (mark := item.get_closest_marker("alone")) is not None:
            item.add_marker(pytest.mark.xdist_group(mark.args[0]))


# --- a real daemon --------------------------------------------------------------------------------


@dataclass
class Daemon:
    """`onegated` as a process. `socket` is where it listens."""

    directory: Path
    process: subprocess.Popen[bytes]
    socket: str
    timeout_s: float
    children: set[int] = field(default_factory=set)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def wait(self, what: Callable[[], T | None]) -> T:
        """Poll until `what` returns something, with the log in the failure otherwise."""
        ends = time.monotonic() + self.timeout_s  # noqa: TID251  a test's own guard
        while (found := what()) is None:
            assert self.process.poll() is None, f"the daemon ended:\n{self.log}"
            assert time.monotonic() < ends, f"it did not happen in time:\n{self.log}"  # noqa: TID251
            time.sleep(0.02)
        return found

    def wait_ready(self) -> None:
        """Until a model is loaded."""
        self.wait(self._ready)
        self.children = descendants(self.process.pid)

    def _ready(self) -> bool | None:
        try:
            with Client(self.socket) as gate:
                status = gate.status()
        except OnegateError:
            return None
        return any(pool.state == "ready" for pool in status.pools) or None

    def stop(self) -> int:
        """SIGTERM; returns the exit code once neither it nor a child of it is left."""
        self.children |= descendants(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"the daemon did not end on SIGTERM:\n{self.log}")
        left = {pid for pid in self.children if alive(pid)}
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"left running: {left}\n{self.log}"
        return code


def descendants(pid: int) -> set[int]:
    """Every process below `pid` at this moment."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found: set[int] = set()
    grown = {pid}
    while grown:
        grown = {child for child, parent in parents.items() if parent in grown} - found
        found |= grown
    return found


def alive(pid: int) -> bool:
    """Whether it still runs; a zombie that nobody has reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


StartDaemon = Callable[..., Daemon]


@contextmanager
def running_daemon(directory: Path, config: str, timeout_s: float) -> Iterator[Daemon]:
    """A daemon whose model is loaded; it must end with exit code 0 and leave nothing behind."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "onegate.toml").write_text(config + grant(os.getuid()), encoding="utf-8")
    path = str(directory / "onegate.sock")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ONEGATE_", "LISTEN_"))}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "onegate.server.main"),
                *("--config", directory / "onegate.toml", "--socket", path),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=kept,
        )
    daemon = Daemon(directory, process, path, timeout_s)
    try:
        daemon.wait_ready()
        yield daemon
    finally:
        if process.poll() is None:
            code = daemon.stop()
            assert code == 0, f"exit code {code}:\n{daemon.log}"
    assert not Path(path).exists(), "the socket was left behind"


@pytest.fixture
def running() -> Callable[..., AbstractContextManager[Daemon]]:
    """`running(directory, config, timeout_s)`, for tests that end and start daemons themselves."""
    return running_daemon


@pytest.fixture
def daemon(tmp_path: Path, timeout_factor: float) -> Iterator[Daemon]:
    """A daemon with the scripted engine, for one test."""
    with running_daemon(tmp_path / "d", SCRIPTED, 30 * timeout_factor) as daemon:
        yield daemon


@pytest.fixture
def start_daemon(tmp_path: Path, timeout_factor: float) -> Iterator[StartDaemon]:
    """Starts daemons by configuration text; all are ended with the test."""
    with ExitStack() as stack:

        def start(config: str = SCRIPTED, name: str = "d") -> Daemon:
            return stack.enter_context(running_daemon(tmp_path / name, config, 30 * timeout_factor))

        yield start


@pytest.fixture(scope="session")
def openvino_daemon(
    tmp_path_factory: pytest.TempPathFactory, timeout_factor: float
) -> Iterator[Daemon]:
    """A daemon with the embedded model, shared by all tests that only ask it things."""
    directory = tmp_path_factory.mktemp("openvino")
    with running_daemon(directory, OPENVINO, 120 * timeout_factor) as daemon:
        yield daemon


# --- a daemon that a test plays -------------------------------------------------------------------

LIMITS = m.Limits(max_frame_bytes=1 << 20, frame_timeout_ms=10_000, in_flight_per_session=256)


def welcome() -> m.Welcome:
    return m.Welcome(
        peer=m.PeerFacts(uid=7, gid=7, pid=7),
        class_="loop",
        ceiling="interactive",
        why=["no hint matched: loop"],
        models=[m.ModelInfo(model="tiny", state="ready", max_context_tok=4096)],
        limits=LIMITS,
        features=["v1"],
        version="0",
    )


def failed(reason: Reason, call_id: int | None = None, **more: object) -> m.Failed:
    fields: dict[str, object] = {"message": "a sentence", "retryable": True, "phase": Phase.QUEUED}
    return m.Failed(reason=reason, id=call_id, **(fields | more))


def answer(call_id: int, *texts: str) -> list[m.DaemonMessage]:
    """A whole answer, one chunk per text."""
    return [
        m.Started(id=call_id, rid=f"r{call_id}", queue_ms=0.0),
        *(m.Chunk(id=call_id, n_tok=1, text=text) for text in texts),
        m.Done(
            id=call_id,
            rid=f"r{call_id}",
            finish_reason=FinishReason.STOP,
            usage=Usage(prompt_tok=3, output_tok=len(texts)),
            timings=m.Timings(queue_ms=0.0, e2e_ms=1.0),
            identity=Identity(engine="scripted", model="tiny"),
        ),
    ]


class PlayedConnection:
    """The daemon's end of one connection, one step at a time."""

    welcome = staticmethod(welcome)
    failed = staticmethod(failed)
    answer = staticmethod(answer)

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._wire = ServerConnection()
        self._events: list[Any] = []

    def expect(self, kind: type[T]) -> T:
        """The next message, which has to be a `kind`."""
        while not self._events:
            data = self._socket.recv(65_536)
            assert data, f"end of file instead of {kind.__name__}"
            self._events += self._wire.receive(data)
        event = self._events.pop(0)
        assert isinstance(event, HelloReceived | RequestReceived), event
        assert isinstance(event.message, kind), event
        return event.message

    def greet(self) -> m.Hello:
        hello = self.expect(m.Hello)
        self.say(welcome())
        return hello

    def say(self, *messages: m.DaemonMessage) -> None:
        self._socket.sendall(b"".join(self._wire.send(message) for message in messages))

    def write(self, data: bytes) -> None:
        """Bytes that need not be a message."""
        self._socket.sendall(data)

    def expect_end(self) -> None:
        """The client closes, having said nothing more."""
        try:
            data = self._socket.recv(65_536)
        except ConnectionResetError:
            return
        assert not data, f"instead of an end of file: {self._wire.receive(data)}"

    def close(self) -> None:
        self._socket.close()


Part = Callable[[PlayedConnection], None]


class PlayedDaemon:
    """Plays `parts`, one per connection, in a thread. Leaving the test joins and judges it."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        self.socket = str(directory / "played.sock")
        self.listener: socket.socket | None = None
        self._timeout_s = timeout_s
        self._errors: list[BaseException] = []
        self._thread: threading.Thread | None = None

    def play(self, *parts: Part) -> None:
        self.listen()
        self._thread = threading.Thread(target=self._run, args=(parts,), daemon=True)
        self._thread.start()

    def listen(self, backlog: int = 16) -> socket.socket:
        Path(self.socket).unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.settimeout(self._timeout_s)
        self.listener.bind(self.socket)
        self.listener.listen(backlog)
        return self.listener

    def _run(self, parts: tuple[Part, ...]) -> None:
        assert self.listener is not None
        for part in parts:
            try:
                sock, _ = self.listener.accept()
                with sock:
                    sock.settimeout(self._timeout_s)
                    part(PlayedConnection(sock))
            except BaseException as error:  # judged by finish(), in the thread of the test
                self._errors.append(error)
                return

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join(self._timeout_s)
            assert not self._thread.is_alive(), "the played daemon still waits for something"
        if self.listener is not None:
            self.listener.close()
        if self._errors:
            raise self._errors[0]


@pytest.fixture
def played(tmp_path: Path, timeout_factor: float) -> Iterator[PlayedDaemon]:
    daemon = PlayedDaemon(tmp_path, 10 * timeout_factor)
    yield daemon
    daemon.finish()
