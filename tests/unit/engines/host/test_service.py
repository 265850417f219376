"""One service in a thread, daemons that a test plays."""

import contextlib
import os
import select
import socket
import threading
from collections import deque

import msgspec
import pytest

from onegate.engines.base import (
    EngineCapacity,
    EngineRequest,
    PoolInfo,
    PoolState,
    Reservation,
)
from onegate.engines.host import service
from onegate.engines.host.engine import LoadFailed, StepReport
from onegate.engines.host.listen import Listener
from onegate.engines.host.notify import Notifier
from onegate.engines.host.service import EXIT_ANEW, Service
from onegate.engines.host.wire import (
    WIRE,
    AcceptedMsg,
    Attach,
    Exit,
    FromHost,
    HostHello,
    Submit,
)
from onegate.protocol.framing import FrameReader, frame

PATIENCE_S = 60.0
ME = frozenset({os.geteuid()})
CAPACITY = EngineCapacity(max_seqs=4, max_context_tok=10, reservation=Reservation.GROW)


class Engine:
    """A sequence runs until it is aborted and a step has passed; `held` keeps its seat longer."""

    kind = "fake"
    version = "1"
    wake = None
    closed = False

    steps = 0
    asked = 0

    @property
    def due(self):
        self.asked += 1
        return self.busy if self.wake is None else bool(select.select([self.wake], [], [], 0)[0])

    def elsewhere(self):
        """From now on it computes elsewhere, and `tell` says that a step is due."""
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def tell(self):
        os.eventfd_write(self.wake, 1)

    def close(self):
        self.closed = True

    def __init__(self):
        self.state = PoolState.READY
        self.inside = {}
        self.stepped = threading.Event()
        self.aborted = []
        self.held = False
        self.breaks = None
        self.looked_while = []
        self.replaced = False

    @property
    def busy(self):
        return bool(self.inside) or self.state is PoolState.LOADING

    def pools(self):
        return [PoolInfo(model="m", state=self.state, capacity=CAPACITY)]

    def submit(self, request):
        self.inside[request.id] = False
        return AcceptedMsg(id=request.id)

    def look_again(self):
        self.looked_while.append(list(self.inside))
        if self.replaced:
            self.state = PoolState.LOADING

    def abort(self, id):
        self.aborted.append(id)
        self.inside[id] = True

    def running(self, model):
        return list(self.inside)

    def step(self):
        self.steps += 1
        if self.wake is not None:
            os.eventfd_read(self.wake)
        self.stepped.set()
        if self.breaks is not None:
            raise self.breaks
        if self.state is PoolState.LOADING:
            return StepReport(stepped=False)
        freed = [id for id, aborted in self.inside.items() if aborted and not self.held]
        for id in freed:
            del self.inside[id]
        return StepReport(freed=freed)


class Played:
    """A daemon: one connection."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(path)
        self._reader = FrameReader(1 << 20)
        self._frames = deque()

    def say(self, *messages):
        self.sock.sendall(b"".join(frame(msgspec.msgpack.encode(m)) for m in messages))

    def attach(self, engine="same"):
        self.say(Attach(wire=WIRE, daemon_pid=1, engine={"k": engine}))
        return self

    def hear(self):
        while not self._frames:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return msgspec.msgpack.decode(self._frames.popleft(), type=FromHost)

    def hear_a(self, kind):
        while not isinstance(message := self.hear(), kind):
            assert message is not None, f"the end instead of {kind.__name__}"
        return message

    def is_told(self, within_s):
        self.sock.settimeout(within_s)
        with contextlib.suppress(TimeoutError):
            return bool(self.sock.recv(1))
        return False

    def ends(self):
        while self.hear() is not None:
            pass


class Running:
    def __init__(self, path, uids):
        self.path = path
        self.code = None
        self.listener = Listener(path, uids)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        self.code = Service(self.listener, Notifier()).run()

    def join(self):
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.code


@pytest.fixture
def built():
    return []


@pytest.fixture
def start(tmp_path, monkeypatch, built):
    """Starts a service; `read_settings` is the table's one value, `bad` is none."""

    def read_settings(table):
        if table["k"] == "bad":
            raise msgspec.ValidationError("bad")
        return table["k"]

    def build(settings, *, hang_up):
        built.append(settings)
        made.hang_up = hang_up
        return made

    made = Engine()
    monkeypatch.setattr(service, "read_settings", read_settings)
    monkeypatch.setattr(service, "build_engine", build)
    services, daemons = [], []

    def start(uids=ME):
        running = Running(str(tmp_path / "h.sock"), uids)
        services.append(running)
        return running, made

    def daemon():
        daemons.append(Played(services[0].path))
        return daemons[-1]

    start.daemon = daemon
    start.daemons = daemons
    yield start
    made.held = False
    for played in daemons:
        played.sock.close()
    for running in services:
        if running.thread.is_alive():
            running.listener._uids = ME
            last = Played(running.path).attach()
            last.say(Exit())
            if made.wake is not None:
                made.tell()
            running.join()
            last.sock.close()
        running.listener.sock.close()
        os.close(running.listener._lock_fd)


