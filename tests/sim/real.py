"""The embedded engine itself, asked without a gate, first come first served.

`Served` is its host, a process of its own, by the clock on the wall. `Stepped` is the same engine
inside this process by the clock of its processor, which stands still while other programs have it,
and jumps to the next arrival when nobody is there: what a busy machine can tell of a quiet one.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from onegate.clock import monotonic_ns
from onegate.config import EngineConfig
from onegate.engines.base import (
    Engine,
    EngineCapacity,
    EngineChunk,
    EngineEvent,
    EngineRequest,
    PoolChanged,
    PoolState,
    SeatFreed,
)
from onegate.engines.host import build
from onegate.engines.host.settings import read_settings
from onegate.engines.plan import openvino_plan
from onegate.engines.registry import build_engine
from onegate.protocol.content import Params

CONFIG = EngineConfig(kind="openvino", prefix_cache=False)
# Any tokens do: the model computes as much for one as for another.
FIRST_TOK, LAST_TOK = 1000, 40_000
READY_S = 120.0


@dataclass(slots=True)
class Seen:
    """One request on either engine: nanoseconds from its arrival, and of each token."""

    arrived_ns: int
    pieces_ns: list[int]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request to come, so long after the beginning."""

    at_ns: int
    prompt_tok: int
    output_tok: int


class Real(Protocol):
    """What can be measured."""

    async def open(self) -> EngineCapacity:
        """Load the model."""

    async def play(self, asks: Sequence[Arrival], late: Arrival | None = None) -> list[Seen]:
        """Run them, as many at a time as there are seats. `late` comes when the first has half of
        its answer, and is not among those that are returned."""

    async def aclose(self) -> None:
        """Stop it."""


def request(id: int, model: str, ask: Arrival, rng: Random) -> EngineRequest:
    """A prompt of any tokens, and an answer of just that length."""
    return EngineRequest(
        id=id,
        model=model,
        prompt_tok_ids=[rng.randint(FIRST_TOK, LAST_TOK) for _ in range(ask.prompt_tok)],
        max_tokens=ask.output_tok,
        params=Params(temperature=0.0, ignore_eos=True),
    )


class Served:
    """See above."""

    def __init__(self) -> None:
        self._engine: Engine = build_engine(CONFIG, log=lambda line: None, crashed=self._crashed)
        self._rng = Random(1)
        self._last_id = 0
        self._freed: dict[int, asyncio.Event] = {}
        self._seats = asyncio.Semaphore(1)
        self._changed = asyncio.Event()
        self._model = ""

    async def open(self) -> EngineCapacity:
        await self._engine.start(self._hear)
        async with asyncio.timeout(READY_S):
            while not (ready := [p for p in self._engine.pools() if p.state is PoolState.READY]):
                await self._changed.wait()
                self._changed.clear()
        self._model = ready[0].model
        self._seats = asyncio.Semaphore(ready[0].capacity.max_seqs)
        return ready[0].capacity

    async def play(self, asks: Sequence[Arrival], late: Arrival | None = None) -> list[Seen]:
        begun_ns = monotonic_ns()
        half = asyncio.Event()

        async def one(ask: Arrival) -> Seen:
            await asyncio.sleep(max(0, begun_ns + ask.at_ns - monotonic_ns()) / 1e9)
            return await self._run(ask, half)

        async def last() -> None:
            if late is not None:
                await half.wait()
                await self._run(late, half)

        *seen, _ = await asyncio.gather(*(one(ask) for ask in asks), last())
        return seen

    async def _run(self, ask: Arrival, half: asyncio.Event) -> Seen:
        self._last_id += 1
        id, seen = self._last_id, Seen(monotonic_ns(), [])
        async with self._seats:
            freed = self._freed[id] = asyncio.Event()
            async for item in self._engine.generate(request(id, self._model, ask, self._rng)):
                if isinstance(item, EngineChunk):
                    seen.pieces_ns += [monotonic_ns()] * item.n_tok
                    if 2 * len(seen.pieces_ns) >= ask.output_tok:
                        half.set()
            await freed.wait()
        return seen

    async def aclose(self) -> None:
        await self._engine.aclose(10.0)

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, SeatFreed):
            self._freed.pop(event.id).set()
        elif isinstance(event, PoolChanged):
            self._changed.set()

    @staticmethod
    def _crashed(name: str, error: BaseException) -> None:
        raise error


class Stepped:
    """See above."""

    def __init__(self) -> None:
        settings = read_settings(openvino_plan(CONFIG).table())
        self._engine = build.build_engine(settings, hang_up=lambda: None)
        self._rng = Random(1)
        self._last_id = 0
        self._model = ""
        self._seats = 0

    async def open(self) -> EngineCapacity:
        while (pool := self._engine.pools()[0]).state is not PoolState.READY:
            self._engine.step()
        self._model, self._seats = pool.model, pool.capacity.max_seqs
        return pool.capacity

    async def play(self, asks: Sequence[Arrival], late: Arrival | None = None) -> list[Seen]:
        begun_ns, skipped_ns = time.process_time_ns(), 0
        found = [Seen(ask.at_ns, []) for ask in asks]
        waiting = list(zip(asks, found, strict=True))
        running: dict[int, tuple[Arrival, Seen]] = {}
        while waiting or running:
            now_ns = time.process_time_ns() - begun_ns + skipped_ns
            if not running and waiting[0][0].at_ns > now_ns:
                skipped_ns += waiting[0][0].at_ns - now_ns
                now_ns = waiting[0][0].at_ns
            while waiting and waiting[0][0].at_ns <= now_ns and len(running) < self._seats:
                ask, seen = waiting.pop(0)
                self._last_id += 1
                self._engine.submit(request(self._last_id, self._model, ask, self._rng))
                running[self._last_id] = ask, seen
            report = self._engine.step()
            now_ns = time.process_time_ns() - begun_ns + skipped_ns
            for output in report.outputs:
                ask, seen = running[output.id]
                seen.pieces_ns += [now_ns] * output.chunk.n_tok
                if late is not None and 2 * len(seen.pieces_ns) >= ask.output_tok:
                    waiting.append((late, Seen(now_ns, [])))
                    late = None
            for id in report.freed:
                del running[id]
        return found

    async def aclose(self) -> None:
        self._engine.unload(self._model)
