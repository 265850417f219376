"""The requests inside the library, as the host's own thread knows them."""

import sys

from onegate.clock import monotonic_ns
from onegate.engines.base import EngineSnapshot
from onegate.engines.host.collector import Collector
from onegate.engines.host.detok import DecodeBatch
from onegate.engines.host.engine import StepReport
from onegate.engines.host.memory import rss_bytes
from onegate.engines.host.pipeline import ReadTokens
from onegate.engines.host.step_times import StepTimes
from onegate.engines.host.trtllm.advice import StepAdvice
from onegate.engines.host.trtllm.messages import (
    Broken,
    Failed,
    Finished,
    Gone,
    Iteration,
    Iterations,
    Message,
    Tokens,
)
from onegate.engines.host.trtllm.session import Session
from onegate.engines.host.wire import Ended, Prefilled
from onegate.protocol.content import Usage

_SNAPSHOT_EVERY_NS = 250_000_000
# Older figures are of an engine that has made no step since: what they say of now is nothing.
_FRESH_NS = 1_000_000_000
_NS_PER_MS = 1e6


class Handle:
    """A request of the library's; see `pipeline.Handle`."""

    def __init__(self, session: Session, id: int) -> None:
        self._session = session
        self._id = id
        self.unread: list[int] = []
        self.finish: str | None = None
        self.cancelled = False

    def read(self) -> ReadTokens:
        ids, self.unread = self.unread, []
        return ReadTokens(ids, [], self.finish)

    def cancel(self) -> None:
        self.cancelled = True
        self._session.abort(self._id)


class Inside(Collector):
    """Turns the messages of the session into what the daemon is told.

    `tells_cached`: what the cache had of a prompt can only be what the same principal put there.
    """

    def __init__(
        self,
        session: Session,
        decode: DecodeBatch,
        model: str,
        advice: StepAdvice,
        *,
        tells_cached: bool,
    ) -> None:
        super().__init__(decode)
        self._session = session
        self._model = model
        self._advice = advice
        self._tells_cached = tells_cached
        self._handles: dict[int, Handle] = {}
        self._cached: dict[int, int] = {}
        self._times = StepTimes()
        self._output_tok = 0
        self._last = Iteration()
        self._last_ns = 0
        self._snapshot_ns = 0

    def handle(self, id: int) -> Handle:
        """The handle of a request that is about to be submitted."""
        self._handles[id] = Handle(self._session, id)
        return self._handles[id]

    def forget(self, id: int) -> None:
        """It was not taken."""
        del self._handles[id]

    def step(self, messages: list[Message]) -> StepReport:
        """What has come of the last messages."""
        report = StepReport(stepped=False)
        gone: list[int] = []
        for message in messages:
            match message:
                case Tokens(id, ids):
                    report.stepped = True
                    if (handle := self._handles.get(id)) is not None:
                        handle.unread += ids
                case Finished(id, reason, cached_tok):
                    report.stepped = True
                    self._finish(id, reason, cached_tok, gone)
                case Failed(id, text):
                    self._fail(id, text, report)
                case Gone(id):
                    gone.append(id)
                case Iterations(steps):
                    report.stepped = True
                    self._note(steps, report)
                case Broken():
                    continue  # its owner has seen to it before
        had = bool(self._sequences)
        self._output_tok += self.collect(report)
        for ended in report.ended:
            if ended.id in self._cached:
                at = report.ended.index(ended)
                report.ended[at] = _with_cached(ended, self._cached.pop(ended.id))
        for id in gone:
            if (sequence := self._sequences.get(id)) is not None:
                self._let_go(sequence, report)
        for id in report.freed:
            self._handles.pop(id, None)
            self._cached.pop(id, None)
        if had:
            self._snap(report)
        return report

    def _finish(self, id: int, reason: str, cached_tok: int | None, gone: list[int]) -> None:
        handle = self._handles.get(id)
        if handle is None:
            return  # given up before
        if reason == "cancelled" and handle.cancelled:
            gone.append(id)
            return
        handle.finish = reason
        if cached_tok is not None and self._tells_cached:
            self._cached[id] = cached_tok

    def _fail(self, id: int, text: str, report: StepReport) -> None:
        sequence = self._sequences.get(id)
        if sequence is None:
            return
        if not sequence.told and not sequence.leaving:
            usage = Usage(prompt_tok=sequence.prompt_tok, output_tok=sequence.output_tok)
            report.ended.append(Ended(id=id, usage=usage, error=text))
        self._let_go(sequence, report)

    def _note(self, steps: list[Iteration], report: StepReport) -> None:
        self._last, self._last_ns = steps[-1], monotonic_ns()
        for step in steps:
            if step.latency_ms is not None:
                # The tokens of all of them are counted with the first: only sums are told.
                self._times.add(int(step.latency_ms * _NS_PER_MS), self._output_tok)
                self._output_tok = 0
            if step.prompt_tok:
                self._share_out(step.prompt_tok, report)
            if (line := self._advice.line(step)) is not None:
                sys.stderr.write(f"{line}\n")

    def _share_out(self, prompt_tok: int, report: StepReport) -> None:
        """Whose prompt it was that a step has read: prompts are read in the order of arrival."""
        for sequence in self._sequences.values():
            # The last token of a prompt shows itself by the first of the answer.
            left_tok = sequence.computed_tok - 1 - sequence.prefilled_tok
            took_tok = min(left_tok, prompt_tok)
            if took_tok <= 0:
                continue
            sequence.prefilled_tok += took_tok
            prompt_tok -= took_tok
            if not sequence.output_tok and not sequence.leaving:
                done = Prefilled(id=sequence.id, prefilled_tok=sequence.prefilled_tok)
                report.prefilled.append(done)

    def _snap(self, report: StepReport) -> None:
        now_ns = monotonic_ns()
        if self._sequences and now_ns - self._snapshot_ns < _SNAPSHOT_EVERY_NS:
            return
        self._snapshot_ns = now_ns
        last = self._last if now_ns - self._last_ns < _FRESH_NS else Iteration()
        used_tok = None if self._sequences else 0  # what is kept for reuse is given up on demand
        if self._sequences and last.blocks_used is not None and last.block_tok is not None:
            used_tok = last.blocks_used * last.block_tok
        waiting = None
        if last.scheduled is not None:
            waiting = max(0, len(self._sequences) - last.scheduled)
        report.snapshot = EngineSnapshot(
            model=self._model,
            seats_used=len(self._sequences),
            kv_tok_used=used_tok,
            waiting=waiting if self._sequences else 0,
            steps=self._times.count,
            step_ms_p50=self._times.percentile_ms(0.50),
            step_ms_p95=self._times.percentile_ms(0.95),
            tok_per_s=self._times.tok_per_s(),
            rss_bytes=rss_bytes(),
        )


def _with_cached(ended: Ended, cached_tok: int) -> Ended:
    return Ended(
        id=ended.id,
        usage=ended.usage,
        finish_reason=ended.finish_reason,
        error=ended.error,
        cached_tok=cached_tok,
    )
