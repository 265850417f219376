"""Tasks have one owner, a name, and an end that somebody hears of."""

import asyncio
import gc

import pytest

from onegate.tasks import Tasks

Crashes = list[tuple[str, BaseException]]


@pytest.fixture
def crashes() -> Crashes:
    return []


@pytest.fixture
def tasks(crashes: Crashes) -> Tasks:
    return Tasks(lambda name, error: crashes.append((name, error)))


async def turns(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def test_a_task_is_held_until_it_ends(tasks: Tasks) -> None:
    gate = asyncio.Event()
    done: list[int] = []

    async def wait() -> None:
        await gate.wait()
        done.append(1)

    tasks.spawn(wait(), name="waits")
    await turns()
    gc.collect()
    assert len(tasks) == 1
    gate.set()
    await turns()
    assert done == [1]
    assert len(tasks) == 0


async def test_a_task_has_a_name_and_a_result(tasks: Tasks) -> None:
    async def answer() -> int:
        return 7

    task = tasks.spawn(answer(), name="answers")
    assert task.get_name() == "answers"
    assert await task == 7


async def test_a_crash_is_heard_of(tasks: Tasks, crashes: Crashes) -> None:
    async def crash() -> None:
        raise ZeroDivisionError

    tasks.spawn(crash(), name="breaks")
    await turns()
    ((name, error),) = crashes
    assert name == "breaks"
    assert isinstance(error, ZeroDivisionError)
    assert len(tasks) == 0


async def test_a_cancelled_task_is_no_crash(tasks: Tasks, crashes: Crashes) -> None:
    task = tasks.spawn(asyncio.Event().wait(), name="waits")
    await turns()
    task.cancel()
    await turns()
    assert crashes == []
    assert len(tasks) == 0


async def test_closing_ends_all_and_waits_for_it(tasks: Tasks, crashes: Crashes) -> None:
    ended: list[str] = []

    async def slow_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns()
            ended.append("slow")

    tasks.spawn(slow_end(), name="slow")
    await turns()
    await tasks.aclose()
    assert ended == ["slow"]
    assert len(tasks) == 0
    await tasks.aclose()
    assert crashes == []


async def test_closing_waits_for_what_is_begun_meanwhile(tasks: Tasks) -> None:
    ended: list[str] = []

    async def last() -> None:
        await turns()
        ended.append("last")

    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.spawn(last(), name="last")

    tasks.spawn(first(), name="first")
    await turns()
    await tasks.aclose()
    assert ended == ["last"]
