"""What has happened so far, counted once per request at its end."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from onegate.protocol.errors import Phase, Reason
from onegate.protocol.status import Quantiles
from onegate.server.live import LiveRequest
from onegate.server.outcome import Outcome

# Quantiles for people are over the last so many requests of a class.
RECENT = 256

# How much later than predicted; what came sooner is negative.
ERROR_BUCKETS_S = (
    *(-60.0, -10.0, -5.0, -2.5, -1.0, -0.5, -0.25, -0.1, -0.025, 0.0),
    *(0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)

BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0)


class Histogram:
    """Seconds in cumulative buckets up to each of `bounds_s`, as Prometheus wants them."""

    def __init__(self, bounds_s: tuple[float, ...] = BUCKETS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one observation."""
        bounds_s = self._bounds_s
        place = next((i for i, most in enumerate(bounds_s) if seconds <= most), len(bounds_s))
        self._counts[place] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """`(upper bound, observations up to it)`, ending with `+Inf`."""
        total, out = 0, []
        for bound, count in zip((*map(str, self._bounds_s), "+Inf"), self._counts, strict=True):
            total += count
            out.append((bound, float(total)))
        return out


@dataclass
class ClassAccount:
    """The counts of one class. `reasons` has one count for each ending with a reason.

    Of the prompts of `told_tok` tokens the engine said what it had in its cache, `cached_tok` in
    all. `preempted` counts stops to make room; what these and the engine's deaths have cost is in
    `recomputed_tok` and `discarded_tok`, as in `Work`. `ttft_error` is how much later than
    predicted the first token of those came that waited.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    rejected: Counter[Reason] = field(default_factory=Counter)
    reasons: Counter[tuple[Outcome, Reason]] = field(default_factory=Counter)
    admitted: int = 0
    prompt_tok: int = 0
    output_tok: int = 0
    told_tok: int = 0
    cached_tok: int = 0
    preempted: int = 0
    recomputed_tok: int = 0
    discarded_tok: int = 0
    queue: Histogram = field(default_factory=Histogram)
    ttft: Histogram = field(default_factory=Histogram)
    e2e: Histogram = field(default_factory=Histogram)
    ttft_error: Histogram = field(default_factory=lambda: Histogram(ERROR_BUCKETS_S))
    recent_ttft_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))


def quantiles(values: Iterable[float]) -> Quantiles | None:
    """Median and 95th percentile by nearest rank; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    last = len(ordered) - 1
    return Quantiles(p50=ordered[round(0.5 * last)], p95=ordered[round(0.95 * last)])


class Accounts:
    """Counts of the daemon's life. Classes are those of the configuration, never of a client."""

    def __init__(self) -> None:
        self.classes: dict[str, ClassAccount] = {}
        self.engine_losses = 0
        self.sessions_refused = 0
        self.protocol_offences = 0
        self.usage_write_failures = 0
        # By the class that was asked for and the one that it was.
        self.lowered: Counter[tuple[str, str]] = Counter()

    def of(self, class_: str) -> ClassAccount:
        """The account of a class; `class_` must come from the configuration."""
        return self.classes.setdefault(class_, ClassAccount())

    def refused_on_arrival(self, class_: str, reason: Reason) -> None:
        """Count a request that was refused before it came to live."""
        account = self.of(class_)
        account.outcomes[Outcome.REJECTED] += 1
        account.reasons[Outcome.REJECTED, reason] += 1
        account.rejected[reason] += 1

    def request_ended(
        self, live: LiveRequest, outcome: Outcome, reason: Reason | None, now_ns: int
    ) -> None:
        """Count the end of a request."""
        account = self.of(live.class_)
        account.outcomes[outcome] += 1
        if reason is not None:
            account.reasons[outcome, reason] += 1
        if outcome is Outcome.REJECTED and reason is not None:
            account.rejected[reason] += 1
        account.output_tok += live.output_tok
        account.recomputed_tok += live.work.recomputed_tok
        account.discarded_tok += live.work.discarded_tok
        account.e2e.add((now_ns - live.arrived_ns) / 1e9)
        if live.granted_ns is not None:
            account.admitted += 1
            account.prompt_tok += live.prompt_tok
            if live.work.cached_tok is not None:
                account.told_tok += live.prompt_tok
                account.cached_tok += live.work.cached_tok
            account.queue.add((live.granted_ns - live.arrived_ns) / 1e9)
        if live.first_text_ns is not None and live.phase is Phase.DECODE:
            ttft_ns = live.first_text_ns - live.arrived_ns
            account.ttft.add(ttft_ns / 1e9)
            account.recent_ttft_ms.append(ttft_ns / 1e6)
            if live.predicted_ns is not None:
                account.ttft_error.add((ttft_ns - live.predicted_ns) / 1e9)
