"""Whether a target worked at all: requests that no load explains."""

from collections.abc import Iterator

from onegate.bench.figures import ClassFigures
from onegate.bench.record import Outcome
from onegate.bench.report import Document, LoadReport
from onegate.protocol.errors import REASONS

# Refusals that waiting does not mend; of HTTP's, all that are the caller's fault.
_HOPELESS = {reason.value for reason, info in REASONS.items() if not info.retryable}
_CALLERS_FAULT = "http_4"
_BUSY = "http_429"


def warnings(doc: Document) -> list[str]:
    """One sentence for each class of which most failed, or of which nothing finished."""
    found = []
    for report, row in _rows(doc):
        name = f"{report.side} {row.name}, load {report.load:g}"
        if (n_bad := bad(row)) * 2 > row.scheduled:
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(row.reasons.items()))
            found.append(f"{name}: {n_bad} of {row.scheduled} requests failed: {reasons}")
        elif row.scheduled and not row.outcomes[Outcome.FINISHED] and not _all_left(doc, row):
            found.append(f"{name}: none of {row.scheduled} requests finished")
    return found


def broken(doc: Document) -> list[str]:
    """The sides of which nothing at all finished, and something failed."""
    found = []
    for side in doc.sides:
        rows = [row for report, row in _rows(doc) if report.side == side.side]
        finished = sum(row.outcomes[Outcome.FINISHED] for row in rows)
        if not finished and any(map(bad, rows)):
            found.append(side.side)
    return found


def bad(row: ClassFigures) -> int:
    """Requests that failed, or were refused for what they are and not for how many there were."""
    hopeless = sum(n for reason, n in row.reasons.items() if _mends_never(reason))
    return row.outcomes[Outcome.FAILED] + min(hopeless, row.outcomes[Outcome.REFUSED])


def _mends_never(reason: str) -> bool:
    return reason in _HOPELESS or (reason.startswith(_CALLERS_FAULT) and reason != _BUSY)


def _all_left(doc: Document, row: ClassFigures) -> bool:
    """Whether that is what its callers do."""
    (cls,) = [cls for cls in doc.scenario.classes if cls.name == row.name]
    return cls.cut or (cls.leave is not None and cls.leave.share == 1.0)


def _rows(doc: Document) -> Iterator[tuple[LoadReport, ClassFigures]]:
    for report in doc.loads:
        for row in (*report.together, *report.alone):
            yield report, row
