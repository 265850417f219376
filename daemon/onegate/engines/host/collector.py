"""From the tokens of the sequences inside an engine to what the daemon is told of them."""

from onegate.engines.base import EngineChunk
from onegate.engines.host.detok import DecodeBatch, take_all
from onegate.engines.host.engine import StepReport
from onegate.engines.host.pipeline import ReadTokens
from onegate.engines.host.sequence import Sequence
from onegate.engines.host.wire import Output
from onegate.protocol.content import TokenLogprob


class Collector:
    """Every sequence that holds a seat, until the library has let go of it."""

    def __init__(self, decode: DecodeBatch) -> None:
        self._decode = decode
        self._sequences: dict[int, Sequence] = {}

    def ids(self) -> list[int]:
        """Requests that hold a seat."""
        return list(self._sequences)

    def add(self, sequence: Sequence) -> None:
        """Take a sequence that the library has taken."""
        self._sequences[sequence.id] = sequence

    def abort(self, id: int) -> None:
        """The library is to let go of the sequence; unknown ids are ignored."""
        if (sequence := self._sequences.get(id)) is not None:
            self._give_up(sequence)

    def collect(self, report: StepReport) -> int:
        """Read what every sequence has produced; returns how many tokens that is."""
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

    def _give_up(self, sequence: Sequence) -> None:
        if not sequence.leaving:
            sequence.leaving = True
            sequence.handle.cancel()

    def _emit(
        self, reads: list[tuple[Sequence, ReadTokens]], turn: int, report: StepReport
    ) -> None:
        speaking = [(s, r) for s, r in reads if not s.stopped]
        for sequence, read in speaking:
            sequence.text.push(read.ids[turn])
        texts = take_all([s.text for s, _ in speaking], self._decode)
        for (sequence, read), text in zip(speaking, texts, strict=True):
            logprob = None
            if sequence.wants_logprobs:
                alone = self._decode([[read.ids[turn]]])[0]
                logprob = TokenLogprob(token=alone, logprob=read.logprobs[turn])
            chunk = sequence.chunk(read.ids[turn], text, logprob)
            report.outputs.append(Output(id=sequence.id, chunk=chunk))

    def _end(self, sequence: Sequence, finish: str | None, report: StepReport) -> None:
        if finish is None and not sequence.stopped:
            return
        if not sequence.told:
            sequence.told = True
            if not sequence.stopped and (rest := sequence.rest(self._decode)):
                report.outputs.append(Output(id=sequence.id, chunk=EngineChunk(n_tok=0, text=rest)))
            report.ended.append(sequence.ended(finish))
        if finish is None:
            # The end is ours, by a stop string: the library learns of it now.
            self._give_up(sequence)
        else:
            self._let_go(sequence, report)

    def _let_go(self, sequence: Sequence, report: StepReport) -> None:
        self._forget(sequence)
        report.freed.append(sequence.id)

    def _forget(self, sequence: Sequence) -> None:
        """The library has let go of it."""
        del self._sequences[sequence.id]
