"""A bare engine host as a target, with the engine that a test plays."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onegate.bench.targets import host as host_module
from onegate.bench.targets.base import Ask, Broke, Expired, Refused, TargetError
from onegate.bench.targets.host import HostTarget
from onegate.config import EngineConfig, check
from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineCapacity,
    EngineChunk,
    EngineLost,
    EngineRefused,
    EngineRequest,
    Finished,
    PoolInfo,
    PoolState,
    Reservation,
    SeatFreed,
    Sink,
    TokenCount,
)
from onegate.protocol.content import FinishReason, Usage

READY = PoolInfo(
    model="tiny",
    state=PoolState.READY,
    capacity=EngineCapacity(max_seqs=1, max_context_tok=64, reservation=Reservation.GROW),
    params=frozenset({"ignore_eos"}),
)


class Items:
    def __init__(self, engine: "PlayedEngine", request: EngineRequest) -> None:
        self._engine, self._request = engine, request
        self._items = self._go()
        self.closed = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._items

    async def _go(self) -> AsyncIterator[Any]:
        yield Accepted(prompt_tok=5)
        if self._engine.error is not None:
            raise self._engine.error
        await self._engine.may_speak.wait()
        yield EngineChunk(n_tok=1, text="")
        yield EngineChunk(n_tok=1, text="a")
        usage = Usage(prompt_tok=5, output_tok=2)
        yield Finished(finish_reason=FinishReason.LENGTH, usage=usage)

    async def aclose(self) -> None:
        self.closed = True


class PlayedEngine:
    def __init__(self, pool: PoolInfo = READY) -> None:
        self._pool = pool
        self.error: Exception | None = None
        self.requests: list[EngineRequest] = []
        self.items: list[Items] = []
        self.may_speak = asyncio.Event()
        self.may_speak.set()
        self.closed = False
        self.tell: Sink

    async def start(self, sink: Sink) -> None:
        self.tell = sink

    def pools(self) -> list[PoolInfo]:
        return [self._pool]

    async def count(self, model: str, *, prompt: str) -> TokenCount:
        return TokenCount(n_tok=len(prompt), exact=True)

    def generate(self, request: EngineRequest) -> Items:
        self.requests.append(request)
        self.items.append(Items(self, request))
        return self.items[-1]

    async def aclose(self, deadline_s: float) -> None:
        self.closed = True


class Watched:
    def __init__(self) -> None:
        self.pieces: list[bool] = []
        self.begun = asyncio.Event()

    def started(self, queue_ms: float | None) -> None:
        assert queue_ms is not None
        self.begun.set()

    def piece(self, n_tok: int, *, visible: bool) -> None:
        self.pieces.append(visible)


async def opened(engine: Any) -> HostTarget:
    target = HostTarget(engine, None, ready_s=1.0)
    await target.open()
    return target


def asking(**more: Any) -> Ask:
    return Ask(**({"text": "hi", "output_tok": 7, "client": 3} | more))


async def test_an_answer_is_watched_as_it_comes() -> None:
    engine = PlayedEngine()
    target = await opened(engine)
    watched = Watched()
    usage = await target.ask(asking(), watched)
    assert (usage.prompt_tok, usage.output_tok) == (5, 2)
    assert watched.pieces == [False, True]
    (request,) = engine.requests
    assert (request.prompt, request.max_tokens, request.params.ignore_eos) == ("hi", 7, True)


async def test_a_seat_is_given_back_by_the_hosts_word_alone() -> None:
    engine = PlayedEngine()
    target = await opened(engine)
    await target.ask(asking(), Watched())
    second = Watched()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await target.ask(asking(), second)
    assert not second.begun.is_set()
    engine.tell(SeatFreed(id=1))
    engine.tell(SeatFreed(id=1))
    await target.ask(asking(), second)
    assert [r.id for r in engine.requests] == [1, 2]
    engine.tell(EngineLost(ids=[2], reason="", restarts=1))
    await target.ask(asking(), Watched())


async def test_whoever_leaves_aborts() -> None:
    engine = PlayedEngine()
    engine.may_speak.clear()
    target = await opened(engine)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await target.ask(asking(), Watched())
    assert engine.items[0].closed


@pytest.mark.parametrize(
    ("error", "kind"), [(EngineRefused("no"), Refused), (EngineBroke("gone"), Broke)]
)
async def test_how_attempts_end(error: Exception, kind: Any) -> None:
    engine = PlayedEngine()
    engine.error = error
    with pytest.raises(kind):
        await (await opened(engine)).ask(asking(), Watched())


async def test_a_deadline_runs_out() -> None:
    engine = PlayedEngine()
    engine.may_speak.clear()
    with pytest.raises(Expired, match="deadline_exceeded"):
        await (await opened(engine)).ask(asking(timeout_ms=1), Watched())


async def test_output_may_be_waited_for_less_long() -> None:
    engine = PlayedEngine()
    engine.may_speak.clear()
    target = await opened(engine)
    with pytest.raises(Expired, match="ttft_deadline_exceeded"):
        await target.ask(asking(ttft_timeout_ms=1, timeout_ms=60_000), Watched())
    assert engine.items[0].closed


def test_the_host_is_its_own_and_not_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def build(config: EngineConfig, **_: Any) -> Any:
        built.append(config)
        return PlayedEngine()

    monkeypatch.setattr(host_module, "build_engine", build)
    config = check('[engine]\nkind = "scripted"\nhost_socket = "/run/onegate-engine/host.sock"\n')
    HostTarget.of(config, None, ready_s=1, log=lambda text: None)
    assert [engine.host_socket for engine in built] == [None]


async def test_a_host_that_cannot_be_measured() -> None:
    failed = PoolInfo(
        model="tiny", state=PoolState.FAILED, capacity=READY.capacity, error="no weights"
    )
    with pytest.raises(TargetError, match="no weights"):
        await opened(PlayedEngine(failed))
    with pytest.raises(TargetError, match="the engine host has no model other; it has tiny"):
        await HostTarget(PlayedEngine(), "other", ready_s=60.0).open()  # type: ignore[arg-type]
    loading = PoolInfo(model="tiny", state=PoolState.LOADING, capacity=READY.capacity)
    with pytest.raises(TargetError, match="no model ready"):
        await HostTarget(PlayedEngine(loading), None, ready_s=0.01).open()  # type: ignore[arg-type]


async def test_a_host_that_does_not_count_is_not_waited_for() -> None:
    class Mute(PlayedEngine):
        async def count(self, model: str, *, prompt: str) -> TokenCount:
            await asyncio.Event().wait()
            raise AssertionError

    target = HostTarget(Mute(), None, ready_s=0.01)  # type: ignore[arg-type]
    await target.open()
    with pytest.raises(TargetError, match="counted no tokens within"):
        await target.count("four")


async def test_it_counts_and_ends_with_its_engine() -> None:
    engine = PlayedEngine()
    target = await opened(engine)
    assert await target.count("four") == 4
    await target.aclose()
    assert engine.closed
