import os
import select
import selectors
import socket
import threading

import msgspec
import pytest

from onegate.engines.base import EngineCapacity, PoolInfo, PoolState, Reservation
from onegate.engines.host.engine import StepReport
from onegate.engines.host.loop import HostLoop
from onegate.engines.host.notify import Notifier
from onegate.engines.host.outbox import HIGH_WATER_BYTES, DaemonGone
from onegate.engines.host.wire import Abort, Attach, Exit, FromHost
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader, frame

MIB = 1 << 20


class Engine:
    """Never has anything to do; remembers what it is asked."""

    kind = "fake"
    version = "1"
    busy = False
    wake = None

    @property
    def due(self):
        return self.busy

    def __init__(self):
        self.aborted = []
        self.left = 0

    def pools(self):
        return []

    def running(self, model):
        return []

    def abort(self, id):
        self.aborted.append(id)

    def step(self):
        self.left -= 1
        self.busy = self.left > 0
        return StepReport(freed=[self.left])


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def encoded(*messages):
    return b"".join(frame(msgspec.msgpack.encode(message)) for message in messages)


def run(theirs, engine, early=(), notifier=None):
    loop = HostLoop(theirs, engine, FrameReader(1000), notifier or Notifier())
    return loop.run([msgspec.msgpack.encode(message) for message in early])


def test_messages_in_order_until_the_daemon_says_leave(ends):
    ours, theirs = ends
    engine = Engine()
    ours.sendall(encoded(Abort(id=2), Abort(id=3), Exit()))
    assert run(theirs, engine, early=[Abort(id=1)]) == 0
    assert engine.aborted == [1, 2, 3]


@pytest.mark.parametrize(
    "data", [frame(b"\xc1"), b"\xff\xff\xff\xff", encoded(Attach(wire=1, daemon_pid=1))]
)
def test_a_daemon_that_breaks_the_wire(ends, data):
    ours, theirs = ends
    ours.sendall(data)
    with pytest.raises(RemoteProtocolError):
        run(theirs, Engine())


def test_work_does_not_outlive_the_daemon(ends):
    ours, theirs = ends
    engine = Engine()
    engine.left, engine.busy = 3, True
    ours.close()
    with pytest.raises(DaemonGone):
        run(theirs, engine)
    assert engine.left == 3


def test_everything_said_before_leaving_is_sent(ends):
    ours, theirs = ends
    engine = Engine()
    engine.left, engine.busy = 1, True
    real = engine.step

    def step():
        report = real()
        ours.sendall(encoded(Exit()))
        return report

    engine.step = step
    assert run(theirs, engine) == 0
    (payload,) = FrameReader(1000).feed(ours.recv(1000))
    assert msgspec.msgpack.decode(payload, type=FromHost).freed == [0]


class Elsewhere(Engine):
    """Computes elsewhere: a step is due while its descriptor can be read."""

    busy = True

    def __init__(self):
        super().__init__()
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.steps = 0
        self.report = StepReport(freed=[7])

    @property
    def due(self):
        return bool(select.select([self.wake], [], [], 0)[0])

    def tell(self):
        os.eventfd_write(self.wake, 1)

    def step(self):
        os.eventfd_read(self.wake)
        self.steps += 1
        return self.report


@pytest.fixture
def elsewhere():
    engine = Elsewhere()
    yield engine
    os.close(engine.wake)


def test_an_engine_that_computes_elsewhere_is_asked_when_it_has_something(ends, elsewhere):
    ours, theirs = ends
    thread = threading.Thread(target=run, args=(theirs, elsewhere))
    thread.start()
    reader = FrameReader(1000)
    for n in (1, 2, 3):
        elsewhere.tell()
        (payload,) = reader.feed(ours.recv(1000))
        assert msgspec.msgpack.decode(payload, type=FromHost).n == n
    ours.sendall(encoded(Exit()))
    thread.join(60)
    assert not thread.is_alive()
    assert elsewhere.steps == 3


class Spy(selectors.DefaultSelector):
    """Notes what is waited for."""

    def __init__(self):
        super().__init__()
        self.waited = []

    def select(self, timeout=None):
        self.waited.append(set(self.get_map()))
        return super().select(timeout)


def test_what_it_has_to_tell_waits_while_the_daemon_does_not_read(ends, elsewhere):
    _, theirs = ends
    loop = HostLoop(theirs, elsewhere, FrameReader(1000), Notifier())
    with Spy() as spy:
        spy.register(theirs, selectors.EVENT_READ)
        loop._wait(spy, 0.0)
        loop.outbox.post_raw(bytes(HIGH_WATER_BYTES + MIB))
        assert loop.outbox.full
        loop._wait(spy, 0.0)
    assert spy.waited == [{theirs.fileno(), elsewhere.wake}, {theirs.fileno()}]


def test_a_daemon_that_does_not_read_stops_the_steps(ends):
    ours, theirs = ends
    engine = Engine()
    engine.busy = True
    full, overrun = threading.Event(), threading.Event()
    most_steps = HIGH_WATER_BYTES // MIB + 2  # the socket takes a part of the first
    steps = []

    def step():
        steps.append(1)
        if len(steps) == most_steps - 1:
            full.set()
        if len(steps) > most_steps:
            overrun.set()
        return StepReport(raw=bytes(MIB))

    engine.step = step

    def serve():
        with pytest.raises(DaemonGone):
            run(theirs, engine)

    thread = threading.Thread(target=serve)
    thread.start()
    assert full.wait(60)
    assert not overrun.wait(0.3)
    ours.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(steps) <= most_steps


class Turns(Notifier):
    """Remembers what it was told; the socket is written to at the `leave_at`-th turn."""

    interval_s = 0.001

    def __init__(self, ours, leave_at):
        super().__init__()
        self.ours = ours
        self.leave_at = leave_at
        self.told = []

    def turn(self, *, loading):
        self.told.append(loading)
        if len(self.told) == self.leave_at:
            self.ours.sendall(encoded(Exit()))


def test_an_idle_loop_goes_on_turning_for_the_service_manager(ends):
    ours, theirs = ends
    turns = Turns(ours, leave_at=5)
    assert run(theirs, Engine(), notifier=turns) == 0
    assert turns.told[:5] == [False] * 5


def test_a_load_is_announced_before_the_step_that_does_it(ends):
    ours, theirs = ends
    engine = Engine()
    engine.left, engine.busy = 2, True
    turns = Turns(ours, leave_at=100)
    told_at_steps = []
    capacity = EngineCapacity(max_seqs=1, max_context_tok=1, reservation=Reservation.GROW)
    pools = [PoolInfo(model="m", state=PoolState.LOADING, capacity=capacity)]
    engine.pools = lambda: pools
    real = engine.step

    def step():
        told_at_steps.append(turns.told[-1])
        pools.clear()  # loaded
        if len(told_at_steps) == 2:
            ours.sendall(encoded(Exit()))
        return real()

    engine.step = step
    assert run(theirs, engine, notifier=turns) == 0
    assert told_at_steps == [True, False]


def test_signs_of_life_come_from_whoever_beats(ends):
    ours, theirs = ends
    loop = HostLoop(theirs, Engine(), FrameReader(1000), Notifier())
    loop.beat()
    (payload,) = FrameReader(1000).feed(ours.recv(1000))
    beat = msgspec.msgpack.decode(payload, type=FromHost)
    assert (beat.steps, beat.busy) == (0, False)
    ours.close()
    with pytest.raises(DaemonGone):
        loop.beat()
