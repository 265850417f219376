"""The sequences of one scripted pool, advanced together under its cost model."""

from collections.abc import Callable

from onegate.engines.base import EngineSnapshot, Reservation
from onegate.engines.host.engine import StepReport
from onegate.engines.host.memory import rss_bytes
from onegate.engines.host.scripted_faults import Faults
from onegate.engines.host.scripted_sequence import ScriptedSequence
from onegate.engines.host.settings import ScriptedPool
from onegate.engines.host.step_times import StepTimes
from onegate.engines.host.wire import Output, Prefilled

NowNs = Callable[[], int]
Sleep = Callable[[float], None]

_SNAPSHOT_EVERY_NS = 250_000_000
_NS_PER_MS = 1_000_000
_MS_PER_S = 1000.0


class ScriptedBatch:
    """Everything that holds a seat of one pool, in the order of arrival.

    Seats are the host's to check. What the cache has no room for waits inside, as in an engine
    that reserves as it goes; when what runs outgrows the cache, the youngest is computed anew.
    """

    def __init__(self, pool: ScriptedPool, faults: Faults, now_ns: NowNs, sleep: Sleep) -> None:
        self._pool = pool
        self._faults = faults
        self._now_ns = now_ns
        self._sleep = sleep
        self._sequences: dict[int, ScriptedSequence] = {}
        self._times = StepTimes()
        self._snapshot_ns = 0

    def ids(self) -> list[int]:
        """Requests that hold a seat."""
        return list(self._sequences)

    def add(self, sequence: ScriptedSequence) -> None:
        """Take a sequence; it begins with the next step."""
        self._sequences[sequence.id] = sequence

    def abort(self, id: int) -> None:
        """Its seat is free after the next step, or when the time it is held for is over."""
        sequence = self._sequences.get(id)
        if sequence is not None and not sequence.leaving:
            sequence.leaving = True
            hold_ms = sequence.script.number("hold-seat") or 0
            sequence.hold_ns = self._now_ns() + hold_ms * _NS_PER_MS

    def step(self) -> StepReport:
        """One step: seats freed, cache granted, prompts computed, a token for each that decodes."""
        began_ns = self._now_ns()
        report = StepReport()
        live = [s for s in self._sequences.values() if not s.leaving]
        for sequence in live:
            self._faults.before_step(sequence, report)
        self._admit(live)
        decoding = [s for s in live if s.decodes]
        prefill_tok = self._prefill(live, len(decoding), report)
        self._sleep(self._cost_ms(decoding, prefill_tok) / _MS_PER_S)
        self._free(report)
        for sequence in live:
            if sequence.decodes:
                self._say(sequence, report)
        speaking = {output.id for output in report.outputs}
        report.prefilled = [p for p in report.prefilled if p.id not in speaking]
        self._measure(began_ns, len(report.outputs), report)
        return report

    def _admit(self, live: list[ScriptedSequence]) -> None:
        for sequence in live:
            if sequence.admitted:
                continue
            need_tok = self._need_tok(sequence)
            if self._used_tok() + need_tok > self._pool.kv_tok and self._used_tok():
                return  # in the order of arrival: nobody is overtaken
            sequence.admitted = True
            sequence.kv_tok = need_tok

    def _need_tok(self, sequence: ScriptedSequence) -> int:
        if self._pool.reservation is Reservation.PER_SLOT:
            return 0
        left_tok = sequence.max_tok - sequence.output_tok
        ahead_tok = left_tok if self._pool.reservation is Reservation.FULL else 0
        return sequence.computed_tok + ahead_tok

    def _used_tok(self) -> int:
        return sum(s.kv_tok for s in self._sequences.values())

    def _prefill(self, live: list[ScriptedSequence], decoding: int, report: StepReport) -> int:
        most_tok = self._pool.max_step_tok
        total_tok = 0
        for sequence in live:
            if not sequence.admitted or sequence.decodes:
                continue
            took_tok = sequence.computed_tok - sequence.prefilled_tok
            if most_tok is not None:
                # At least one, or a step full of decoders would never compute a prompt.
                room_tok = max(most_tok - decoding - total_tok, 0 if total_tok else 1)
                took_tok = min(took_tok, room_tok)
            sequence.prefilled_tok += took_tok
            total_tok += took_tok
            if took_tok and not sequence.output_tok:
                done = Prefilled(id=sequence.id, prefilled_tok=sequence.prefilled_tok)
                report.prefilled.append(done)
        return total_tok

    def _cost_ms(self, decoding: list[ScriptedSequence], prefill_tok: int) -> float:
        pool = self._pool
        fixed = [ms for s in decoding if (ms := s.script.number("step-ms")) is not None]
        cost_ms = pool.a_ms + pool.b_ms_per_prefill_tok * prefill_tok
        cost_ms += pool.c_ms_per_seq * len(decoding)
        stalls = [s.script.number("stall") or 0 for s in decoding if s.output_tok == 1]
        return max(fixed, default=cost_ms) + max(stalls, default=0)

    def _free(self, report: StepReport) -> None:
        now_ns = self._now_ns()
        for sequence in list(self._sequences.values()):
            if sequence.hold_ns is not None and sequence.hold_ns <= now_ns:
                del self._sequences[sequence.id]
                report.freed.append(sequence.id)

    def _say(self, sequence: ScriptedSequence, report: StepReport) -> None:
        chunk, ended = sequence.say()
        report.outputs.append(Output(id=sequence.id, chunk=chunk))
        if ended is not None:
            report.ended.append(ended)
            report.freed.append(sequence.id)
            del self._sequences[sequence.id]
        elif self._pool.reservation is Reservation.GROW:
            sequence.kv_tok += 1
            self._make_room(sequence)

    def _make_room(self, grown: ScriptedSequence) -> None:
        admitted = [s for s in self._sequences.values() if s.admitted and s is not grown]
        while admitted and self._used_tok() > self._pool.kv_tok:
            admitted.pop().evict()

    def _measure(self, began_ns: int, output_tok: int, report: StepReport) -> None:
        now_ns = self._now_ns()
        self._times.add(now_ns - began_ns, output_tok)
        if now_ns - self._snapshot_ns < _SNAPSHOT_EVERY_NS and self._sequences:
            return
        self._snapshot_ns = now_ns
        report.snapshot = EngineSnapshot(
            model=self._pool.model,
            seats_used=len(self._sequences),
            kv_tok_used=self._used_tok(),
            waiting=sum(1 for s in self._sequences.values() if not s.admitted and not s.leaving),
            steps=self._times.count,
            step_ms_p50=self._times.percentile_ms(0.50),
            step_ms_p95=self._times.percentile_ms(0.95),
            tok_per_s=self._times.tok_per_s(),
            rss_bytes=rss_bytes(),
        )
