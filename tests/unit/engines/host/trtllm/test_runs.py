import asyncio

import pytest

from onegate.engines.host.trtllm.messages import Broken, Failed, Finished, Gone, Tokens
from onegate.engines.host.trtllm.runs import Runs
from onegate.engines.host.trtllm.watch import Watch


class Watched(Watch):
    def __init__(self):
        super().__init__(30.0, 0)
        self.doubts = []

    def doubt(self, reason, now_ns):
        self.doubts.append(reason)


class Heard:
    """What was posted, by turns."""

    def __init__(self):
        self.turns = []
        self._came = asyncio.Event()

    def __call__(self, *messages):
        self.turns.append(messages)
        self._came.set()

    @property
    def all(self):
        return [message for turn in self.turns for message in turn]

    async def next(self):
        self._came.clear()
        await self._came.wait()

    async def until(self, kind):
        async with asyncio.timeout(30):
            while not any(isinstance(message, kind) for message in self.all):
                await self.next()


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def watch():
    return Watched()


@pytest.fixture
async def runs(heard, watch):
    runs = Runs(heard, watch, abort_s=0.01)
    yield runs
    await runs.aclose()


async def test_from_tokens_to_the_end(runs, heard, watch, make_output):
    output = make_output()
    output.cached_tokens = 32
    runs.submit(5, lambda: output)
    output.put(([1, 2], None), ([], None), ([3], "stop"))
    await heard.until(Finished)
    assert heard.all == [Tokens(5, [1, 2]), Tokens(5, [3]), Finished(5, "stop", 32)]
    assert output.aborts == 0
    assert output.waited == 3
    assert watch.wants_canary(10**15)  # nobody is inside


async def test_nothing_cached_is_not_zero(runs, heard, make_output):
    output = make_output()
    runs.submit(1, lambda: output)
    output.put(([3], "length"))
    await heard.until(Finished)
    assert heard.all[-1].cached_tok is None


async def test_what_comes_together_is_told_together(runs, heard, make_output):
    outputs = [make_output() for _ in range(3)]
    for id, output in enumerate(outputs):
        runs.submit(id, lambda output=output: output)
    await asyncio.sleep(0)
    for output in outputs:
        output.put(([1], "length"))
    await heard.until(Finished)
    assert len(heard.turns) == 1
    assert len(heard.all) == 6


async def test_what_is_not_taken_is_not_inside(runs, watch):
    def refuses():
        raise ValueError("no end_id")

    with pytest.raises(ValueError, match="no end_id"):
        runs.submit(1, refuses)
    assert watch.wants_canary(10**15)


async def test_15_an_error_of_the_request_is_the_last_that_is_read(
    runs, heard, watch, make_output, request_error
):
    output = make_output()
    runs.submit(1, lambda: output)
    output.put(([1], None), request_error("x" * 999))
    await heard.until(Failed)
    assert heard.all[-1].text.startswith("the engine failed it: xxx")
    assert len(heard.all[-1].text) < 250
    assert output.waited == 2
    assert output.aborts == 0
    assert watch.doubts == ["the engine failed a request"]


async def test_16_any_other_error_is_the_engines(runs, heard, make_output):
    output = make_output()
    runs.submit(1, lambda: output)
    output.put(RuntimeError("CUDA"))
    await heard.until(Broken)
    assert heard.all == [Broken("RuntimeError: CUDA")]
    assert output.aborts == 1


async def test_an_output_that_ends_unfinished_is_the_engines_fault(runs, heard, make_output):
    output = make_output()
    runs.submit(1, lambda: output)
    output.put(StopAsyncIteration())
    await heard.until(Broken)


async def test_17_an_abort_that_is_answered(runs, heard, watch, make_output):
    output = make_output()
    runs.submit(1, lambda: output)
    runs.abort(1)
    runs.abort(1)
    runs.abort(2)
    output.put(([9], None), ([], "cancelled"))
    await heard.until(Finished)
    assert heard.all == [Tokens(1, [9]), Finished(1, "cancelled", None)]
    assert output.aborts == 1
    assert watch.doubts == []


async def test_18_an_abort_that_is_not_answered(runs, heard, watch, make_output):
    output = make_output()
    runs.submit(1, lambda: output)
    await asyncio.sleep(0)
    runs.abort(1)
    await heard.until(Gone)
    assert heard.all == [Gone(1)]
    assert watch.doubts == ["an abort was not answered"]
    assert output.aborts == 1
    assert watch.wants_canary(10**15)


async def test_19_an_abort_after_the_end_of_everything_is_no_error(runs, heard, make_output):
    output = make_output()
    output.abort_raises = AttributeError("executor is gone")
    runs.submit(1, lambda: output)
    await asyncio.sleep(0)
    runs.abort(1)
    await heard.until(Gone)
    assert heard.all == [Gone(1)]


async def test_19_whatever_ends_the_following_aborts(runs, heard, make_output):
    outputs = [make_output(), make_output()]
    outputs[1].abort_raises = AttributeError("executor is gone")
    for id, output in enumerate(outputs):
        runs.submit(id, lambda output=output: output)
    await asyncio.sleep(0)
    await runs.aclose()
    await asyncio.sleep(0)
    assert [output.aborts for output in outputs] == [1, 1]
    assert heard.all == []


async def test_19_what_had_not_begun_is_aborted_too(runs, make_output):
    output = make_output()
    runs.submit(1, lambda: output)
    await runs.aclose()
    assert output.aborts == 1
    assert runs._runs == {}


async def test_a_release_that_says_nothing_of_its_cache(runs, heard, make_output):
    output = make_output()
    del output.cached_tokens
    runs.submit(1, lambda: output)
    output.put(([1], "stop"))
    await heard.until(Finished)
    assert heard.all[-1].cached_tok is None


async def test_nothing_is_kept_of_requests_that_have_gone(runs, heard, watch, make_output):
    """Answered, never answered, failed and ended, many of each."""
    for id in range(100):
        output = make_output()
        runs.submit(id, lambda output=output: output)
        await asyncio.sleep(0)
        runs.abort(id)
        if id % 2:
            output.put(([], "cancelled"))
    async with asyncio.timeout(30):
        while sum(isinstance(m, Finished | Gone) for m in heard.all) < 100:
            await heard.next()
    await asyncio.sleep(0)
    assert runs._runs == {}
    assert len(runs._tasks) == 0
    assert watch._inside == 0
