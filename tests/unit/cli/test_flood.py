"""What the demonstration measures."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onegate.cli import flood as module
from onegate.cli.flood import BATCH, INTERACTIVE, Flood, Job, ask, figures, prompts
from onegate.client.errors import OnegateError, Unavailable, error_of
from onegate.protocol import messages as m
from onegate.protocol.content import ChunkKind
from onegate.protocol.errors import Phase, Reason

S = 1_000_000_000
MS = 1_000_000


def test_prompts_are_real_and_differ() -> None:
    assert len(set(prompts(60))) == 60
    assert len(prompts(100)) == 100


def test_figures_are_medians_and_a_rate() -> None:
    jobs = [
        Job(BATCH, 0, queue_ms=10.0, first_ns=1 * S, last_ns=2 * S, output_tok=30),
        Job(BATCH, 0, queue_ms=20.0, first_ns=2 * S, last_ns=3 * S, output_tok=20),
        Job(BATCH, 0, queue_ms=60.0, first_ns=3 * S, last_ns=5 * S, output_tok=50),
        Job(BATCH, 0),
        Job(BATCH, 0, refused="tokens_full"),
        Job(INTERACTIVE, 0, queue_ms=1.0, first_ns=S, last_ns=2 * S, output_tok=7),
    ]
    found = figures(BATCH, jobs)
    assert (found.requests, found.queue_ms, found.ttft_ms, found.refused) == (5, 20.0, 2000.0, 1)
    assert found.tok_per_s == 25.0
    assert figures(INTERACTIVE, jobs).tok_per_s == 7.0


def test_nothing_measured_is_none_and_not_zero() -> None:
    found = figures(BATCH, [Job(BATCH, 0)])
    assert (found.queue_ms, found.ttft_ms, found.tok_per_s) == (None, None, None)


class FakeStream:
    def __init__(self, items: list[Any]) -> None:
        self._items = items

    async def __aiter__(self) -> AsyncIterator[m.Chunk]:
        for item in self._items:
            await asyncio.sleep(0)
            if isinstance(item, BaseException):
                raise item
            yield item


class FakeClient:
    """Streams `items`; a stream that is told to wait ends when the client is closed."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)
        self.asked: list[dict[str, Any]] = []
        self.closed = asyncio.Event()

    def stream(self, **options: Any) -> Any:
        self.asked.append(options)
        options["progress"](m.Queued(id=1, rid="r", position=0, ahead={}))
        options["progress"](m.Started(id=1, rid="r", queue_ms=5.0))
        return FakeStream(self.items) if self.items else self._waits()

    async def _waits(self) -> AsyncIterator[m.Chunk]:
        await self.closed.wait()
        raise Unavailable("this client is closed")
        yield  # makes this a generator

    async def close(self) -> None:
        self.closed.set()


CHUNKS = [
    m.Chunk(id=1, n_tok=2, kind=ChunkKind.THINKING, text="hm"),
    m.Chunk(id=1, n_tok=3, text="blue"),
]


async def test_a_job_learns_what_came_when(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([3 * MS, 9 * MS])
    monkeypatch.setattr(module, "monotonic_ns", lambda: next(now))
    job = Job(INTERACTIVE, 1 * MS)
    seen: list[str] = []
    client: Any = FakeClient(*CHUNKS)
    await ask(client, job, "why?", 9, lambda chunk: seen.append(chunk.text))
    assert seen == ["blue"]
    assert (job.queue_ms, job.ttft_ms, job.last_ns, job.output_tok) == (5.0, 2.0, 9 * MS, 5)
    asked = client.asked[0]
    assert (asked["class_"], asked["max_tokens"]) == (INTERACTIVE, 9)
    assert asked["messages"] == [{"role": "user", "content": "why?"}]


async def test_everything_is_sent_at_once_and_movement_is_noticed() -> None:
    client: Any = FakeClient(*CHUNKS)
    flood = Flood(client)
    flood.begin(["a", "b", "c"], 9)
    await flood.moving.wait()
    assert len(client.asked) == 3
    assert {job.class_ for job in flood.jobs} == {BATCH}
    await flood.end()


async def test_ending_it_is_no_error() -> None:
    client: Any = FakeClient()
    flood = Flood(client)
    flood.begin(["a", "b"], 9)
    await asyncio.sleep(0)
    await flood.end()
    assert [job.refused for job in flood.jobs] == [None, None]


def refusal() -> OnegateError:
    return error_of(
        m.Failed(reason=Reason.TOKENS_FULL, message="x", retryable=True, phase=Phase.ARRIVAL),
        started=False,
    )


async def test_refusals_are_counted_and_nobody_waits_for_movement_in_vain() -> None:
    client: Any = FakeClient(refusal())
    flood = Flood(client)
    flood.begin(["a", "b"], 9)
    await flood.moving.wait()
    assert [job.refused for job in flood.jobs] == ["tokens_full", "tokens_full"]
    await flood.end()


async def test_a_bug_in_a_job_is_not_swallowed() -> None:
    client: Any = FakeClient(ZeroDivisionError())
    flood = Flood(client)
    flood.begin(["a"], 9)
    await flood.moving.wait()
    with pytest.raises(ZeroDivisionError):
        await flood.end()
