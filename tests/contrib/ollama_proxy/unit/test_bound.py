"""How many may do something at a time, and how many may wait for it."""

import asyncio

import pytest

from onegate.tasks import Tasks
from onegate_ollama_proxy.bound import Bound, Full


class Crowd:
    """Clients that hold a place until they are let go."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.inside: list[str] = []
        self.go = asyncio.Event()
        self.tasks = Tasks(lambda name, error: None)

    async def hold(self, client: str) -> None:
        async with self.bound.place(client):
            self.inside.append(client)
            await self.go.wait()

    async def come(self, *clients: str) -> None:
        for client in clients:
            self.tasks.spawn(self.hold(client), name=client)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_so_many_at_a_time_and_the_others_in_order():
    crowd = Crowd(Bound(2, waiting=2, each=9))
    await crowd.come("a", "b", "c", "d")
    assert crowd.inside == ["a", "b"]
    crowd.go.set()
    await asyncio.sleep(0.01)
    assert crowd.inside == ["a", "b", "c", "d"]
    assert crowd.bound.held == 0
    await crowd.tasks.aclose()


async def test_who_finds_no_room_to_wait_is_told_at_once():
    crowd = Crowd(Bound(1, waiting=1, each=9))
    await crowd.come("a", "b")
    with pytest.raises(Full, match="2 requests of this kind"):
        async with crowd.bound.place("c"):
            pass
    await crowd.tasks.aclose()


async def test_nobody_fills_it_alone():
    crowd = Crowd(Bound(4, waiting=4, each=2))
    await crowd.come("a", "a")
    with pytest.raises(Full, match="you have 2"):
        async with crowd.bound.place("a"):
            pass
    async with crowd.bound.place("b"):
        assert crowd.bound.held == 3
    await crowd.tasks.aclose()


async def test_who_leaves_the_line_gives_his_place_in_it_back():
    crowd = Crowd(Bound(1, waiting=1, each=9))
    await crowd.come("a", "b")
    await crowd.tasks.aclose()
    assert crowd.bound.held == 0
    async with crowd.bound.place("c"):
        pass
