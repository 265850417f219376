import asyncio

import pytest

from onegate.engines.base import EngineBroke, EngineUnavailable, Progress
from onegate.engines.stream import MAX_ITEMS_BEHIND, Stream


class Calls:
    def __init__(self):
        self.begun = []
        self.abandoned = []

    def stream(self):
        return Stream(1, begin=self.begun.append, abandon=self.abandoned.append)


@pytest.fixture
def calls():
    return Calls()


def item(n):
    return Progress(prefilled_tok=n)


async def read(stream):
    return [item.prefilled_tok async for item in stream]


async def test_it_begins_with_the_first_read_and_once(calls):
    stream = calls.stream()
    assert calls.begun == []
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read(stream))
        await asyncio.sleep(0)
        assert calls.begun == [stream]
        stream.push(item(1))
        await asyncio.sleep(0)
        stream.push(item(2))
        stream.push(item(3))
        stream.end()
    assert reader.result() == [1, 2, 3]
    assert calls.begun == [stream]
    assert calls.abandoned == []


async def test_what_is_queued_is_read_before_the_error(calls):
    stream = calls.stream()
    stream.push(item(1))
    stream.end(EngineBroke("died"))
    stream.push(item(2))
    stream.end()
    assert (await anext(stream)).prefilled_tok == 1
    with pytest.raises(EngineBroke):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_beginning_may_fail_at_once(calls):
    def refuse(stream):
        raise EngineUnavailable("no")

    stream = Stream(1, begin=refuse, abandon=calls.abandoned.append)
    with pytest.raises(EngineUnavailable):
        await anext(stream)


async def test_closing_abandons_once(calls):
    stream = calls.stream()
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        await stream.aclose()
    assert reader.result() == []
    assert calls.abandoned == [stream]
    stream.push(item(1))
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_closing_what_never_began_or_has_ended_abandons_nothing(calls):
    never, ended = calls.stream(), calls.stream()
    await never.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(never)
    ended.end(EngineBroke("x"))
    await ended.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(ended)
    assert calls.begun == calls.abandoned == []


async def test_closing_lets_go_of_what_was_not_read(calls):
    stream = calls.stream()
    stream.push(item(1))
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_cancelled_read_loses_nothing(calls):
    stream = calls.stream()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(stream)
    stream.push(item(1))
    assert (await anext(stream)).prefilled_tok == 1
    assert len(calls.begun) == 1


async def test_a_reader_far_behind_is_let_go(calls):
    stream = calls.stream()
    async with asyncio.TaskGroup() as group:
        group.create_task(anext(stream, None))
        await asyncio.sleep(0)
        stream.push(item(0))
    for n in range(MAX_ITEMS_BEHIND):
        stream.push(item(n))
    assert not stream.ended
    stream.push(item(MAX_ITEMS_BEHIND))
    stream.push(item(MAX_ITEMS_BEHIND + 1))
    assert stream.ended
    assert calls.abandoned == [stream]
    with pytest.raises(EngineBroke, match="behind"):
        await anext(stream)
