"""The embedded engine itself, asked without a gate, first come first served."""

import asyncio
from dataclasses import dataclass
from random import Random

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


class Real:
    """The embedded engine, first come first served, as many as there are seats."""

    def __init__(self) -> None:
        self._engine: Engine = build_engine(CONFIG, log=lambda line: None, crashed=self._crashed)
        self._rng = Random(1)
        self._last_id = 0
        self._freed: dict[int, asyncio.Event] = {}
        self._seats = asyncio.Semaphore(1)
        self._changed = asyncio.Event()
        self.model = ""

    async def open(self) -> EngineCapacity:
        """Start it and wait until its model is loaded."""
        await self._engine.start(self._hear)
        async with asyncio.timeout(READY_S):
            while not (ready := [p for p in self._engine.pools() if p.state is PoolState.READY]):
                await self._changed.wait()
                self._changed.clear()
        self.model = ready[0].model
        self._seats = asyncio.Semaphore(ready[0].capacity.max_seqs)
        return ready[0].capacity

    async def run(
        self, prompt_tok: int, output_tok: int, half: asyncio.Event | None = None
    ) -> Seen:
        """Run one request of that size and note when its tokens came; `half` is set when half of
        them have come."""
        self._last_id += 1
        id, seen = self._last_id, Seen(monotonic_ns(), [])
        async with self._seats:
            freed = self._freed[id] = asyncio.Event()
            items = self._engine.generate(
                EngineRequest(
                    id=id,
                    model=self.model,
                    prompt_tok_ids=[
                        self._rng.randint(FIRST_TOK, LAST_TOK) for _ in range(prompt_tok)
                    ],
                    max_tokens=output_tok,
                    params=Params(temperature=0.0, ignore_eos=True),
                )
            )
            async for item in items:
                if isinstance(item, EngineChunk):
                    seen.pieces_ns += [monotonic_ns()] * item.n_tok
                    if half is not None and 2 * len(seen.pieces_ns) >= output_tok:
                        half.set()
            await freed.wait()
        return seen

    async def aclose(self) -> None:
        """Stop it."""
        await self._engine.aclose(10.0)

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, SeatFreed):
            self._freed.pop(event.id).set()
        elif isinstance(event, PoolChanged):
            self._changed.set()

    @staticmethod
    def _crashed(name: str, error: BaseException) -> None:
        raise error
