"""Figures as short texts, the same on a terminal and on a page."""

from collections.abc import Sequence

from onegate.bench.compare import Ratio
from onegate.bench.figures import ClassFigures
from onegate.bench.frontier import KEPT, STEPS, Place
from onegate.bench.report import Document
from onegate.bench.stats import Quantiles, Spread

ROW_HEAD = (
    *("class", "requests", "finished", "refused", "expired", "failed", "left", "met", "goodput/s"),
    *("goodput tok/s", "tokens/s", "wasted tok"),
    *("TTFT ms", "ITL ms", "gaps", "TPOT ms", "E2E ms", "queue ms"),
)
RATIO_HEAD = ("class", "load", "measure", "ratio", "difference", "A ÷ A", "")
FRONTIER_HEAD = (
    *("side", "class", "load", "ITL p50 ms", "ITL p95 ms", "TTFT p95 ms", "alone"),
    *("others' tokens/s", "kept"),
)
FRONTIER = "The frontier: what a class waits, and what is kept of the others"
# So many cells say what a row is about.
ROW_KEYS, RATIO_KEYS, FRONTIER_KEYS = 1, 3, 3
A_TO_B = "A ÷ B"
# What the definitions call the same ratio.
_ALSO = {"tokens/s": "tokens/s (batch kept)"}


def row_cells(row: ClassFigures, label: str) -> list[str]:
    """One class under ROW_HEAD; percentiles as p50 / p95 / p99."""
    ways = ("finished", "refused", "expired", "failed", "left")
    return [
        row.name + label,
        str(row.scheduled),
        *(str(row.outcomes[way]) for way in ways),
        share(row.met_share),
        f"{row.goodput_per_s:.2f}",
        f"{row.goodput_tok_per_s:.1f}",
        f"{row.tok_per_s:.1f}",
        str(row.wasted_tok),
        three(row.ttft_ms),
        three(row.itl_ms),
        str(row.itl_ms.n),
        *(three(q) for q in (row.tpot_ms, row.e2e_ms, row.queue_ms)),
    ]


def ratio_cells(row: Ratio, title: str) -> list[str]:
    """One ratio under RATIO_HEAD, in the table of this title."""
    return [
        row.cls,
        f"{row.load:g}",
        _ALSO.get(row.measure, row.measure) if title == A_TO_B else row.measure,
        _of_repeats(row.ratio, "{:.3f}", row.repeats),
        _of_repeats(row.difference, "{:+.1f}", row.repeats),
        "" if row.noise is None else spread(row.noise, "{:.3f}"),
        {None: "", True: "beyond noise", False: "within noise"}[row.beyond_noise],
    ]


def ratio_tables(doc: Document) -> list[tuple[str, Sequence[Ratio]]]:
    """Titles and ratios, those that there are; noise alone only where nothing has it beside it."""
    titled: list[tuple[str, Sequence[Ratio]]] = [(A_TO_B, doc.ratios)]
    titled += [(f"{side}: beside the others ÷ alone", r) for side, r in doc.interference.items()]
    found = [(title, ratios) for title, ratios in titled if ratios]
    return found if found or not doc.noise else [("A ÷ A", doc.noise)]


def frontier_cells(place: Place, doc: Document) -> list[str]:
    """One side under FRONTIER_HEAD, by what is its own about it."""
    side = next(side for side in doc.sides if side.side == place.side)
    return [
        f"{side.side}  {side.target.partition(', ')[2] or side.target}",
        place.cls,
        f"{place.load:g}",
        *(
            "–" if value is None else number(value)
            for value in (
                *(place.itl_ms.p50, place.itl_ms.p95),
                *(place.ttft_ms.p95, place.alone_ttft_ms.p95),
            )
        ),
        *(
            "–" if value is None else spread(value, form)
            for value, form in ((place.tok_per_s, "{:.1f}"), (place.kept, "{:.3f}"))
        ),
    ]


