import asyncio
from collections import Counter

import pytest
import pytest_asyncio
from tests.unit.engines.http.fakes import SETTINGS, FakeDialect, FakeLink, pool_of, until

from onegate.engines.base import (
    Accepted,
    EmbedRequest,
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineNotice,
    EngineRefused,
    EngineRequest,
    EngineUnavailable,
    Finished,
    PoolChanged,
    PoolState,
    SeatFreed,
    Stopped,
)
from onegate.engines.http.engine import HttpEngine
from onegate.engines.http.link import HttpStatus
from onegate.tasks import Tasks


class World:
    """An engine over a fake server, and what it told."""

    def __init__(self, *pools):
        self.dialect, self.link = FakeDialect(*pools), FakeLink()
        self.events, self.log, self.crashes = [], [], []
        self.engine = HttpEngine(
            self.dialect,
            self.link,
            SETTINGS,
            pools=[],
            log=self.log.append,
            crashed=lambda name, error: self.crashes.append(error),
        )
        self.ids = iter(range(1, 1000))

    async def start(self):
        await self.engine.start(self.events.append)
        await until(lambda: bool(self.engine.pools()))
        return self

    def generate(self):
        request = EngineRequest(id=next(self.ids), model="m", max_tokens=9, prompt="x")
        return self.engine.generate(request)

    def feed(self, *lines):
        for line in lines:
            self.link.lines.put_nowait(line)

    def told(self):
        told = Counter(e.id for e in self.events if isinstance(e, SeatFreed))
        for event in self.events:
            told.update(event.ids if isinstance(event, EngineLost) else ())
        return told


@pytest_asyncio.fixture
async def world():
    world = await World().start()
    yield world
    await world.engine.aclose(1.0)
    await world.engine.aclose(1.0)
    assert world.crashes == []
    assert world.link.open_now == 0
    assert len(asyncio.all_tasks()) == 1


async def test_a_request_to_its_end(world):
    world.feed(b"a", b"one", b"f")
    items = [item async for item in world.generate()]
    assert isinstance(items[-1], Finished)
    await until(lambda: world.told() == {1: 1})


async def test_the_sink_is_never_called_from_within_generate(world):
    world.engine._pools.taken_away(PoolState.FAILED, "gone")
    stream = world.generate()
    step = asyncio.ensure_future(anext(stream))  # noqa: TID251 - to stand between two turns
    await asyncio.sleep(0)
    assert world.told() == {}
    with pytest.raises(EngineUnavailable, match="gone"):
        await step
    assert world.told() == {1: 1}


async def test_no_more_than_there_are_seats(world):
    first = [world.generate() for _ in range(2)]
    for stream in first:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(stream)
    with pytest.raises(EngineUnavailable, match="all 2 seats"):
        await anext(world.generate())
    assert world.link.opened <= 2


async def test_closing_closes_the_connection_and_the_seat_waits_for_the_word(world):
    world.dialect.gone = False
    stream = world.generate()
    world.feed(b"a", b"one")
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    await until(lambda: world.link.open_now == 0 and len(world.dialect.confirmed) > 2)
    assert world.told() == {}
    world.dialect.gone = True
    await until(lambda: world.told() == {1: 1})


async def test_stopping_twice_is_stopping_once(world):
    request = world.generate()
    world.feed(b"a", b"one")
    items = []
    async for item in request:
        items.append(item)
        if isinstance(item, EngineChunk):
            world.engine.stop(1)
            world.engine.stop(1)
    world.engine.stop(1)
    assert [type(item) for item in items[1:]] == [EngineChunk, Stopped]
    await until(lambda: world.told() == {1: 1})


async def test_a_server_that_dies(world):
    stream = world.generate()
    world.feed(b"a")
    await anext(stream)
    world.dialect.there = False
    world.feed(EngineBroke("cut"))
    with pytest.raises(EngineBroke, match="nobody is there"):
        await anext(stream)
    # So that whoever reads it knows that the seat is gone as well, and may ask again.
    assert world.told() == {1: 1}
    assert any(isinstance(event, EngineLost) for event in world.events)
    world.dialect.there = True
    await until(lambda: world.engine.health().state == "ready")
    assert world.engine.pools()[0].loads == 2


