"""Who used how much: one row per day (UTC), principal and class, bounded in every direction.

Rows are values that are replaced, never changed, so a list of them is a snapshot that another
thread may write out while requests go on ending.
"""

from collections.abc import Callable
from datetime import date
from typing import Annotated

from msgspec import Meta, Struct, structs

from onegate.config import UsageConfig
from onegate.protocol.messages import UsageRow
from onegate.server.outcome import Outcome
from onegate.server.work import Work

# Everybody beyond the bound of a day, together.
OTHERS = "others"

MS_PER_DAY = 86_400_000
# Of a request that never came to the engine.
NOTHING = Work()
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH

Tally = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"class_": "class"}):
    """What one principal used in one class on one day; also the form in which it is stored.

    Of prompts of `told_tok` tokens the engine said how many were in its cache, `cached_tok` in all.
    `recomputed_tok` and `discarded_tok` as in `Work`. `queue_ms` is waiting, `run_ms` holding a
    permit, summed over the requests that ended.
    """

    day: Annotated[str, Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\Z")]
    principal: Annotated[str, Meta(min_length=1, max_length=512)]
    class_: Annotated[str, Meta(min_length=1, max_length=64)]
    finished: Tally = 0
    rejected: Tally = 0
    expired: Tally = 0
    displaced: Tally = 0
    cancelled: Tally = 0
    disconnected: Tally = 0
    aborted: Tally = 0
    failed: Tally = 0
    prompt_tok: Tally = 0
    output_tok: Tally = 0
    queue_ms: Tally = 0
    run_ms: Tally = 0
    told_tok: Tally = 0
    cached_tok: Tally = 0
    recomputed_tok: Tally = 0
    discarded_tok: Tally = 0

    def plus(self, other: "Row") -> "Row":
        """The sum, under this row's names."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _TALLIES}
        return structs.replace(self, **sums)


_TALLIES = Row.__struct_fields__[3:]
assert {outcome.value for outcome in Outcome} <= set(_TALLIES)


def utc_day(unix_ms: int) -> str:
    """The day of a Unix time as `YYYY-MM-DD`; the first and the last day there is beyond them."""
    n = min(max(0, unix_ms // MS_PER_DAY), _LAST_DAY)
    return date.fromordinal(_EPOCH + n).isoformat()


class UsageTable:
    """The table. `stored` says that it is kept on disk as well, `unwritten` that the disk does not
    take it at the moment. `limits` are those of now.

    `on_change` is called at each end of a request while it is stored.
    """

    def __init__(self, limits: Callable[[], UsageConfig]) -> None:
        self._limits = limits
        # day -> principal -> class -> row
        self._days: dict[str, dict[str, dict[str, Row]]] = {}
        self._changed: dict[tuple[str, str, str], Row] = {}
        self._all_changed = False
        self._today = (-1, "")
        self.stored = False
        self.unwritten = False
        self.on_change: Callable[[], None] = lambda: None
        self.n_rows = 0

    # --- counting -------------------------------------------------------------------------------

    def ended(
        self,
        *,
        principal: str,
        class_: str,
        outcome: Outcome,
        now_ms: int,
        prompt_tok: int = 0,
        output_tok: int = 0,
        work: Work = NOTHING,
        queue_ms: int = 0,
        run_ms: int = 0,
    ) -> None:
        """A request has ended at that Unix time."""
        day = self._day(now_ms)
        principals = self._days.setdefault(day, {})
        if principal not in principals and self._full(principals):
            principal = OTHERS
        known = principals.get(principal, {}).get(class_)
        row = known or Row(day=day, principal=principal, class_=class_)
        row = structs.replace(
            row,
            prompt_tok=row.prompt_tok + prompt_tok,
            output_tok=row.output_tok + output_tok,
            queue_ms=row.queue_ms + queue_ms,
            run_ms=row.run_ms + run_ms,
            told_tok=row.told_tok + (0 if work.cached_tok is None else prompt_tok),
            cached_tok=row.cached_tok + (work.cached_tok or 0),
            recomputed_tok=row.recomputed_tok + work.recomputed_tok,
            discarded_tok=row.discarded_tok + work.discarded_tok,
            **{outcome.value: getattr(row, outcome.value) + 1},
        )
        self._put(row)
        if self.stored and not self._all_changed:
            self._changed[day, principal, class_] = row
        if known is None:
            self.shrink()
        if self.stored:
            self.on_change()

    def _day(self, now_ms: int) -> str:
        n, day = self._today
        if n != now_ms // MS_PER_DAY:
            day = utc_day(now_ms)
            self._today = (now_ms // MS_PER_DAY, day)
        return day

    def _full(self, principals: dict[str, dict[str, Row]]) -> bool:
        return len(principals) - (OTHERS in principals) >= self._limits().principals_per_day

    def _put(self, row: Row) -> None:
        classes = self._days.setdefault(row.day, {}).setdefault(row.principal, {})
        self.n_rows += row.class_ not in classes
        classes[row.class_] = row

    # --- bounds ---------------------------------------------------------------------------------

    def shrink(self) -> None:
        """Forget the oldest days, and the names of the oldest that are left, until all fits.

        The newest day that has any use counts as newest, whatever the clock says: a clock that was
        wrong for a moment empties nothing.
        """
        limits = self._limits()
        surplus = len(self._days) - limits.days
        if surplus > 0:
            for day in sorted(self._days)[:surplus]:
                self._forget(day)
        for shorten in (self._add_up, self._forget):
            if self.n_rows <= limits.max_rows:
                return
            for day in sorted(self._days):
                shorten(day)
                if self.n_rows <= limits.max_rows:
                    return

    def _forget(self, day: str) -> None:
        self.n_rows -= sum(map(len, self._days.pop(day).values()))
        self._all_changed = True

    def _add_up(self, day: str) -> None:
        """Leave what was used on a day, and not by whom."""
        if self._days[day].keys() == {OTHERS}:
            return
        rows = [row for classes in self._days[day].values() for row in classes.values()]
        self._forget(day)
        sums: dict[str, Row] = {}
        for row in rows:
            sums.setdefault(row.class_, Row(day=day, principal=OTHERS, class_=row.class_))
            sums[row.class_] = sums[row.class_].plus(row)
        for row in sums.values():
            self._put(row)

    # --- the disk -------------------------------------------------------------------------------

    def restore(self, row: Row) -> None:
        """A row as it was stored; the last one of several holds. `shrink` is to follow the last."""
        self._put(row)
        limits = self._limits()
        # Not at each row: a table that is much too long would be gone through as often.
        if self.n_rows > 2 * limits.max_rows or len(self._days) > 2 * limits.days:
            self.shrink()

    def take(self, *, whole: bool) -> tuple[list[Row], bool] | None:
        """What is to be written, and whether that is the whole table; None when nothing is.

        Counts as written from here on; `lost` takes that back.
        """
        whole = whole or self._all_changed
        if not whole and not self._changed:
            return None
        rows = self.rows() if whole else list(self._changed.values())
        self._changed = {}
        self._all_changed = False
        return rows, whole

    def lost(self) -> None:
        """What was taken last was not written, or nobody knows: all of it is to be."""
        self._all_changed = True

    # --- questions ------------------------------------------------------------------------------

    def day_tok(self, principal: str, class_: str, now_ms: int) -> int:
        """Tokens of prompts and answers so far on the day of that Unix time.

        Of whoever comes too late for a row of his own it is what all such have used together.
        """
        principals = self._days.get(self._day(now_ms), {})
        if principal not in principals and self._full(principals):
            principal = OTHERS
        row = principals.get(principal, {}).get(class_)
        return 0 if row is None else row.prompt_tok + row.output_tok

    def rows(self, since_day: str = "", principal: str | None = None) -> list[Row]:
        """The rows from that day on, the oldest day first; of one principal, or of everybody."""
        found: list[Row] = []
        for day in sorted(day for day in self._days if day >= since_day):
            principals = self._days[day]
            asked = principals if principal is None else {principal} & principals.keys()
            for name in sorted(asked):
                found += principals[name].values()
        return found


def wire_row(row: Row) -> UsageRow:
    """A row as clients read it."""
    ends = {outcome.value: getattr(row, outcome.value) for outcome in Outcome}
    return UsageRow(
        day=row.day,
        principal=row.principal,
        class_=row.class_,
        requests={name: count for name, count in ends.items() if count},
        prompt_tok=row.prompt_tok,
        output_tok=row.output_tok,
        queue_ms=row.queue_ms,
        run_ms=row.run_ms,
        told_tok=row.told_tok,
        cached_tok=row.cached_tok if row.told_tok else None,
        recomputed_tok=row.recomputed_tok,
        discarded_tok=row.discarded_tok,
    )
