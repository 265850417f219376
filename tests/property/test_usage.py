"""Whatever is counted in whatever order: nothing is lost but by a bound, and the disk agrees."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onegate.config import UsageConfig
from onegate.server.outcome import Outcome
from onegate.server.usage import MS_PER_DAY, OTHERS, Row, UsageTable
from onegate.server.work import Work

ENDS = st.tuples(
    st.integers(0, 6),  # day
    st.integers(0, 5),  # principal
    st.sampled_from(("interactive", "loop", "batch")),
    st.sampled_from(Outcome),
    st.integers(0, 50),  # tokens
)
STEPS = st.lists(st.one_of(ENDS, st.sampled_from(("write", "fail"))), max_size=80)
LIMITS = st.builds(
    UsageConfig,
    days=st.integers(1, 8),
    principals_per_day=st.integers(1, 6),
    max_rows=st.integers(1, 40),
)


def worked(tok: int) -> Work:
    work = Work()
    work.cached_tok, work.recomputed_tok, work.discarded_tok = tok // 2, tok, tok
    return work


class Disk:
    """What a journal holds of a table whose batches reach it, or do not."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], Row] = {}

    def write(self, table: UsageTable, *, fails: bool) -> None:
        batch = table.take(whole=False)
        if batch is None:
            return
        if fails:
            table.lost()
            return
        rows, whole = batch
        if whole:
            self.rows = {}
        self.rows |= {(row.day, row.principal, row.class_): row for row in rows}


@given(limits=LIMITS, steps=STEPS)
def test_counts_are_conserved_bounded_and_written(limits: UsageConfig, steps: list[Any]) -> None:
    table, disk = UsageTable(lambda: limits), Disk()
    table.stored = True
    used: dict[int, int] = {}
    ends: dict[int, int] = {}
    for step in steps:
        if isinstance(step, str):
            disk.write(table, fails=step == "fail")
            continue
        day, principal, class_, outcome, tok = step
        table.ended(
            principal=f"uid:{principal}",
            class_=class_,
            outcome=outcome,
            now_ms=day * MS_PER_DAY,
            output_tok=tok,
            prompt_tok=tok,
            work=worked(tok),
        )
        used[day] = used.get(day, 0) + tok
        ends[day] = ends.get(day, 0) + 1
        rows = table.rows()
        assert table.n_rows == len(rows) <= limits.max_rows
        days = {row.day for row in rows}
        assert len(days) <= limits.days
        for found in days:
            names = {row.principal for row in rows if row.day == found} - {OTHERS}
            assert len(names) <= limits.principals_per_day
    rows = table.rows()
    if len(used) <= limits.days and limits.max_rows >= 3 * len(used):
        # Then no day has to go: every bound leads to the others of the same day.
        for field in ("output_tok", "prompt_tok", "told_tok", "recomputed_tok", "discarded_tok"):
            assert sum(getattr(row, field) for row in rows) == sum(used.values())
        assert sum(row.cached_tok for row in rows) <= sum(used.values())
        counted = sum(getattr(row, outcome.value) for row in rows for outcome in Outcome)
        assert counted == sum(ends.values())
    disk.write(table, fails=False)
    assert disk.rows == {(row.day, row.principal, row.class_): row for row in rows}
    heir = UsageTable(lambda: limits)
    for row in disk.rows.values():
        heir.restore(row)
    assert heir.rows() == rows
