"""The blocking transport over a socket that a test plays."""

from typing import Any, NoReturn

import pytest

from onegate.client import sync_link
from onegate.client.errors import ProtocolError, Unavailable
from onegate.client.session import HANDSHAKE
from onegate.client.sync_link import Blocking, BlockingLink, run
from onegate.protocol import messages as m
from onegate.protocol.connection import ServerConnection
from onegate.protocol.errors import Reason


class FakeSocket:
    """`arriving` is what recv returns or raises, in turn; then nothing has arrived."""

    def __init__(self) -> None:
        self.arriving: list[bytes | BaseException] = []
        self.sent: list[bytes] = []
        self.send_error: BaseException | None = None
        self.timeout_s: float | None = None
        self.closed = False

    def settimeout(self, seconds: float | None) -> None:
        if self.closed:
            raise OSError(9, "Bad file descriptor")
        self.timeout_s = seconds

    def recv(self, n_bytes: int) -> bytes:
        if not self.arriving:
            raise BlockingIOError if self.timeout_s == 0.0 else TimeoutError
        item = self.arriving.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item

    def sendall(self, data: bytes) -> None:
        if self.send_error is not None:
            raise self.send_error
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True


class Pair:
    def __init__(self, wire: Any) -> None:
        self.socket = FakeSocket()
        self.link = BlockingLink(self.socket)  # type: ignore[arg-type]
        self.daemon = ServerConnection()
        self.daemon.receive(self.link.session.encode(m.Hello(features=["v1"])))
        self.socket.arriving.append(self.daemon.send(wire.welcome()))
        assert isinstance(run(self.link.receive(HANDSHAKE, None)), m.Welcome)
        self.link.session.finish(HANDSHAKE)

    def ask(self) -> int:
        call_id = self.link.session.begin()
        self.daemon.receive(self.link.session.encode(m.Generate(id=call_id, prompt="hi")))
        return call_id


@pytest.fixture
def pair(wire: Any) -> Pair:
    return Pair(wire)


def test_bytes_are_read_until_the_message_is_there(pair: Pair, wire: Any) -> None:
    call_id = pair.ask()
    data = pair.daemon.send(wire.answer(call_id)[0])
    pair.socket.arriving += [data[i : i + 1] for i in range(len(data))]
    assert isinstance(run(pair.link.receive(call_id, None)), m.Started)
    assert pair.socket.timeout_s is None


def test_two_requests_may_be_read_in_turn(pair: Pair, wire: Any) -> None:
    first, second = pair.ask(), pair.ask()
    pair.socket.arriving += [pair.daemon.send(wire.answer(i)[0]) for i in (second, first)]
    assert run(pair.link.receive(first, None)).id == first
    assert run(pair.link.receive(second, None)).id == second


def test_a_deadline_is_kept(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        run(pair.link.receive(pair.ask(), sync_link.monotonic_ns() + 10**9))
    assert pair.socket.timeout_s is not None
    assert 0 < pair.socket.timeout_s <= 1
    assert not pair.socket.closed


def test_a_deadline_that_is_past_is_no_endless_wait(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        run(pair.link.receive(pair.ask(), 1))


def test_an_end_of_file_is_unavailable(pair: Pair) -> None:
    pair.socket.arriving.append(b"")
    with pytest.raises(Unavailable, match="closed"):
        run(pair.link.receive(pair.ask(), None))


def test_a_reset_is_unavailable_and_closes(pair: Pair) -> None:
    pair.socket.arriving.append(ConnectionResetError(104, "reset"))
    with pytest.raises(Unavailable, match="reset"):
        run(pair.link.receive(pair.ask(), None))
    assert pair.socket.closed


def test_an_interrupted_read_closes_because_bytes_may_be_lost(pair: Pair) -> None:
    pair.socket.arriving.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(pair.link.receive(pair.ask(), None))
    assert pair.socket.closed
    assert isinstance(pair.link.session.ended, Unavailable)


def test_an_interrupted_write_closes_because_half_a_frame_may_be_out(pair: Pair) -> None:
    pair.socket.send_error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(pair.link.send(b"x", None))
    assert pair.socket.closed
    assert isinstance(pair.link.session.ended, Unavailable)


def test_a_write_that_takes_too_long_closes_too(pair: Pair) -> None:
    pair.socket.send_error = TimeoutError()
    with pytest.raises(TimeoutError):
        run(pair.link.send(b"x", sync_link.monotonic_ns() + 10**9))
    assert pair.socket.closed


def test_what_the_daemon_said_before_it_hung_up_is_the_error(pair: Pair, wire: Any) -> None:
    def hang_up(data: bytes) -> NoReturn:
        pair.socket.arriving += [pair.daemon.send(wire.failed(Reason.PROTOCOL)), b""]
        raise BrokenPipeError(32, "pipe")

    pair.socket.sendall = hang_up  # type: ignore[method-assign]
    with pytest.raises(ProtocolError, match="a sentence"):
        run(pair.link.send(b"x", None))
    assert pair.socket.closed


def test_an_end_that_came_while_idle_is_seen_before_sending(pair: Pair) -> None:
    pair.socket.arriving.append(b"")
    with pytest.raises(Unavailable):
        run(pair.link.send(b"x", None))
    assert pair.socket.sent == []


def test_look_takes_all_that_has_arrived_and_waits_for_nothing(pair: Pair, wire: Any) -> None:
    call_id = pair.ask()
    pair.socket.arriving += [pair.daemon.send(msg) for msg in wire.answer(call_id, "a")]
    pair.link.look()
    assert pair.socket.arriving == []
    assert pair.link.session.ended is None
    assert isinstance(pair.link.session.take(call_id), m.Started)


def test_leaving_never_raises(pair: Pair) -> None:
    pair.link.send_now(b"x")
    assert pair.socket.sent == [b"x"]
    assert pair.socket.timeout_s is not None
    for error in (BrokenPipeError(32, "pipe"), TimeoutError()):
        pair.socket.send_error = error
        pair.link.send_now(b"y")
        assert pair.socket.closed


def test_closing_says_why_to_whoever_asks_later(pair: Pair) -> None:
    pair.link.close()
    with pytest.raises(Unavailable, match="this client is closed"):
        run(pair.link.receive(1, None))


class _Suspends:
    def __await__(self) -> Any:
        yield


def test_run_does_not_hide_a_coroutine_that_suspends() -> None:
    async def steps() -> None:
        await _Suspends()

    with pytest.raises(AssertionError, match="suspended"):
        run(steps())


def test_connecting_waits_while_the_backlog_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[Any] = [None, None, FakeSocket()]
    slept: list[float] = []
    monkeypatch.setattr(sync_link, "try_connect", lambda path: attempts.pop(0))
    monkeypatch.setattr(sync_link.time, "sleep", slept.append)
    link = run(Blocking().connect("/s", sync_link.monotonic_ns() + 10**10))
    assert isinstance(link, BlockingLink)
    assert len(slept) == 2


def test_sleeping_is_sleeping(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(sync_link.time, "sleep", slept.append)
    run(Blocking().sleep(0.25))
    assert slept == [0.25]
