"""What a run was worth, from what became of each request."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.sim.job import Job
from tests.sim.world import SECOND, Box


def quantile(values: Iterable[float], q: float) -> float:
    """The smallest value that at least `q` of them do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def median(values: Iterable[float]) -> float:
    """The middle one."""
    return quantile(values, 0.5)


def ratio(part: float, whole: float) -> float:
    """Part of a whole, 0 of nothing."""
    return part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One run. Times in milliseconds, shares between 0 and 1.

    `ttft_ms` and `itl_ms` hold the quantiles 0.5, 0.95, 0.99 of the watched class. `batch_tok` is
    output that counts: what restarts threw away is taken off. `wasted` is the part of all decoded
    tokens that nobody got; `recomputed` the part of all computed ones that are there a second time.
    """

    seconds: float
    ttft_ms: tuple[float, ...]
    itl_ms: tuple[float, ...]
    served: int
    batch_tok: int
    jobs_finished: int
    jobs_open: int
    wasted: float
    recomputed: float
    preemptions: int
    evictions: int
    class_share: dict[str, float] = field(default_factory=dict)
    principal_share: dict[str, float] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    events: int = 0


QUANTILES = (0.5, 0.95, 0.99)


def measure(box: Box, *, watched: str = "interactive", batch: str = "batch") -> Figures:
    """The figures of a run as it stands now."""
    jobs = list(box.jobs.values())
    ours = [job for job in jobs if job.class_ == watched]
    theirs = [job for job in jobs if job.class_ == batch]
    decoded = sum(job.decoded_tok for job in jobs)
    total = box.tokens()
    return Figures(
        seconds=box.now / SECOND,
        ttft_ms=_quantiles_ms([job.ttft_ns for job in ours if job.ttft_ns is not None]),
        itl_ms=_quantiles_ms([gap for job in ours for gap in job.gaps_ns]),
        served=sum(job.first_ns is not None for job in ours),
        batch_tok=sum(_useful_tok(job) for job in theirs),
        jobs_finished=sum(job.finished for job in theirs),
        jobs_open=sum(job.ended_ns is None for job in theirs),
        wasted=ratio(decoded - sum(_useful_tok(job) for job in jobs), decoded),
        recomputed=ratio(sum(job.again_tok for job in jobs), total),
        preemptions=sum(job.preempted for job in jobs),
        evictions=sum(engine.evictions for engine in box.engines.values()),
        class_share={name: tok / total for name, tok in sorted(box.computed.items())},
        principal_share={name: tok / total for name, tok in sorted(box.served.items())},
        refused=dict(Counter(str(job.refusal.reason) for job in jobs if job.refusal is not None)),
        events=box.told,
    )


def _useful_tok(job: Job) -> int:
    """Output that its client has, or will have: not of a request that was refused or cut off."""
    return job.made_tok if job.finished or job.ended_ns is None else 0


def _quantiles_ms(values_ns: Sequence[int]) -> tuple[float, ...]:
    ordered = sorted(values_ns)
    return tuple(quantile(ordered, q) / 1e6 for q in QUANTILES)
