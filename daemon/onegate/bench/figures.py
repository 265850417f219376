"""From records to the figures of a class. DEFINITIONS says what each means."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from onegate.bench.record import Outcome, Record
from onegate.bench.scenario import Limits
from onegate.bench.stats import Quantiles, quantiles

DEFINITIONS = {
    "TTFT": "scheduled send to the first non-empty piece of text",
    "ITL": "each gap between two pieces of one answer",
    "TPOT": "first to last piece, over the tokens after the first piece; one value a request",
    "E2E": "scheduled send to the end of a finished answer",
    "queue": "the wait for a permit or a seat, as the target says it; none where it does not",
    "goodput": "finished requests with text and within all limits, a second; and their tokens",
    "met": "share of the scheduled requests that are goodput",
    "tokens/s": "output tokens that came within the window, over its length",
    "requests": "those scheduled within the window; each ends in exactly one way",
    "expired": "a deadline of its own ran out",
    "left": "its caller went away, or the run was over",
    "gaps": "how many gaps there are percentiles of",
    "refused": "share of the scheduled requests whose last attempt was refused",
    "wasted": "output tokens of requests that did not finish",
    "hint error": "when a retry was taken, less when the first refusal had said",
    "attempts": "attempts of finished and refused requests, over the finished ones",
    "interference": "beside the others over alone, at the same percentile; and the difference",
    "batch kept": "the tokens/s of A ÷ B: what A leaves of a class's work, same arrivals",
    "kept": "tokens/s of the other classes ÷ those that they have on the last side",
    "step": "the 95th percentile of the gaps in the others' answers, each of which is a step",
    "late": "actual less scheduled send: the generator's own fault, part of TTFT",
}


class ClassFigures(Struct, frozen=True, kw_only=True):
    """One class in one part, or in several repeats of it; `window_s` is their windows together."""

    name: str
    scheduled: int
    window_s: float
    outcomes: dict[str, int]
    reasons: dict[str, int]
    ttft_ms: Quantiles
    itl_ms: Quantiles
    tpot_ms: Quantiles
    e2e_ms: Quantiles
    queue_ms: Quantiles
    late_ms: Quantiles
    hint_error_ms: Quantiles
    offered_per_s: float
    goodput_per_s: float
    goodput_tok_per_s: float
    tok_per_s: float
    met_share: float | None
    refused_share: float | None
    wasted_tok: int
    attempts_per_success: float | None
    prompt_tok: Quantiles
    output_tok: Quantiles
    shortened: int


def meets(record: Record, limits: Limits) -> bool:
    """Whether a request finished, with text, within all its limits. What is not known is not met;
    an answer in one piece has no gap to judge."""
    if record.outcome is not Outcome.FINISHED or not record.pieces_ns:
        return False
    pairs = [(limits.ttft_ms, record.ttft_ms), (limits.e2e_ms, record.e2e_ms)]
    if len(record.pieces_ns) > 1:
        pairs += [(limits.itl_ms, max(record.itl_ms)), (limits.tpot_ms, record.tpot_ms)]
    return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)


def figures(
    name: str, records: Iterable[Record], limits: Limits, window_s: float, windows: int = 1
) -> ClassFigures:
    """The figures of one class. `window_s` is the length of one window, `windows` their number.

    Records of the warm-up are not counted; tokens of theirs that came within the window are.
    """
    everything = list(records)
    found = [r for r in everything if r.scheduled_ns >= 0]
    outcomes = Counter(r.outcome.value for r in found)
    good = [r for r in found if meets(r, limits)]
    total_s = window_s * windows
    finished = outcomes[Outcome.FINISHED]
    return ClassFigures(
        name=name,
        scheduled=len(found),
        window_s=total_s,
        outcomes={outcome.value: outcomes[outcome] for outcome in Outcome},
        reasons=dict(Counter(r.reason for r in found if r.reason)),
        ttft_ms=_of(r.ttft_ms for r in found),
        itl_ms=quantiles([gap for r in found for gap in r.itl_ms]),
        tpot_ms=_of(r.tpot_ms for r in found),
        e2e_ms=_of(r.e2e_ms for r in found),
        queue_ms=_of(r.queue_ms for r in found),
        late_ms=_of(r.lateness_ms for r in found),
        hint_error_ms=_of(r.hint_error_ms for r in found),
        offered_per_s=len(found) / total_s,
        goodput_per_s=len(good) / total_s,
        goodput_tok_per_s=sum(r.tokens for r in good) / total_s,
        tok_per_s=_tokens_within(everything, window_s) / total_s,
        met_share=len(good) / len(found) if found else None,
        refused_share=outcomes[Outcome.REFUSED] / len(found) if found else None,
        wasted_tok=sum(r.tokens for r in found if r.outcome is not Outcome.FINISHED),
        attempts_per_success=_attempts(found) / finished if finished else None,
        prompt_tok=_of(r.prompt_tok for r in found),
        output_tok=_of(r.tokens for r in found if r.outcome is Outcome.FINISHED),
        shortened=sum(r.shortened for r in found),
    )


def _attempts(records: Iterable[Record]) -> int:
    settled = (Outcome.FINISHED, Outcome.REFUSED)
    return sum(r.attempts for r in records if r.outcome in settled)


def _of(values: Iterable[float | None]) -> Quantiles:
    return quantiles([value for value in values if value is not None])


def _tokens_within(records: Iterable[Record], window_s: float) -> int:
    end_ns = window_s * 1e9
    return sum(
        n_tok
        for r in records
        for at_ns, n_tok in zip(r.pieces_ns, r.pieces_tok, strict=True)
        if 0 <= at_ns < end_ns
    )
