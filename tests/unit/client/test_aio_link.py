"""The asynchronous transport over a transport that a test plays."""

import asyncio
from typing import Any

import pytest

from onegate.client import aio_link
from onegate.client.aio_link import Loop, LoopLink
from onegate.client.errors import Unavailable
from onegate.client.session import HANDSHAKE
from onegate.protocol import messages as m
from onegate.protocol.connection import ServerConnection
from onegate.protocol.errors import Reason
from onegate.tasks import Tasks


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


class Pair:
    def __init__(self, wire: Any) -> None:
        self.open: set[LoopLink] = set()
        self.transport = FakeTransport()
        self.link = LoopLink(self.open)
        self.link.connection_made(self.transport)
        self.daemon = ServerConnection()
        self.daemon.receive(self.link.session.encode(m.Hello(features=["v1"])))
        self.say(wire.welcome())
        self.link.session.finish(HANDSHAKE)

    def say(self, message: m.DaemonMessage) -> None:
        self.link.data_received(self.daemon.send(message))

    def ask(self) -> int:
        call_id = self.link.session.begin()
        self.daemon.receive(self.link.session.encode(m.Generate(id=call_id, prompt="hi")))
        return call_id


@pytest.fixture
async def pair(wire: Any) -> Pair:
    return Pair(wire)


def soon() -> int:
    return aio_link.monotonic_ns() + 10**10


def unexpected(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


async def test_a_waiting_task_gets_its_message_and_no_other(pair: Pair, wire: Any) -> None:
    first, second = pair.ask(), pair.ask()
    tasks = Tasks(unexpected)
    waiting = [
        tasks.spawn(pair.link.receive(i, soon()), name=f"receive {i}") for i in (first, second)
    ]
    await asyncio.sleep(0)
    pair.say(wire.answer(second)[0])
    assert (await waiting[1]).id == second
    assert not waiting[0].done()
    pair.say(wire.answer(first)[0])
    assert (await waiting[0]).id == first


async def test_what_has_come_already_is_not_waited_for(pair: Pair, wire: Any) -> None:
    call_id = pair.ask()
    for message in wire.answer(call_id, "a"):
        pair.say(message)
    kinds = [type(await pair.link.receive(call_id, soon())) for _ in range(3)]
    assert kinds == [m.Started, m.Chunk, m.Done]


async def test_a_deadline_is_kept_and_the_link_lives(pair: Pair, wire: Any) -> None:
    call_id = pair.ask()
    with pytest.raises(TimeoutError):
        await pair.link.receive(call_id, aio_link.monotonic_ns())
    pair.say(wire.answer(call_id)[0])
    assert (await pair.link.receive(call_id, soon())).id == call_id


@pytest.mark.parametrize(
    ("error", "text"), [(None, "closed the connection"), (OSError("reset"), "reset")]
)
async def test_a_lost_connection_wakes_everybody(
    pair: Pair, error: Exception | None, text: str
) -> None:
    tasks = Tasks(lambda name, error: None)
    waiting = [tasks.spawn(pair.link.receive(pair.ask(), None), name="receive") for _ in range(2)]
    await asyncio.sleep(0)
    pair.link.connection_lost(error)
    for task in waiting:
        with pytest.raises(Unavailable, match=text):
            await task
    assert pair.open == set()
    assert pair.link.closed.is_set()


async def test_a_full_write_buffer_holds_the_sender(pair: Pair) -> None:
    tasks = Tasks(unexpected)
    pair.link.pause_writing()
    sending = tasks.spawn(pair.link.send(b"x", soon()), name="send")
    await asyncio.sleep(0)
    assert pair.transport.written == [b"x"]
    assert not sending.done()
    pair.link.resume_writing()
    await sending


async def test_a_sender_is_not_held_for_ever(pair: Pair) -> None:
    pair.link.pause_writing()
    with pytest.raises(TimeoutError):
        await pair.link.send(b"x", aio_link.monotonic_ns())


async def test_a_held_sender_learns_that_the_connection_is_lost(pair: Pair) -> None:
    tasks = Tasks(lambda name, error: None)
    pair.link.pause_writing()
    sending = tasks.spawn(pair.link.send(b"x", None), name="send")
    await asyncio.sleep(0)
    pair.link.connection_lost(None)
    with pytest.raises(Unavailable):
        await sending


async def test_nothing_is_written_after_the_end(pair: Pair, wire: Any) -> None:
    pair.say(wire.failed(Reason.SHUTTING_DOWN))
    with pytest.raises(Exception, match="shutting_down"):
        await pair.link.send(b"x", soon())
    assert pair.transport.written == []


async def test_nothing_is_written_to_a_transport_that_is_going(pair: Pair) -> None:
    pair.transport.abort()
    pair.link.send_now(b"x")
    assert pair.transport.written == []


async def test_closing_drops_what_was_not_written_and_wakes_everybody(pair: Pair) -> None:
    tasks = Tasks(lambda name, error: None)
    waiting = tasks.spawn(pair.link.receive(pair.ask(), None), name="receive")
    await asyncio.sleep(0)
    pair.link.close()
    assert pair.transport.aborted
    with pytest.raises(Unavailable, match="this client is closed"):
        await waiting


async def test_connecting_waits_while_the_backlog_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[Any] = [None, None, "a socket"]
    slept: list[float] = []
    adopted: list[Any] = []
    loop = Loop()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def adopt(sock: Any) -> None:
        adopted.append(sock)

    monkeypatch.setattr(aio_link, "try_connect", lambda path: attempts.pop(0))
    monkeypatch.setattr(loop, "sleep", sleep)
    monkeypatch.setattr(loop, "_adopt", adopt)
    await loop.connect("/s", soon())
    assert len(slept) == 2
    assert adopted == ["a socket"]
