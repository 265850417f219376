"""The figures that must hold, each with its bar and the run that gives it."""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tests.sim import overload as over
from tests.sim.promises import promises
from tests.sim.run import protection
from tests.sim.sharing import floor_share, let_in, long_jobs, pushed_back, two_principals

Values = Mapping[str, float]
OPERATORS = {"≤": operator.le, "≥": operator.ge}


# Below this a run is a smoke run, and leaves out what only takes longer.
LONG_S = 300.0


@dataclass(frozen=True, slots=True)
class Check:
    """`figure` must be on this side of `bound`; without a bound it is only shown."""

    figure: str
    relation: str = ""
    bound: float | None = None

    def holds(self, values: Values) -> bool:
        """Whether it does; NaN never does."""
        return self.bound is None or OPERATORS[self.relation](values[self.figure], self.bound)

    def worst(self, values: Collection[float]) -> float:
        """The worst of several seeds."""
        return min(values) if self.relation == "≥" else max(values)


@dataclass(frozen=True, slots=True)
class Bar:
    """`play(seed, seconds, off)` gives the figures; `short_s` is enough for a smoke run, with this
    `short_seed`. What such a run is held to instead of `checks`, if it is another, is `short`.
    """

    name: str
    checks: tuple[Check, ...]
    play: Callable[[int, float, Collection[str]], Values]
    short_s: float = 120.0
    short_seed: int = 0
    short: tuple[Check, ...] | None = None


def _protected(
    profile: str, variant: str, **given: object
) -> Callable[[int, float, Collection[str]], Values]:
    """`given` are fields of the people's class."""

    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        found = protection(
            profile, variant, seed, seconds=seconds, off=off, change=lambda s: s.people(**given)
        )
        p50, p95, p99 = found.inflation
        return {
            "TTFT p50 ÷ alone": p50,
            "TTFT p95 ÷ alone": p95,
            "TTFT p99 ÷ alone": p99,
            "kept": found.kept,
            "recompute": found.run.recomputed,
            "wasted decode": found.run.wasted,
            "preemptions": float(found.run.preemptions),
            "ITL p50 ms": found.run.itl_ms[0],
            "ITL p95 ms": found.run.itl_ms[1],
            "ITL p95 ms alone": found.alone.itl_ms[1],
            "batch share": found.run.class_share.get("batch", 0.0),
            "alone p95 ms": found.alone.ttft_ms[1],
        }

    return play


def _shown(*figures: str) -> tuple[Check, ...]:
    return tuple(Check(figure) for figure in figures)


_ITL = ("ITL p95 ms", "ITL p95 ms alone")
_ALSO = _shown("TTFT p50 ÷ alone", "TTFT p99 ÷ alone", "wasted decode", "preemptions",
               "ITL p50 ms", *_ITL, "alone p95 ms")  # fmt: skip


def _protection(profile: str, variant: str, inflation: float, kept: float, **short: Any) -> Bar:
    checks = (
        Check("TTFT p95 ÷ alone", "≤", inflation),
        Check("kept", "≥", kept),
        Check("recompute", *(("≤", 0.05) if variant == "exact" else ())),
        *_ALSO,
    )
    return Bar(f"{profile}, {variant}", checks, _protected(profile, variant), **short)


def _steps(profile: str, variant: str, itl_ms: float) -> Bar:
    """A class that wants short steps has them; a floor's grants are not held back for it."""
    checks = (Check("ITL p50 ms", "≤", 1.05 * itl_ms), *_shown("TTFT p95 ÷ alone", "kept", *_ITL))
    play = _protected(profile, variant, itl_target_ns=round(itl_ms * 1e6))
    return Bar(f"{profile}, {variant}, steps of {itl_ms:g} ms", checks, play, short_s=30.0)


def _long_jobs(seats: int) -> Bar:
    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        found = long_jobs(seats, seed, jobs=4 if seconds >= LONG_S else 2, off=off)
        return {
            "jobs finished": found.finished / found.jobs,
            "seconds": found.seconds,
            "chat p95 ms": found.chat_p95_ms,
        }

    checks = (Check("jobs finished", "≥", 1.0), *_shown("seconds", "chat p95 ms"))
    return Bar(f"{seats} restart-only seats, constant chat, long jobs", checks, play)