def submit(id):
    return Submit(request=EngineRequest(id=id, model="m", max_tokens=1, prompt="x"))


def test_the_engine_is_built_for_the_first_daemon_and_kept_for_the_next(start, built):
    start()
    for _ in range(3):
        daemon = start.daemon().attach()
        assert daemon.hear_a(HostHello).pools[0].model == "m"
        daemon.sock.close()
    assert built == ["same"]


def test_what_a_daemon_leaves_is_aborted(start):
    _, engine = start()
    daemon = start.daemon().attach()
    daemon.say(submit(1), submit(2))
    daemon.hear_a(AcceptedMsg)
    daemon.hear_a(AcceptedMsg)
    daemon.sock.close()
    start.daemon().attach().hear_a(HostHello)
    assert (engine.aborted, engine.inside) == ([1, 2], {})


def test_the_next_daemon_is_greeted_when_nothing_of_the_last_one_runs(start):
    _, engine = start()
    first = start.daemon().attach()
    first.say(submit(1))
    first.hear_a(AcceptedMsg)
    engine.held = True
    first.sock.close()
    second = start.daemon().attach()
    assert not second.is_told(0.2)
    assert engine.inside
    engine.held = False
    second.sock.settimeout(PATIENCE_S)
    second.hear_a(HostHello)
    assert not engine.inside


def test_work_goes_on_while_nobody_is_attached(start):
    _, engine = start()
    daemon = start.daemon().attach()
    daemon.hear_a(HostHello)
    engine.state = PoolState.LOADING
    daemon.sock.close()
    for _ in range(3):
        engine.stepped.clear()
        assert engine.stepped.wait(PATIENCE_S)
    engine.state = PoolState.READY


def test_an_engine_that_computes_elsewhere_is_heard_while_nobody_is_attached(start):
    """Also by a daemon that waits for what the last one has left."""
    _, engine = start()
    engine.elsewhere()
    engine.held = True
    first = start.daemon().attach()
    first.hear_a(HostHello)
    first.say(submit(1))
    first.hear_a(AcceptedMsg)
    first.sock.close()
    while not engine.aborted:
        pass
    steps = engine.steps
    engine.tell()
    while engine.steps == steps:
        pass
    second = start.daemon().attach()
    steps = engine.steps
    engine.tell()
    while engine.steps == steps:
        pass
    assert not second.is_told(within_s=0.05)
    turns = engine.asked
    assert not second.is_told(within_s=0.05)
    # Nobody turned and turned meanwhile.
    assert engine.asked - turns < 10
    engine.held = False
    engine.tell()
    second.sock.settimeout(PATIENCE_S)
    second.hear_a(HostHello)


def test_a_second_daemon_waits_for_the_first(start):
    start()
    first = start.daemon().attach()
    first.hear_a(HostHello)
    second = start.daemon().attach()
    assert not second.is_told(0.2)
    first.sock.close()
    second.sock.settimeout(PATIENCE_S)
    second.hear_a(HostHello)


def test_other_settings_are_for_another_process(start, built):
    running, _ = start()
    daemon = start.daemon().attach()
    daemon.say(submit(1))
    daemon.hear_a(AcceptedMsg)
    daemon.sock.close()
    start.daemon().attach("other").ends()
    assert running.join() == EXIT_ANEW == 75
    assert built == ["same"]


