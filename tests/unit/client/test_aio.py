"""The asynchronous client has the blocking one's names, and cancels as it does."""

import asyncio
import inspect
from typing import Any

import pytest

from onegate.client import aio
from onegate.client.aio import AsyncClient, AsyncStream
from onegate.client.errors import Unavailable
from onegate.client.sync import Client, Stream
from onegate.protocol import messages as m
from onegate.tasks import Tasks


class LoopWorld:
    """The world of the tests, plus what only the event loop's transport has."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._lock = asyncio.Lock()
        self.waited = False

    async def connect(self, path: str, deadline_ns: int) -> Any:
        await asyncio.sleep(0)  # so that two tasks can meet here
        return await self._world.connect(path, deadline_ns)

    async def sleep(self, seconds: float) -> None:
        await self._world.sleep(seconds)

    def lock(self) -> asyncio.Lock:
        return self._lock

    async def wait_closed(self) -> None:
        self.waited = True


@pytest.fixture
async def loop_world(world: Any, monkeypatch: pytest.MonkeyPatch) -> LoopWorld:
    made = LoopWorld(world)
    monkeypatch.setattr(aio, "Loop", lambda: made)
    return made


@pytest.fixture
async def client(loop_world: LoopWorld, world: Any, wire: Any) -> AsyncClient:
    world.scripts.append(wire.script(wire.text("a", "b"), wire.text("c")))
    return AsyncClient("/nowhere", class_="batch")


def signature(kind: type, name: str) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(getattr(kind, name)).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_the_names_are_the_same() -> None:
    assert public(AsyncClient) == public(Client)
    assert public(AsyncStream) == public(Stream)


@pytest.mark.parametrize("name", ["__init__", *sorted(public(Client) - {"welcome"})])
def test_the_parameters_are_the_same(name: str) -> None:
    assert signature(AsyncClient, name) == signature(Client, name)


async def test_nothing_happens_before_it_is_used(client: AsyncClient, world: Any) -> None:
    assert world.links == []
    with pytest.raises(Unavailable):
        _ = client.welcome
    assert (await client.connect()).class_ == "loop"
    assert len(world.links) == 1


async def test_with_connects_and_closes(
    client: AsyncClient, world: Any, loop_world: LoopWorld
) -> None:
    async with client as gate:
        assert gate.welcome.class_ == "loop"
    assert world.links[0].closed
    assert loop_world.waited


async def test_tasks_that_start_together_share_one_connection(
    client: AsyncClient, world: Any
) -> None:
    tasks = Tasks(lambda name, error: None)
    both = [tasks.spawn(client.generate("hi"), name="generate") for _ in range(2)]
    assert {reply.text for reply in await asyncio.gather(*both)} == {"ab", "c"}
    assert len(world.links) == 1


async def test_a_stream_is_iterated_and_then_has_its_reply(client: AsyncClient, world: Any) -> None:
    stream = client.stream("hi")
    assert [chunk.text async for chunk in stream] == ["a", "b"]
    assert stream.reply is not None
    assert stream.rid == stream.reply.rid


async def test_breaking_out_cancels_although_the_stream_is_kept(
    client: AsyncClient, world: Any
) -> None:
    stream = client.stream("hi")
    async for _ in stream:
        break
    await asyncio.sleep(0)  # the loop closes an abandoned generator in its next turns
    await asyncio.sleep(0)
    assert isinstance(world.sent[-1], m.Cancel)
    assert (await client.generate("hi")).text == "c"


async def test_leaving_the_with_cancels_at_once(client: AsyncClient, world: Any) -> None:
    async with client.stream("hi") as stream:
        async for _ in stream:
            break
    assert isinstance(world.sent[-1], m.Cancel)


async def test_cancelling_the_task_cancels_the_request(
    loop_world: LoopWorld, world: Any, wire: Any
) -> None:
    waiting = asyncio.Event()

    async def wait(call_id: int, deadline_ns: int | None) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    world.scripts.append(wire.script(wire.silence))
    async with AsyncClient("/nowhere") as client:
        world.links[0].receive = wait
        tasks = Tasks(lambda name, error: None)
        task = tasks.spawn(client.generate("hi"), name="generate")
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(world.sent[-1], m.Cancel)


async def test_a_lease_is_held_for_a_block(loop_world: LoopWorld, world: Any, wire: Any) -> None:
    def started(message: Any) -> list[Any]:
        return [m.Started(id=message.id, rid="r1", queue_ms=0.0)]

    def settled(message: Any) -> list[Any]:
        return [m.Ack(id=message.id, verb="settle")]

    world.scripts.append(wire.script(started, settled, started))
    async with AsyncClient("/nowhere") as client:
        async with client.lease(1, 2, model="tiny") as held:
            assert held.started is not None
        assert [type(message) for message in world.sent] == [m.Lease, m.Settle]
        assert world.sent[-1].usage is None
        with pytest.raises(ZeroDivisionError):
            async with client.lease(1, 2):
                _ = 1 / 0
        assert isinstance(world.sent[-1], m.Cancel)


async def test_a_lease_says_when_it_is_taken_back(
    loop_world: LoopWorld, world: Any, wire: Any
) -> None:
    from onegate.protocol.errors import Reason

    def started(message: Any) -> list[Any]:
        return [m.Started(id=message.id, rid="r1", queue_ms=0.0)]

    world.scripts.append(wire.script(started))
    async with AsyncClient("/nowhere") as client, client.lease(1, 2) as held:
        world.links[0].say(wire.failed(Reason.ENGINE_TIMEOUT, world.sent[0].id))
        assert "a sentence" in str(await held.ended())