def frontier_lines(doc: Document) -> list[str]:
    """Whether who came was spared and enough was kept, and where the time went; not of the last
    side, which the others are compared with."""
    found = []
    for place in doc.frontier:
        if place.side == doc.sides[-1].side or place.added_ms is None:
            continue
        name = f"{place.side} {place.cls}, load {place.load:g}"
        text = f"{name}: TTFT p95 {spread(place.added_ms, '{:+.0f}')} ms beside the others"
        if place.noise_ms is not None:
            text += f" (A less A {spread(place.noise_ms, '{:+.0f}')})"
        if place.step_ms is not None:
            most = f"{STEPS * place.step_ms.median:.0f}"
            text += f", at most {STEPS} steps, {most} ms: {_WORDS[place.protected]}"
        if place.kept is not None:
            text += f"; kept {spread(place.kept, '{:.3f}')}"
            if place.noise is not None:
                text += f" (A ÷ A {spread(place.noise, '{:.3f}')})"
            text += f", at least {KEPT:g}: {_WORDS[place.enough_kept]}"
        found.append(text)
        if place.queue_ms and place.engine_ms and place.alone_engine_ms:
            found.append(
                f"{name}: p95 of the parts: until it has a seat {place.queue_ms.median:.0f} ms, "
                f"from then on {place.engine_ms.median:.0f} ms, "
                f"alone {place.alone_engine_ms.median:.0f} ms"
            )
    return found


_WORDS = {True: "held", False: "missed", None: "not known"}


def reason_lines(doc: Document) -> list[str]:
    """Why requests did not finish, of the classes that had such."""
    return [
        f"{report.side} {row.name}, load {report.load:g}: "
        + ", ".join(f"{n} {reason}" for reason, n in sorted(row.reasons.items()))
        for report in doc.loads
        for row in report.together
        if row.reasons
    ]


def retry_lines(doc: Document) -> list[str]:
    """What came of coming back, of the classes that do."""
    patient = {cls.name for cls in doc.scenario.classes if cls.retry.kind != "never"}
    return [
        f"{report.side} {row.name}, load {report.load:g}: "
        f"{_plain(row.attempts_per_success)} attempts per success, "
        f"hint error ms {three(row.hint_error_ms)}"
        for report in doc.loads
        for row in report.together
        if row.name in patient
    ]


def effort(doc: Document) -> str:
    """What measuring took, and what the target's processes did."""
    cores = max((c for part in doc.parts for c in part.generator_cores), default=0.0)
    lag_ms = max((part.generator_lag_ms for part in doc.parts), default=0.0)
    late = [row.late_ms.p99 for report in doc.loads for row in report.together]
    late_ms = max((ms for ms in late if ms is not None), default=0.0)
    text = (
        f"generator: at most {cores:.0%} of a core, p99 late {late_ms:.1f} ms, "
        f"worst lag {lag_ms:.1f} ms"
    )
    for side in doc.sides:
        used = [part.use.cores[side.side] for part in doc.parts if side.side in part.use.cores]
        if used:
            text += f"; {side.side} with its engine: at most {max(used):.2f} cores"
            own = [part.use.cores.get(f"{side.side} itself", 0.0) for part in doc.parts]
            text += f", without {max(own):.2f}"
    foreign = [p.use.foreign_share for p in doc.parts if p.use.foreign_share is not None]
    if not foreign:
        return f"{text}; other programs: not judged"
    return f"{text}; other programs: at most {max(foreign):.0%} of the machine"


def three(q: Quantiles) -> str:
    """p50 / p95 / p99."""
    if q.p50 is None or q.p95 is None or q.p99 is None:
        return "–"
    return " / ".join(number(value) for value in (q.p50, q.p95, q.p99))


def number(value: float) -> str:
    """As many digits as mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _of_repeats(value: Spread | None, form: str, repeats: int) -> str:
    """A spread, and in how many of the repeats it is known, if not in all."""
    if value is None:
        return "–"
    text = spread(value, form)
    return text if value.n == repeats else f"{text}, {value.n} of {repeats}"


def spread(value: Spread, form: str) -> str:
    """Median, and in brackets the lowest and the highest of several."""
    text = form.format(value.median)
    if value.n == 1:
        return text
    return f"{text} ({form.format(value.low)} to {form.format(value.high)})"
