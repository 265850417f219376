import msgspec
import pytest

from onegate.engines.host.outbox import HIGH_WATER_BYTES, DaemonGone, Outbox
from onegate.engines.host.wire import CallDone, FromHost
from onegate.protocol.framing import FrameReader


class Pipe:
    """A socket that takes `room` bytes before it would block."""

    def __init__(self, room):
        self.room = room
        self.taken = b""
        self.broken = False

    def send(self, data):
        if self.broken:
            raise BrokenPipeError
        took = bytes(data[: self.room])
        if not took:
            raise BlockingIOError
        self.room -= len(took)
        self.taken += took
        return len(took)


def test_messages_arrive_whole_and_in_order_however_little_is_taken():
    pipe = Pipe(room=3)
    outbox = Outbox(pipe)
    for call in range(5):
        outbox.post(CallDone(call=call))
    while outbox.waiting_bytes:
        pipe.room = 5
        outbox.flush()
    payloads = FrameReader(1000).feed(pipe.taken)
    calls = [msgspec.msgpack.decode(payload, type=FromHost).call for payload in payloads]
    assert calls == list(range(5))


def test_a_slow_daemon_never_blocks_and_shows():
    outbox = Outbox(Pipe(room=0))
    outbox.post_raw(bytes(HIGH_WATER_BYTES))
    assert not outbox.full
    outbox.post_raw(b"x")
    assert outbox.full
    assert outbox.waiting_bytes == HIGH_WATER_BYTES + 1


def test_a_daemon_that_left_is_an_error_of_its_own():
    pipe = Pipe(room=10)
    pipe.broken = True
    with pytest.raises(DaemonGone):
        Outbox(pipe).post(CallDone(call=1))
