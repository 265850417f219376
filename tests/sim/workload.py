"""Who asks for what, and when: synthetic arrivals with the statistics of public traces, or the
traces themselves.

Lengths are drawn from quantiles of the traces by log-linear interpolation; gaps from a gamma
distribution (conversation) or a mixture of two exponentials (code, which comes in bursts).
"""

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from onegate.admission.model import Resume

SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as its client sends it; `output_tok` is the true length, which nobody is told."""

    at_ns: int
    class_: str
    principal: str
    flow: str
    prompt_tok: int
    output_tok: int
    max_tok: int
    resume: Resume = Resume.NEVER
    ttft_ns: int | None = None
    ttft_is_own: bool = False
    timeout_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution of lengths by some of its quantiles, `((q, tok), …)` from 0 to 1."""

    points: tuple[tuple[float, int], ...]

    def draw(self, rng: Random) -> int:
        """One length."""
        u = rng.random()
        place = min(bisect_right(self.points, (u, math.inf)), len(self.points) - 1)
        (q0, low), (q1, high) = self.points[place - 1 : place + 1]
        return round(low * (high / low) ** ((u - q0) / (q1 - q0)))


@dataclass(frozen=True, slots=True)
class Source:
    """A stream of requests that ask for `max_tok`. `gap(rng)` has the mean 1; `users` take turns at
    random."""

    prompt: Quantiles
    output: Quantiles
    gap: Callable[[Random], float]
    trace: str
    users: int
    max_tok: int


def _gamma(cv: float) -> Callable[[Random], float]:
    return lambda rng: rng.gammavariate(1 / cv**2, cv**2)


def _bursts(short: float, share: float) -> Callable[[Random], float]:
    """A share of the gaps has the mean `short`, the rest are silences between bursts."""
    long = (1 - share * short) / (1 - share)
    return lambda rng: rng.expovariate(1 / (short if rng.random() < share else long))


# Azure's inference traces of 2023, quantiles of lengths as published there; gaps as they are after
# thinning to one box: a coefficient of variation of 1.09 for conversation and 5.3 for code, whose
# requests come about 3.4 times as fast within a burst as on the whole.
CHAT = Source(
    Quantiles(((0, 16), (0.05, 181), (0.25, 396), (0.5, 1020), (0.75, 1189), (0.9, 2735),
               (0.95, 4083), (0.99, 4142), (1, 14050))),
    Quantiles(((0, 4), (0.05, 41), (0.25, 85), (0.5, 129), (0.75, 395), (0.9, 424), (0.95, 451),
               (0.99, 601), (1, 1000))),
    _gamma(1.09),
    "azure2023/AzureLLMInferenceTrace_conv.csv",
    users=5,
    max_tok=1024,
)  # fmt: skip
CODE = Source(
    Quantiles(((0, 3), (0.05, 75), (0.25, 578), (0.5, 1469), (0.75, 2745), (0.9, 5194),
               (0.95, 7315), (1, 7437))),
    Quantiles(((0, 1), (0.05, 6), (0.25, 9), (0.5, 13), (0.75, 24), (0.9, 55), (0.95, 90),
               (0.99, 252), (1, 1899))),
    _bursts(0.294, 0.965),
    "azure2023/AzureLLMInferenceTrace_code.csv",
    users=2,
    max_tok=2048,
)  # fmt: skip
# Summaries of papers, after the arXiv lengths that are replayed elsewhere: prompt and answer within
# 4096 tokens, most answers a paragraph, a few of them very long.
PAPERS = (
    Quantiles(((0, 50), (0.05, 1050), (0.25, 2000), (0.5, 2730), (0.75, 3350), (0.9, 3700),
               (1, 4000))),
    Quantiles(((0, 30), (0.05, 58), (0.25, 112), (0.5, 167), (0.75, 245), (0.9, 372),
               (0.96, 700), (1, 3900))),
)  # fmt: skip
PAPERS_MAX_TOK = 4096


def stream(
    source: Source, seed: int, *, seconds: float, rate: float, name: str, **more: object
) -> list[Ask]:
    """Arrivals of one source, `rate` a second. What `seed` fixes does not depend on `more`."""
    asks = []
    rng = Random(f"{name} {seed}")
    for at_s, prompt_tok, output_tok in _rows(source, rng, seconds, rate):
        user = f"{name}{1 + rng.randrange(source.users)}"
        ask = Ask(round(at_s * SECOND), "interactive", user, user, prompt_tok, output_tok,
                  max_tok=source.max_tok)  # fmt: skip
        asks.append(replace(ask, **more))
    return asks


def _rows(
    source: Source, rng: Random, seconds: float, rate: float
) -> Iterator[tuple[float, int, int]]:
    directory = os.environ.get("ONEGATE_TRACES")
    if directory is not None:
        yield from _thinned(Path(directory) / source.trace, rng, seconds, rate)
        return
    at_s = source.gap(rng) / rate
    while at_s < seconds:
        yield at_s, source.prompt.draw(rng), source.output.draw(rng)
        at_s += source.gap(rng) / rate


def _thinned(
    path: Path, rng: Random, seconds: float, rate: float
) -> Iterator[tuple[float, int, int]]:
    """A part of the trace's requests, so that the rest come at that mean rate; from a moment that
    the seed decides."""
    from onegate.bench.traces import read_trace

    trace = read_trace(str(path))
    begin_s = rng.uniform(0, max(0.0, trace.span_s - seconds))
    share = rate / trace.rate_per_s
    assert share <= 1, f"{path} has only {trace.rate_per_s:.2f} requests a second"
    for row in trace.rows:
        if rng.random() < share and begin_s <= row.at_s < begin_s + seconds:
            yield row.at_s - begin_s, row.prompt_tok, row.output_tok


def people(seed: int, *, seconds: float, load: float = 1.0, **more: object) -> list[Ask]:
    """Chat 0.8/s and code 0.4/s, both watched by somebody."""
    asks = stream(CHAT, seed, seconds=seconds, rate=0.8 * load, name="u", **more)
    asks += stream(CODE, seed, seconds=seconds, rate=0.4 * load, name="c", **more)
    return sorted(asks, key=lambda ask: ask.at_ns)


def papers(seed: int, resume: Resume) -> Iterator[Ask]:
    """An endless night of summaries by two principals, one after the other."""
    rng = Random(f"papers {seed}")
    while True:
        who = f"b{1 + rng.randrange(2)}"
        yield Ask(
            0, "batch", who, who, PAPERS[0].draw(rng), PAPERS[1].draw(rng), PAPERS_MAX_TOK, resume
        )
