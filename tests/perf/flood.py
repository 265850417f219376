"""A person beside an endless batch, on the embedded engine: what he waits, and what it costs.

What `onegate bench flood --on embedded --vary` prints, as rows of RESULTS.md.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack

from tests.perf.rigs import Row, conduct, daemon, spread

from onegate.bench import words
from onegate.bench.read import lasting, load_scenario
from onegate.bench.report import Document
from onegate.bench.targets.spec import Spec, engine_text

# People are rarer than tokens: it takes that many windows to see enough of them.
WINDOWS = 4


def varied(settings: list[str], repeats: int, window_s: float, *, noise: bool) -> Document:
    """`onegate bench flood --on embedded --vary` over these, on daemons of this script's own."""
    scenario = lasting(load_scenario("flood"), WINDOWS * window_s)
    with ExitStack() as stack:
        sides = {}
        for side, setting in zip("ABCDEFGH", settings, strict=False):
            grant = f'[[grant]]\nuid = {os.getuid()}\nceiling = "interactive"\nadmin = true\n'
            config = engine_text(Spec("embedded", setting=setting)) + grant
            running = stack.enter_context(daemon(config))
            sides[side] = Spec("gate", running.where, label=setting)
        return asyncio.run(conduct(scenario, sides, repeats, noise=noise))


def flood(repeats: int, window_s: float) -> Iterator[Row]:
    """A person beside an endless batch, on the embedded engine; strict priority beside it."""
    settings = [f"interactive.preempt={word}" for word in ("lower_rank", "never")]
    doc = varied(settings, repeats, window_s, noise=True)
    ours, strict = doc.frontier
    for place, name in ((ours, "as it is"), (strict, "nobody is stopped")):
        if place.added_ms is None or place.step_ms is None or place.kept is None:
            raise SystemExit(f"the flood was not measured: {doc.complaints}")
        noise = "" if place.noise_ms is None else f"{words.spread(place.noise_ms, '{:+.0f}')} ms"
        steps = words.spread(place.step_ms, "{:.0f}")
        yield Row(
            f"a person's TTFT p95 beside a flood, less alone ({name}): embedded engine, "
            f"p95 step {steps} ms",
            f"{words.spread(place.added_ms, '{:+.0f}')} ms; {place.ttft_ms.p95:.0f}, alone "
            f"{place.alone_ttft_ms.p95:.0f}",
            noise,
            f"≤ 2 steps, {2 * place.step_ms.median:.0f} ms" if place is ours else "",
            place.protected if place is ours else None,
            doc.quiet,
        )
    parts = (ours.queue_ms, ours.engine_ms, ours.alone_engine_ms)
    until, then, alone = ("–" if p is None else words.spread(p, "{:.0f}") for p in parts)
    yield Row(
        "what bounds it: p95 until a seat is given, and from then to the first token",
        f"{until} ms, {then} ms; the latter alone {alone} ms",
        "",
        "",
        None,
        doc.quiet,
    )
    yield Row(
        "batch tokens kept beside that person ÷ with nobody stopped",
        spread(ours.kept),
        spread(ours.noise),
        "≥ 0.95",
        ours.enough_kept,
        doc.quiet,
    )


def frontier(repeats: int, window_s: float) -> Iterator[Row]:
    """The same flood with fewer sequences beside a person, the shorter his gaps are to be."""
    targets = ("none", "80", "50", "30", "none")
    settings = [f"interactive.itl_target_ms={target}" for target in targets[:-1]]
    settings.append("interactive.preempt=never")
    doc = varied(settings, repeats, window_s, noise=False)
    for place, target in zip(doc.frontier, targets, strict=True):
        last = " and nobody stopped" if place is doc.frontier[-1] else ""
        quantiles = (place.itl_ms.p50, place.itl_ms.p95, place.ttft_ms.p95, place.alone_ttft_ms.p95)
        p50, p95, ttft, alone = ("–" if q is None else f"{q:.0f}" for q in quantiles)
        yield Row(
            f"the frontier, `itl_target_ms` {target}{last}: ITL p50 / p95, TTFT p95 (alone)",
            f"{p50} / {p95}, {ttft} ({alone}) ms; batch kept {spread(place.kept)}",
            "",
            "",
            None,
            doc.quiet,
        )
