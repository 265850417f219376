"""The sequences inside one loaded model, advanced together a step at a time."""

from onegate.clock import monotonic_ns
from onegate.engines.base import EngineSnapshot
from onegate.engines.host.collector import Collector
from onegate.engines.host.engine import StepReport
from onegate.engines.host.memory import rss_bytes
from onegate.engines.host.pipeline import Pipeline
from onegate.engines.host.prefixes import Prefixes
from onegate.engines.host.sequence import Sequence
from onegate.engines.host.step_times import StepTimes
from onegate.engines.host.wire import Prefilled

_SNAPSHOT_EVERY_NS = 250_000_000


class Batch(Collector):
    """The library frees a sequence that is given up in its next step."""

    def __init__(
        self,
        pipeline: Pipeline,
        model: str,
        *,
        kv_tok: int,
        max_step_tok: int,
        prefixes: Prefixes | None = None,
    ) -> None:
        super().__init__(pipeline.decode)
        self._prefixes = prefixes
        self._pipeline = pipeline
        self._model = model
        self._kv_tok = kv_tok
        self._max_step_tok = max_step_tok
        self._times = StepTimes()
        self._snapshot_ns = 0

    def cached_tok(self, owner: str, ids: list[int]) -> int | None:
        """How many of these tokens the library has in its cache for certain, of what its owner
        has put there; None without a cache."""
        if self._prefixes is None:
            return None
        return self._prefixes.found_tok(owner, ids, self._held_tok())

    def step(self) -> StepReport:
        """Run one step and tell what came of it."""
        began_ns = monotonic_ns()
        freed = [s.id for s in self._sequences.values() if s.leaving]
        report = StepReport(freed=freed, prefilled=self._prefilled())
        self._pipeline.step()
        for id in freed:
            self._forget(self._sequences[id])
        output_tok = self.collect(report)
        now_ns = monotonic_ns()
        self._times.add(now_ns - began_ns, output_tok)
        if now_ns - self._snapshot_ns >= _SNAPSHOT_EVERY_NS or not self._sequences:
            self._snapshot_ns = now_ns
            report.snapshot = self._snapshot()
        return report

    def _held_tok(self) -> list[int]:
        return [s.computed_tok + s.output_tok for s in self._sequences.values()]

    def _forget(self, sequence: Sequence) -> None:
        """The library has let go of it, and of its cache only when it needs the room."""
        if self._prefixes is not None:
            self._prefixes.leave(sequence.owner, sequence.computed_ids, self._held_tok())
        super()._forget(sequence)

    def _prefilled(self) -> list[Prefilled]:
        """How the library will share out the coming step: first one token for each sequence that
        decodes, then prompts in the order of their arrival."""
        live = [s for s in self._sequences.values() if not s.leaving]
        room_tok = self._max_step_tok - sum(1 for s in live if s.output_tok)
        moved = []
        for sequence in live:
            left_tok = 0 if sequence.output_tok else sequence.computed_tok - sequence.prefilled_tok
            took_tok = max(0, min(left_tok, room_tok))
            room_tok -= took_tok
            sequence.prefilled_tok += took_tok
            if took_tok:
                moved.append(Prefilled(id=sequence.id, prefilled_tok=sequence.prefilled_tok))
        return moved

    def _snapshot(self) -> EngineSnapshot:
        # The library's own figures are of the last step, and there is none when it is idle.
        idle = not self._sequences
        return EngineSnapshot(
            model=self._model,
            seats_used=len(self._sequences),
            kv_tok_used=0 if idle else round(self._pipeline.cache_share() * self._kv_tok),
            waiting=0 if idle else self._pipeline.waiting(),
            steps=self._times.count,
            step_ms_p50=self._times.percentile_ms(0.50),
            step_ms_p95=self._times.percentile_ms(0.95),
            tok_per_s=self._times.tok_per_s(),
            rss_bytes=rss_bytes(),
        )
