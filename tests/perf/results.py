"""RESULTS.md: a section for each group of figures, each as it was measured last."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from tests.perf.rigs import Row

from onegate.bench import machine
from onegate.clock import wall_ms

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """# Measured

Written by `python -m tests.perf.measure` and `python -m tests.sim calibrate`; do not edit. Ratios
are medians over the repeats with the lowest and the highest, both sides measured in turn; noise is
one side against itself. *Noisy* means that the machine did other things meanwhile: look at the
noise, and measure again on a quiet one. No test judges these figures.
"""
_MARK = "\n## "


def keep(title: str, text: str, path: Path = RESULTS) -> None:
    """Put the section there, in place of the one of that title if there is one."""
    old = path.read_text(encoding="utf-8") if path.exists() else HEAD
    _, *sections = old.split(_MARK)
    found = dict(part.split("\n", 1) for part in sections)
    found[title] = f"\n{text.strip()}\n"
    parts = (HEAD, *(f"{name}\n{body}" for name, body in found.items()))
    path.write_text(_MARK.join(parts), encoding="utf-8")


def measured(how: str) -> str:
    """Where and when."""
    facts = machine.facts()
    today = datetime.fromtimestamp(wall_ms() / 1000, UTC).date().isoformat()
    return (
        f"{facts.cpu}, {facts.cores} cores, {facts.memory_gib:g} GiB, Linux {facts.kernel}, "
        f"Python {facts.python}; {how}; {today}."
    )


def section(rows: Iterable[Row], how: str) -> str:
    """What was measured, as a table."""
    words = {True: "met", False: "**missed**", None: ""}
    lines = [measured(how), "", "| figure | measured | noise | bar | |", "|---|---|---|---|---|"]
    for row in rows:
        verdict = words[row.met] if row.believed else f"{words[row.met]} *noisy*".strip()
        lines.append(f"| {row.figure} | {row.measured} | {row.noise} | {row.bar} | {verdict} |")
    return "\n".join(lines) + "\n"
