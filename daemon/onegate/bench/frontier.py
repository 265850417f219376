"""What the first token of one class waits beside the others, and what is left of theirs.

The last side is what the others are compared with: for what they leave of the batch, a daemon of
strict priority that stops nobody.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from onegate.bench.compare import Measured, by_class, select
from onegate.bench.plan import AGAIN
from onegate.bench.record import Record
from onegate.bench.scenario import Scenario
from onegate.bench.stats import Quantiles, Spread, percentile, quantiles, spread

# A step that runs has to end before anybody is let in, and the first token is the next one's.
STEPS = 2
KEPT = 0.95


class Place(Struct, frozen=True, kw_only=True):
    """A class that also ran alone, on one side at one load. Milliseconds; spreads over the repeats.

    `itl_ms`, `ttft_ms` and `alone_ttft_ms` are of all repeats together. `added_ms` is the TTFT p95
    beside the others less that alone. `queue_ms` and `engine_ms` are the p95 of its two parts
    beside the others, until a seat is given and from then on, `alone_engine_ms` of the latter
    alone. `step_ms` is the p95 of the gaps in the others' answers: each is a step. `kept` is their
    tokens a second over those of the last side. `noise_ms` and `noise` are TTFT p95 and tokens of A
    against itself.
    """

    side: str
    load: float
    cls: str
    itl_ms: Quantiles
    ttft_ms: Quantiles
    alone_ttft_ms: Quantiles
    added_ms: Spread | None
    queue_ms: Spread | None
    engine_ms: Spread | None
    alone_engine_ms: Spread | None
    step_ms: Spread | None
    tok_per_s: Spread | None
    kept: Spread | None
    noise_ms: Spread | None = None
    noise: Spread | None = None

    @property
    def protected(self) -> bool | None:
        """Whether no more than `STEPS` steps are added; None where that is not known."""
        if self.added_ms is None or self.step_ms is None:
            return None
        return self.added_ms.median <= STEPS * self.step_ms.median

    @property
    def enough_kept(self) -> bool | None:
        """Whether `KEPT` of the others' tokens are left; None where that is not known."""
        return None if self.kept is None else self.kept.median >= KEPT


class _Seen(Struct, frozen=True):
    """One repeat: what was counted of the class, and the tokens a second of the others."""

    records: list[Record]
    others_tok_per_s: float


def frontier(scenario: Scenario, measured: Sequence[Measured], sides: Sequence[str]) -> list[Place]:
    """One place for each load, isolated class and side; none with one side, or without others."""
    if len(sides) < 2 or len(scenario.classes) < 2:
        return []
    return [
        _place(scenario, measured, side, sides[-1], load, name)
        for load in scenario.loads
        for name in scenario.isolate
        for side in sides
    ]


def _place(
    scenario: Scenario, measured: Sequence[Measured], side: str, last: str, load: float, name: str
) -> Place:
    together = select(measured, side=side, load=load)
    alone = select(measured, side=side, load=load, only=name)
    repeats = sorted({m.part.repeat for m in together})
    beside = [_seen(scenario, _of(together, i), name) for i in repeats]
    by_itself = [_seen(scenario, _of(alone, i), name) for i in repeats]
    of_last = select(measured, side=last, load=load)
    noise_ms, noise = _noise(scenario, measured, name, load) if side == "A" else (None, None)
    return Place(
        side=side,
        load=load,
        cls=name,
        itl_ms=quantiles([gap for seen in beside for r in seen.records for gap in r.itl_ms]),
        ttft_ms=_ttft(r for seen in beside for r in seen.records),
        alone_ttft_ms=_ttft(r for seen in by_itself for r in seen.records),
        added_ms=_added(beside, by_itself),
        queue_ms=_p95([r.queue_ms for r in seen.records] for seen in beside),
        engine_ms=_p95(map(_engine_ms, seen.records) for seen in beside),
        alone_engine_ms=_p95(map(_engine_ms, seen.records) for seen in by_itself),
        step_ms=_p95(_gaps_of_others(scenario, _of(together, i), name) for i in repeats),
        tok_per_s=spread([seen.others_tok_per_s for seen in beside]),
        kept=_kept(beside, [_seen(scenario, _of(of_last, i), name) for i in repeats]),
        noise_ms=noise_ms,
        noise=noise,
    )


def _noise(
    scenario: Scenario, measured: Sequence[Measured], name: str, load: float
) -> tuple[Spread | None, Spread | None]:
    """What differs between A and A."""
    first = select(measured, role="noise", side="A", load=load)
    again = select(measured, role="noise", side=AGAIN, load=load)
    repeats = sorted({m.part.repeat for m in first})
    below, above = (
        [_seen(scenario, _of(parts, i), name) for i in repeats] for parts in (first, again)
    )
    return _added(above, below), _kept(above, below)


def _seen(scenario: Scenario, parts: Sequence[Measured], name: str) -> _Seen:
    rows = by_class(scenario, parts)
    number = _number(scenario, name)
    return _Seen(
        [r for m in parts for r in m.records if r.cls == number and r.scheduled_ns >= 0],
        sum(row.tok_per_s for other, row in rows.items() if other != name),
    )


def _number(scenario: Scenario, name: str) -> int:
    return next(i for i, cls in enumerate(scenario.classes) if cls.name == name)


def _gaps_of_others(scenario: Scenario, parts: Sequence[Measured], name: str) -> Iterable[float]:
    number = _number(scenario, name)
    return (gap for m in parts for r in m.records if r.cls != number for gap in r.itl_ms)


def _of(parts: Iterable[Measured], repeat: int) -> list[Measured]:
    return [m for m in parts if m.part.repeat == repeat]


def _ttft(records: Iterable[Record]) -> Quantiles:
    return quantiles([ms for r in records if (ms := r.ttft_ms) is not None])


def _engine_ms(record: Record) -> float | None:
    """From the seat to the first token."""
    if record.ttft_ms is None or record.queue_ms is None:
        return None
    return record.ttft_ms - record.queue_ms


def _p95(repeats: Iterable[Iterable[float | None]]) -> Spread | None:
    known = [sorted(v for v in values if v is not None) for values in repeats]
    return spread([percentile(values, 0.95) for values in known if values])


def _added(beside: Iterable[_Seen], alone: Iterable[_Seen]) -> Spread | None:
    pairs = [
        (_ttft(b.records).p95, _ttft(a.records).p95) for b, a in zip(beside, alone, strict=True)
    ]
    return spread([b - a for b, a in pairs if b is not None and a is not None])


def _kept(side: Iterable[_Seen], last: Iterable[_Seen]) -> Spread | None:
    pairs = [(a.others_tok_per_s, b.others_tok_per_s) for a, b in zip(side, last, strict=True)]
    return spread([a / b for a, b in pairs if b])