@pytest.mark.parametrize("loaded", [True, False])
def test_settings_that_are_none_cost_the_connection(start, built, capsys, loaded):
    running, _ = start()
    if loaded:
        start.daemon().attach().hear_a(HostHello)
    for connection in start.daemons:
        connection.sock.close()
    start.daemon().attach("bad").ends()
    start.daemon().attach().hear_a(HostHello)
    assert built == ["same"]
    assert running.thread.is_alive()
    assert "settings are wrong: bad" in capsys.readouterr().err


def test_each_daemon_has_the_files_looked_at_once_nothing_runs(start):
    _, engine = start()
    first = start.daemon().attach()
    first.say(submit(1))
    first.hear_a(AcceptedMsg)
    first.sock.close()
    engine.replaced = True
    hello = start.daemon().attach().hear_a(HostHello)
    assert engine.looked_while == [[], []]
    assert hello.pools[0].state is PoolState.LOADING
    engine.state, engine.replaced = PoolState.READY, False


def test_another_wire_is_for_another_process(start):
    running, _ = start()
    daemon = start.daemon()
    daemon.sock.sendall(frame(msgspec.msgpack.encode({"t": "attach", "wire": WIRE + 1})))
    assert daemon.hear_a(HostHello).pools == []
    daemon.ends()
    assert running.join() == 76


DEEP = b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize(
    "payload",
    [
        frame(b"\xc1 secret"),
        frame(b"\x82\xa1t\xa6attach\xa6engine\x81\xa6secret" + DEEP),
        frame(b"\x82\xa1t\xa6submit\xa7request\x81\xa6secret" + DEEP),
        frame(b"\x82\xa1t\xa5abort\xa2id\xcf" + b"\xff" * 8),
        b"\xff\xff\xff\xff",
    ],
    ids=["no message", "deep attach", "deep submit", "huge id", "long"],
)
def test_a_daemon_that_breaks_the_wire_costs_only_itself(start, built, capsys, when, payload):
    start()
    daemon = start.daemon()
    if when == "later":
        daemon.attach().hear_a(HostHello)
    daemon.sock.sendall(payload)
    daemon.ends()
    # Cut off in the middle of a frame, after that.
    daemon = start.daemon()
    daemon.sock.sendall(payload[: len(payload) // 2])
    daemon.sock.close()
    start.daemon().attach().hear_a(HostHello)
    assert built == ["same"]
    said = capsys.readouterr().err
    assert "broke the wire" in said
    assert "secret" not in said


def test_one_that_connects_and_goes_is_nothing(start):
    start()
    start.daemon().sock.close()
    start.daemon().attach().hear_a(HostHello)


def test_other_users_are_turned_away(start, built, capsys):
    running, _ = start(frozenset({os.geteuid() + 1}))
    for _ in range(2):  # at the second one the first has been told of
        start.daemon().ends()
    assert built == []
    assert running.thread.is_alive()
    assert "may not connect" in capsys.readouterr().err


def test_exit_is_carried_out(start):
    running, engine = start()
    daemon = start.daemon().attach()
    daemon.say(Exit())
    assert running.join() == 0
    assert engine.closed


@pytest.mark.parametrize(
    ("error", "code"), [(LoadFailed("no file"), 69), (RuntimeError("wedged"), 70)]
)
@pytest.mark.parametrize("attached", [True, False])
def test_an_engine_that_breaks_ends_the_process(start, capsys, error, code, attached):
    running, engine = start()
    daemon = start.daemon().attach()
    daemon.say(submit(1))
    daemon.hear_a(AcceptedMsg)
    if not attached:
        engine.held = True
        daemon.sock.close()
    engine.breaks = error
    assert running.join() == code
    assert engine.closed
    assert str(error) in capsys.readouterr().err


def test_the_scripted_fault_that_hangs_up_ends_the_connection_alone(start):
    running, engine = start()
    daemon = start.daemon().attach()
    daemon.hear_a(HostHello)
    engine.hang_up()
    daemon.ends()
    engine.hang_up()
    start.daemon().attach().hear_a(HostHello)
    assert running.thread.is_alive()
