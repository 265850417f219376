import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from onegate.cli.endings import Endings

NUMBERS = [signal.SIGTERM, signal.SIGHUP]


def in_loop(doing: Callable[[list[str]], Coroutine[Any, Any, object]]) -> list[str]:
    """What came to pass in a run under `Endings`; the code it ended with is the last of it."""
    seen: list[str] = []
    with pytest.raises(SystemExit) as caught, Endings() as endings, asyncio.Runner() as runner:
        seen.append(repr(endings.run(runner, lambda: doing(seen))))
    return [*seen, str(caught.value.code)]


@pytest.mark.parametrize("number", NUMBERS)
def test_outside_a_loop_the_signal_raises(number: int) -> None:
    with pytest.raises(SystemExit) as caught, Endings():
        signal.raise_signal(number)
    assert caught.value.code == 128 + number


@pytest.mark.parametrize("number", NUMBERS)
def test_in_a_loop_the_coroutine_is_cancelled_and_nothing_else(number: int) -> None:
    async def doing(seen: list[str]) -> None:
        async def other() -> None:
            signal.raise_signal(number)
            seen.append("went on")

        task = asyncio.create_task(other())  # noqa: TID251 - a task that the signal finds running
        try:
            await asyncio.Event().wait()
        finally:
            await task
            seen.append("cleaned up")

    assert in_loop(doing) == ["went on", "cleaned up", str(128 + number)]


def test_control_c_is_still_an_interruption() -> None:
    async def doing() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    def outside() -> None:
        with Endings():
            signal.raise_signal(signal.SIGINT)

    def inside() -> None:
        with Endings() as endings, asyncio.Runner() as runner:
            endings.run(runner, doing)

    for run in (outside, inside):
        with pytest.raises(KeyboardInterrupt):
            run()


def test_a_signal_before_the_first_step_is_not_lost() -> None:
    def run() -> None:
        with Endings() as endings, asyncio.Runner() as runner:
            runner.get_loop().call_soon(signal.raise_signal, signal.SIGTERM)
            endings.run(runner, lambda: asyncio.Event().wait())

    with pytest.raises(SystemExit):
        run()


def test_a_coroutine_that_ends_all_the_same_is_an_ended_one() -> None:
    async def doing(seen: list[str]) -> str:
        signal.raise_signal(signal.SIGTERM)
        return "done"

    assert in_loop(doing) == ["143"]


def test_a_failure_is_not_hidden_by_a_signal() -> None:
    async def doing() -> None:
        signal.raise_signal(signal.SIGTERM)
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        Endings() as endings,
        asyncio.Runner() as runner,
    ):
        endings.run(runner, doing)


def test_without_a_signal_it_is_a_plain_run() -> None:
    async def doing() -> int:
        return 7

    with Endings() as endings, asyncio.Runner() as runner:
        assert endings.run(runner, doing) == 7


def test_a_cancellation_of_its_own_stays_one() -> None:
    async def doing() -> None:
        raise asyncio.CancelledError

    with (
        pytest.raises(asyncio.CancelledError),
        Endings() as endings,
        asyncio.Runner() as runner,
    ):
        endings.run(runner, doing)


def test_what_is_ignored_stays_ignored_and_all_is_put_back(own_signals: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Endings():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