async def test_a_refusal_frees_the_seat_at_once(world):
    world.link.refusal = HttpStatus(503, b"", 60_000.0)
    with pytest.raises(EngineUnavailable, match="busy") as busy:
        await anext(world.generate())
    assert busy.value.retry_after_ms == 60_000.0
    assert world.told() == {1: 1}
    assert world.engine.pools()[0].state is PoolState.LOADING


async def test_a_bug_of_ours_ends_one_request_and_is_logged_without_its_text(world):
    world.dialect.decoder_error = KeyError("secret")
    world.feed(b"a", b"!")
    stream = world.generate()
    await anext(stream)
    with pytest.raises(EngineBroke, match="KeyError"):
        await anext(stream)
    await until(lambda: world.told() == {1: 1})
    assert any("KeyError" in line for line in world.log)
    assert "secret" not in "".join(world.log)


async def test_a_bug_before_anything_is_sent_frees_the_seat_as_well(world):
    def call(request, pool):
        raise KeyError("secret")

    world.dialect.call = call
    with pytest.raises(EngineBroke, match="KeyError"):
        await anext(world.generate())
    assert world.told() == {1: 1}
    assert any("KeyError" in line for line in world.log)
    assert "secret" not in "".join(world.log)


async def test_loads_and_unloads(world):
    with pytest.raises(EngineUnavailable, match="does not load"):
        await world.engine.load("m")
    with pytest.raises(EngineRefused):
        world.engine._known("other")
    with pytest.raises(EngineUnavailable):
        await world.engine.load("other")
    await world.engine.unload("m")


async def test_fewer_seats_are_told_before_the_one_that_showed_it_is_free(world):
    first = world.generate()
    world.feed(b"a")
    await anext(first)
    world.link.refusal = HttpStatus(503, b"", None)
    with pytest.raises(EngineUnavailable, match="busy"):
        await anext(world.generate())
    last_two = [type(event) for event in world.events if not isinstance(event, EngineNotice)][-2:]
    assert last_two == [PoolChanged, SeatFreed]
    assert world.engine.pools()[0].capacity.max_seqs == 1
    # Whoever was let in before that was known is not turned away.
    world.link.refusal = None
    second = world.generate()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(second)
    assert world.link.opened == 2
    for stream in (first, second):
        await stream.aclose()


async def test_an_embedding_takes_a_seat_of_its_own(world):
    """Two seats: with one request inside, one embedding at a time, and nobody is turned away."""
    stream = world.generate()
    world.feed(b"a")
    await anext(stream)
    tasks = Tasks(lambda name, error: world.log.append(str(error)))
    for id in (50, 51):
        ask = EmbedRequest(id=id, model="m", input=["x"])
        tasks.spawn(world.engine.embed(ask), name="embed")
    await until(lambda: world.dialect.embeds == 1)
    beside = world.generate()
    second = tasks.spawn(anext(beside), name="second")
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.link.opened == 1
    world.dialect.embed_go.set()
    await until(lambda: world.link.opened == 2)
    world.feed(b"f", b"a", b"f", b"f")
    async for _ in stream:
        pass
    await until(lambda: len(tasks) == 0)
    assert isinstance(second.result(), Accepted | Finished)
    assert world.dialect.most_embeds == 1


async def test_a_server_that_wants_rest_says_how_long_to_the_next_one(world):
    world.engine._pools.rest("m", 60_000.0)
    with pytest.raises(EngineUnavailable, match="left alone") as resting:
        await anext(world.generate())
    assert 0 < resting.value.retry_after_ms <= 60_000.0


async def test_a_closed_engine_looks_no_more():
    world = World(pool_of())
    await world.start()
    await world.engine.aclose(1.0)
    looks = []

    async def watch(link):
        looks.append(link)

    world.dialect.watch = watch
    with pytest.raises(EngineUnavailable, match="stopped"):
        await world.engine.load("m")
    assert looks == []


async def test_stopped_and_never_started():
    world = World(pool_of())
    await world.engine.aclose(1.0)
    assert world.engine.health().state == "stopped"
    with pytest.raises(EngineUnavailable, match="stopped"):
        await anext(world.generate())


async def test_no_text_has_more_tokens_than_bytes(world):
    world.dialect.embed_go.set()
    for said, charged in ((9, 9), (10**9, 2 + 3 + 2 * 16)):
        world.dialect.embed_tok = said
        result = await world.engine.embed(EmbedRequest(id=1, model="m", input=["é", "abc"]))
        assert result.usage.prompt_tok == charged
