"""The sequences inside one loaded model, advanced together a step at a time."""

from onegate.clock import monotonic_ns
from onegate.engines.base import EngineChunk, EngineSnapshot
from onegate.engines.host.detok import take_all
from onegate.engines.host.engine import StepReport
from onegate.engines.host.memory import rss_bytes
from onegate.engines.host.pipeline import Pipeline, ReadTokens
from onegate.engines.host.prefixes import Prefixes
from onegate.engines.host.sequence import Sequence
from onegate.engines.host.step_times import StepTimes
from onegate.engines.host.wire import Output, Prefilled
from onegate.protocol.content import TokenLogprob

_SNAPSHOT_EVERY_NS = 250_000_000


class Batch:
    """Every sequence that holds a seat, until the library has let go of it."""

    def __init__(
        self,
        pipeline: Pipeline,
        model: str,
        *,
        kv_tok: int,
        max_step_tok: int,
        prefixes: Prefixes | None = None,
    ) -> None:
        self._prefixes = prefixes
        self._pipeline = pipeline
        self._model = model
        self._kv_tok = kv_tok
        self._max_step_tok = max_step_tok
        self._sequences: dict[int, Sequence] = {}
        self._times = StepTimes()
        self._snapshot_ns = 0

    def ids(self) -> list[int]:
        """Requests that hold a seat."""
        return list(self._sequences)

    def cached_tok(self, owner: str, ids: list[int]) -> int | None:
        """How many of these tokens the library has in its cache for certain, of what its owner
        has put there; None without a cache."""
        if self._prefixes is None:
            return None
        return self._prefixes.found_tok(owner, ids, self._held_tok())

    def add(self, sequence: Sequence) -> None:
        """Take a sequence that the pipeline has queued."""
        self._sequences[sequence.id] = sequence

    def abort(self, id: int) -> None:
        """The library frees the sequence in the next step; unknown ids are ignored."""
        if (sequence := self._sequences.get(id)) is not None:
            self._give_up(sequence)

    def step(self) -> StepReport:
        """Run one step and tell what came of it."""
        began_ns = monotonic_ns()
        freed = [s.id for s in self._sequences.values() if s.leaving]
        report = StepReport(freed=freed, prefilled=self._prefilled())
        self._pipeline.step()
        for id in freed:
            self._forget(self._sequences[id])
        output_tok = self._collect(report)
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
        del self._sequences[sequence.id]

    def _give_up(self, sequence: Sequence) -> None:
        sequence.leaving = True
        sequence.handle.cancel()

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

    def _collect(self, report: StepReport) -> int:
        reads = [(s, s.handle.read()) for s in self._sequences.values()]
        # One token of each at a time: text must not depend on how tokens were batched.
        for turn in range(max((len(read.ids) for _, read in reads), default=0)):
            self._emit([(s, r) for s, r in reads if turn < len(r.ids)], turn, report)
        speaking = {output.id for output in report.outputs}
        report.prefilled = [p for p in report.prefilled if p.id not in speaking]
        output_tok = len(report.outputs)
        for sequence, read in reads:
            self._end(sequence, read.finish, report)
        return output_tok

    def _emit(
        self, reads: list[tuple[Sequence, ReadTokens]], turn: int, report: StepReport
    ) -> None:
        speaking = [(s, r) for s, r in reads if not s.stopped]
        for sequence, read in speaking:
            sequence.text.push(read.ids[turn])
        texts = take_all([s.text for s, _ in speaking], self._pipeline.decode)
        for (sequence, read), text in zip(speaking, texts, strict=True):
            logprob = None
            if sequence.wants_logprobs:
                alone = self._pipeline.decode([[read.ids[turn]]])[0]
                logprob = TokenLogprob(token=alone, logprob=read.logprobs[turn])
            chunk = sequence.chunk(read.ids[turn], text, logprob)
            report.outputs.append(Output(id=sequence.id, chunk=chunk))

    def _end(self, sequence: Sequence, finish: str | None, report: StepReport) -> None:
        if finish is None and not sequence.stopped:
            return
        if not sequence.stopped and (rest := sequence.rest(self._pipeline.decode)):
            report.outputs.append(Output(id=sequence.id, chunk=EngineChunk(n_tok=0, text=rest)))
        report.ended.append(sequence.ended(finish))
        if finish is None:
            # The end is ours, by a stop string: the library learns of it in the next step.
            self._give_up(sequence)
        else:
            self._forget(sequence)
            report.freed.append(sequence.id)

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
