"""What targets raise."""

import asyncio
from typing import Any

import pytest

from onegate.bench.targets.base import Ask, Expired, Refused, in_time


def test_a_refusal_carries_its_hint() -> None:
    refusal = Refused("class_full", retry_after_ms=5.0, ticket="t")
    assert (str(refusal), refusal.retry_after_ms, refusal.ticket) == ("class_full", 5.0, "t")
    assert Refused("class_full").retry_after_ms is None


def test_a_caller_shares_its_clients_connection_unless_it_says_otherwise() -> None:
    assert not Ask(text="a", output_tok=1, client=0).own_connection


class Watched:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def started(self, queue_ms: float | None) -> None:
        self.seen.append(queue_ms)

    def piece(self, n_tok: int, *, visible: bool) -> None:
        self.seen.append((n_tok, visible))


def asking(**more: Any) -> Ask:
    return Ask(text="a", output_tok=1, client=0, **more)


def test_deadlines_are_kept_and_told_apart(virtual: Any) -> None:
    async def spoken(ask: Ask, piece_at_s: float) -> None:
        async with in_time(ask, Watched()) as heard:
            await asyncio.sleep(piece_at_s)
            heard.piece(1, visible=False)
            await asyncio.sleep(3600)

    async def expire(ask: Ask, piece_at_s: float) -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        with pytest.raises(Expired) as caught:
            await spoken(ask, piece_at_s)
        return str(caught.value), loop.time() - begun_s

    async def run() -> list[tuple[str, float]]:
        both = asking(ttft_timeout_ms=500, timeout_ms=2000)
        return [await expire(both, 1.0), await expire(both, 0.25)]

    assert virtual.run(run()) == [
        ("ttft_deadline_exceeded", pytest.approx(0.5)),
        ("deadline_exceeded", pytest.approx(2.0)),
    ]


async def test_without_deadlines_nothing_is_in_the_way() -> None:
    watched = Watched()
    async with in_time(asking(), watched) as heard:
        heard.started(4.0)
        heard.piece(2, visible=True)
    assert watched.seen == [4.0, (2, True)]
    with pytest.raises(TimeoutError):
        async with in_time(asking(timeout_ms=60_000), watched):
            raise TimeoutError  # of a connection, and no deadline
