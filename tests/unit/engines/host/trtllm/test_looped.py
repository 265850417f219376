import asyncio
import threading

import pytest

from onegate.engines.host.trtllm.looped import LoopThread


@pytest.fixture
def looped():
    looped = LoopThread()
    yield looped
    assert looped.end(10.0)


def test_calls_run_on_the_one_loop_in_the_one_thread(looped):
    def here():
        return asyncio.get_running_loop(), threading.current_thread().name

    assert looped.ask(10.0, here) == looped.ask(10.0, here) == (looped.loop, "trtllm loop")


def test_what_a_call_raises_is_raised(looped):
    def fails():
        raise KeyError("x")

    with pytest.raises(KeyError):
        looped.ask(10.0, fails)


def test_a_loop_that_is_blocked_is_not_waited_for(looped):
    go, called = threading.Event(), []
    looped.tell(go.wait)
    with pytest.raises(TimeoutError):
        looped.ask(0.01, called.append, 1)
    assert not looped.end(0.01)
    go.set()
    looped._thread.join(10.0)
    assert called == []


def test_after_the_end_nothing_is_told():
    looped = LoopThread()
    assert looped.end(10.0)
    assert looped.loop.is_closed()
    looped.tell(lambda: 1 / 0)
