"""Live requests: the first ending holds, and one cancellation is sent."""

import asyncio
from typing import Any

import pytest

from onegate.protocol.errors import Reason
from onegate.server.live import LiveRequest, LiveRequests, Mute
from onegate.server.outcome import CANCELLED, DISCONNECTED, SLOW_READER

CLIENT = Mute(principal="uid:1", uid=1)


@pytest.fixture
async def requests() -> LiveRequests:
    return LiveRequests(boot="b")


def opened(requests: LiveRequests, **fields: Any) -> LiveRequest:
    return requests.open(
        **({"client": CLIENT, "id": 7, "verb": "generate", "arrived_ns": 5} | fields)
    )


async def test_a_rid_is_never_used_again(requests: LiveRequests) -> None:
    first = opened(requests)
    assert (first.rid, first.serial, first.id, first.verb) == ("b-1", 1, 7, "generate")
    requests.close(first)
    assert opened(requests).rid == "b-2"


async def test_what_lives_is_found(requests: LiveRequests) -> None:
    first, second = opened(requests), opened(requests)
    assert len(requests) == 2
    assert requests.find("b-2") is second
    for live in requests:
        requests.close(live)  # the collection may change while it is walked
    assert len(requests) == 0
    assert requests.find(first.rid) is None


async def test_one_principal_leaves_room_for_the_others(requests: LiveRequests) -> None:
    other = Mute(principal="uid:2", uid=2)
    mine = [opened(requests) for _ in range(9)]
    full = requests.full("uid:1", 10)
    assert full is not None
    assert (full.reason, full.used, full.limit) == (Reason.PEER_QUOTA, 9, 9)
    assert requests.full("uid:2", 10) is None
    opened(requests, client=other)
    full = requests.full("uid:2", 10)
    assert full is not None
    assert (full.reason, full.used, full.limit) == (Reason.CLASS_FULL, 10, 10)
    mine[0].client = other  # as for a request that has lost its id
    requests.close(mine[0])
    assert requests.full("uid:1", 10) is None
    assert requests.full("uid:2", 10) is None


async def test_the_first_ending_holds(requests: LiveRequests) -> None:
    live = opened(requests)
    live.end(CANCELLED)
    live.end(DISCONNECTED)
    assert live.ending is CANCELLED


async def test_one_cancellation_is_sent(requests: LiveRequests) -> None:
    live = opened(requests)
    cleaned: list[str] = []

    async def work() -> None:
        live.task = asyncio.current_task()
        try:
            await asyncio.Event().wait()
        finally:
            live.end(SLOW_READER)
            await asyncio.sleep(0)
            cleaned.append("up")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
        await asyncio.sleep(0)
        live.end(CANCELLED)
        live.end(DISCONNECTED)
    assert task.cancelled()
    assert cleaned == ["up"]


async def test_waiting_until_nothing_lives(requests: LiveRequests) -> None:
    await requests.wait_empty(0)
    live = opened(requests)
    asyncio.get_running_loop().call_soon(requests.close, live)
    await requests.wait_empty(3600)
    assert len(requests) == 0


async def test_waiting_has_an_end(requests: LiveRequests) -> None:
    opened(requests)
    await requests.wait_empty(0)
    assert len(requests) == 1


def test_a_mute_client_hears_nothing() -> None:
    assert (CLIENT.principal, CLIENT.uid, CLIENT.overflowing) == ("uid:1", 1, False)
    CLIENT.send(object())  # type: ignore[arg-type]
