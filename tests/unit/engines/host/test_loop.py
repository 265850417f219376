import socket
import threading

import msgspec
import pytest

from onegate.engines.host.engine import StepReport
from onegate.engines.host.loop import HostLoop
from onegate.engines.host.outbox import HIGH_WATER_BYTES
from onegate.engines.host.wire import Abort, Attach, Exit, FromHost
from onegate.protocol.framing import FrameReader, frame

MIB = 1 << 20


class Engine:
    """Never has anything to do; remembers what it is asked."""

    kind = "fake"
    version = "1"
    busy = False

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


def run(theirs, engine, early=()):
    loop = HostLoop(theirs, engine, FrameReader(1000))
    return loop, loop.run([msgspec.msgpack.encode(message) for message in early])


def test_messages_in_order_until_the_daemon_says_leave(ends):
    ours, theirs = ends
    engine = Engine()
    ours.sendall(encoded(Abort(id=2), Abort(id=3), Exit()))
    _, code = run(theirs, engine, early=[Abort(id=1)])
    assert code == 0
    assert engine.aborted == [1, 2, 3]


def test_the_end_of_the_daemon_is_no_error(ends):
    ours, theirs = ends
    ours.close()
    assert run(theirs, Engine())[1] == 0


@pytest.mark.parametrize(
    "data", [frame(b"\xc1"), b"\xff\xff\xff\xff", encoded(Attach(wire=1, daemon_pid=1))]
)
def test_a_daemon_that_breaks_the_wire(ends, capsys, data):
    ours, theirs = ends
    ours.sendall(data)
    assert run(theirs, Engine())[1] == 76
    assert "broke the wire" in capsys.readouterr().err


def test_work_does_not_outlive_the_daemon(ends):
    ours, theirs = ends
    engine = Engine()
    engine.left, engine.busy = 3, True
    ours.shutdown(socket.SHUT_WR)
    loop, code = run(theirs, engine)
    assert code == 0
    assert engine.left == 3
    assert loop.heartbeat().steps == 0


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
    assert run(theirs, engine)[1] == 0
    (payload,) = FrameReader(1000).feed(ours.recv(1000))
    assert msgspec.msgpack.decode(payload, type=FromHost).freed == [0]


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
    thread = threading.Thread(target=run, args=(theirs, engine))
    thread.start()
    assert full.wait(60)
    assert not overrun.wait(0.3)
    ours.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(steps) <= most_steps