def _overload(profile: str) -> Bar:
    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        loads = over.LOADS if seconds >= LONG_S else over.LOADS[2:]
        branches = over.BRANCHES if seconds >= LONG_S else 0  # a few would say nothing
        runs = [
            over.overload(profile, load, seed, seconds=seconds, off=off, branches=branches)
            for load in loads
        ]
        peak = max(run.goodput for run in runs)
        values = {"peak /s": peak}
        heavy = [run for run in runs if run.load >= 2]
        for run in heavy:
            values[f"goodput at {run.load:g}× ÷ peak"] = run.goodput / peak
        false = [run for run in heavy if run.false_refused is not None]
        asked = sum(run.asked for run in false)
        for name, figure in (("false refusals", "false_refused"), ("each alone", "false_alone")):
            total = sum(getattr(run, figure) * run.asked for run in false)
            values[name] = total / asked if asked else float("nan")
        values["late finishes"] = max(run.late for run in heavy)
        values["expired"] = max(run.expired for run in heavy)
        values["wasted decode"] = max(run.wasted for run in heavy)
        values["refused at once at 3×"] = runs[-1].refused_at_once
        return values

    checks = (
        Check("goodput at 2× ÷ peak", "≥", 0.97),
        Check("goodput at 3× ÷ peak", "≥", 0.97),
        Check("false refusals", "≤", 0.05),
        Check("late finishes", "≤", 0.03),
        Check("wasted decode", "≤", 0.03),
        *_shown("each alone", "expired", "peak /s", "refused at once at 3×"),
    )
    # A minute is some hundred answers: no measure of the last percents.
    short = (
        Check("goodput at 2× ÷ peak", "≥", 0.9),
        Check("goodput at 3× ÷ peak", "≥", 0.9),
        Check("late finishes", "≤", 0.03),
        Check("wasted decode", "≤", 0.03),
    )
    return Bar(f"{profile}, overload", checks, play, short_s=60.0, short=short)


def _promises(profile: str, bursts: bool) -> Bar:
    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        found = promises(profile, seed, seconds=seconds, bursts=bursts, off=off)
        return {
            "first retry": found.first_retry,
            "attempts": found.attempts,
            "hint error p50": found.hint_error,
            "idle": found.idle,
            "admitted": found.admitted,
            "refused": float(found.refused),
        }

    checks = (
        Check("first retry", "≥", 0.95),
        Check("attempts", "≤", 2.0),
        Check("hint error p50", "≤", 0.25),
        Check("idle", "≤", 0.01),
        *_shown("admitted", "refused"),
    )
    what = "bursts over 0.6" if bursts else "1.3 all the time"
    return Bar(f"{profile}, hints, {what}", checks, play)


def _floor(profile: str) -> Bar:
    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        found = floor_share(profile, seed, seconds=seconds, off=off)
        return {"batch share": found.class_share.get("batch", 0.0)}

    # One lump: what runs at either end of the time.
    return Bar(f"{profile}, floor of 5 %", (Check("batch share", "≥", 0.047),), play)


def _full(profile: str) -> Bar:
    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        return {"people let in": let_in(profile, seed, seconds=seconds, off=off)}

    return Bar(f"{profile}, batch fills the queue", (Check("people let in", "≥", 0.99),), play)


def _two(profile: str) -> Bar:
    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        return {"smaller ÷ equal share": two_principals(profile, seed, off=off)}

    return Bar(f"{profile}, one with 10 × the requests",
               (Check("smaller ÷ equal share", "≥", 0.9),), play)  # fmt: skip


def _pushed_back() -> Bar:
    def play(seed: int, seconds: float, off: Collection[str]) -> Values:
        moved_s, share_s = pushed_back(off=off)
        return {"moved ÷ share": moved_s / share_s, "moved s": moved_s}

    return Bar("one uid refused 10,000 times",
               (Check("moved ÷ share", "≤", 1.0), *_shown("moved s")), play)  # fmt: skip


# Restart-only seats cannot have both: each arrival that finds none throws away the youngest of the
# night's requests. This is the point of the frontier that the shipped limits choose.
_FRONTIER = (Check("TTFT p95 ÷ alone", "≤", 1.6), Check("kept", "≥", 0.88))
# Some seventy people come in a minute: its p95 is the fourth worst of them, and a matter of chance.
_BURSTS = (
    Check("TTFT p95 ÷ alone", "≤", 1.3),
    Check("kept", "≥", 0.97),
    Check("recompute", "≤", 0.05),
)

BARS = (
    _protection("slots", "restart", 1.35, 0.93, short_s=200.0, short_seed=4, short=_FRONTIER),
    _protection("slots", "exact", 1.12, 0.97, short_s=100.0, short=_BURSTS),
    _protection("seats", "exact", 1.12, 0.97, short_s=60.0, short=_BURSTS),
    _steps("seats", "exact", 15.0),
    _long_jobs(1),
    _long_jobs(2),
    _overload("slots"),
    _overload("seats"),
    *(_promises(profile, bursts) for profile in ("slots", "seats") for bursts in (True, False)),
    _pushed_back(),
    _floor("slots"),
    _full("slots"),
    _two("slots"),
    _two("seats"),
)
