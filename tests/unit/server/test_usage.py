"""Who used how much: what is counted where, and that nothing grows without bound."""

from typing import Any

import msgspec
import pytest

from onegate.config import UsageConfig
from onegate.server.outcome import Outcome
from onegate.server.usage import MS_PER_DAY, OTHERS, Row, UsageTable, utc_day, wire_row
from onegate.server.work import Work

NOON = 20_000 * MS_PER_DAY + MS_PER_DAY // 2  # 2024-10-04


class Counted:
    """A table and a short way to count in it."""

    def __init__(self, **limits: Any) -> None:
        self.limits = UsageConfig(**limits)
        self.table = UsageTable(lambda: self.limits)
        self.table.stored = True

    def end(
        self, principal: str = "uid:1", class_: str = "loop", *, day: int = 0, **more: Any
    ) -> None:
        fields = {"outcome": Outcome.FINISHED, "output_tok": 1} | more
        now_ms = NOON + day * MS_PER_DAY
        self.table.ended(principal=principal, class_=class_, now_ms=now_ms, **fields)

    def rows(self, *asked: Any) -> dict[tuple[str, str, str], int]:
        """Output tokens by day, principal and class."""
        return {(r.day, r.principal, r.class_): r.output_tok for r in self.table.rows(*asked)}


@pytest.mark.parametrize(
    ("unix_ms", "day"),
    [
        (0, "1970-01-01"),
        (MS_PER_DAY - 1, "1970-01-01"),
        (MS_PER_DAY, "1970-01-02"),
        (NOON, "2024-10-04"),
        (-5, "1970-01-01"),
        (2**53, "9999-12-31"),
    ],
)
def test_the_day_of_a_moment(unix_ms: int, day: str) -> None:
    assert utc_day(unix_ms) == day


def test_ends_add_up_by_day_principal_and_class() -> None:
    c = Counted()
    c.end(prompt_tok=5, output_tok=7, queue_ms=11, run_ms=13)
    c.end(prompt_tok=5, output_tok=7, queue_ms=11, run_ms=13, outcome=Outcome.FAILED)
    c.end(class_="batch")
    c.end("uid:2")
    c.end(day=1)
    assert c.rows() == {
        ("2024-10-04", "uid:1", "loop"): 14,
        ("2024-10-04", "uid:1", "batch"): 1,
        ("2024-10-04", "uid:2", "loop"): 1,
        ("2024-10-05", "uid:1", "loop"): 1,
    }
    row = c.table.rows()[0]
    assert (row.finished, row.failed, row.rejected) == (1, 1, 0)
    assert (row.prompt_tok, row.queue_ms, row.run_ms) == (10, 22, 26)
    assert c.table.n_rows == 4


def work(**fields: int) -> Work:
    made = Work()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_what_was_cached_computed_again_and_lost_adds_up() -> None:
    c = Counted()
    c.end(prompt_tok=5)
    assert wire_row(c.table.rows()[0]).cached_tok is None, "nothing was said of it"
    c.end(prompt_tok=7, work=work(cached_tok=0))
    assert wire_row(c.table.rows()[0]).cached_tok == 0
    for _ in range(2):
        c.end(prompt_tok=7, work=work(cached_tok=3, recomputed_tok=2, discarded_tok=1))
    row = wire_row(c.table.rows()[0])
    assert (row.prompt_tok, row.told_tok, row.cached_tok) == (26, 21, 6)
    assert (row.recomputed_tok, row.discarded_tok) == (4, 2)


def test_a_row_of_before_is_read_and_counted_on() -> None:
    old = b'{"day":"2024-10-04","principal":"uid:1","class":"loop","finished":3,"prompt_tok":50}'
    c = Counted()
    c.table.restore(msgspec.json.decode(old, type=Row))
    c.end(prompt_tok=7, work=work(cached_tok=3))
    row = wire_row(c.table.rows()[0])
    assert (row.requests, row.prompt_tok) == ({"finished": 4}, 57)
    assert (row.told_tok, row.cached_tok, row.recomputed_tok) == (7, 3, 0)


def test_every_outcome_has_its_count() -> None:
    c = Counted()
    for outcome in Outcome:
        c.end(outcome=outcome)
    (row,) = c.table.rows()
    assert wire_row(row).requests == {outcome.value: 1 for outcome in Outcome}


def test_midnight_is_noticed() -> None:
    c = Counted()
    for now_ms in (MS_PER_DAY - 1, MS_PER_DAY, 2 * MS_PER_DAY - 1, 0):
        c.table.ended(principal="p", class_="c", outcome=Outcome.FINISHED, now_ms=now_ms)
    assert [(r.day, r.finished) for r in c.table.rows()] == [("1970-01-01", 2), ("1970-01-02", 2)]


def test_questions() -> None:
    c = Counted()
    for day in (2, 0, 1):  # as a clock that was set back would have it
        c.end(day=day)
        c.end("uid:2", day=day)
    assert [day for day, _, _ in c.rows()] == sorted(day for day, _, _ in c.rows())
    assert len(c.rows("2024-10-05")) == 4
    assert c.rows("2024-10-06", "uid:2") == {("2024-10-06", "uid:2", "loop"): 1}
    assert c.rows("2024-10-07") == c.rows("", "uid:3") == {}


# --- bounds ---------------------------------------------------------------------------------------


def test_later_principals_of_a_day_are_added_up() -> None:
    c = Counted(principals_per_day=2)
    for i in range(6):
        c.end(f"uid:{i}")
    c.end("uid:0")
    c.end("uid:4", "batch")
    assert c.rows() == {
        ("2024-10-04", "others", "batch"): 1,
        ("2024-10-04", "others", "loop"): 4,
        ("2024-10-04", "uid:0", "loop"): 2,
        ("2024-10-04", "uid:1", "loop"): 1,
    }
    c.end("uid:5", day=1)
    assert ("2024-10-05", "uid:5", "loop") in c.rows(), "another day, another bound"


def test_the_others_take_no_place() -> None:
    c = Counted(principals_per_day=1)
    c.table.restore(Row(day="2024-10-04", principal=OTHERS, class_="loop"))
    c.end("uid:1")
    assert ("2024-10-04", "uid:1", "loop") in c.rows()


def test_the_oldest_days_are_forgotten() -> None:
    c = Counted(days=2)
    for day in (0, 1, 2, 5):
        c.end(day=day)
    assert [day for day, _, _ in c.rows()] == ["2024-10-06", "2024-10-09"]
    assert c.table.n_rows == 2


def test_a_clock_that_is_wrong_for_a_moment_empties_nothing() -> None:
    c = Counted(days=400)
    c.end(day=0)
    c.end(day=30_000)
    c.end(day=1)
    assert len(c.rows()) == 3


def test_too_many_rows_cost_the_oldest_day_its_names_and_no_counts() -> None:
    c = Counted(max_rows=6, principals_per_day=3)
    for day in range(3):
        for uid in range(3):
            c.end(f"uid:{uid}", day=day, output_tok=10)
    assert c.table.n_rows == len(c.rows()) == 5
    assert sum(c.rows().values()) == 90
    assert c.rows("", OTHERS) == {
        ("2024-10-04", "others", "loop"): 30,
        ("2024-10-05", "others", "loop"): 30,
    }


def test_where_no_name_is_left_the_oldest_day_goes() -> None:
    c = Counted(max_rows=2, principals_per_day=1)
    for day in range(5):
        c.end(day=day)
    assert c.table.n_rows == len(c.rows()) == 2
    assert {day for day, _, _ in c.rows()} == {"2024-10-07", "2024-10-08"}


def test_adding_up_keeps_every_count_of_the_day() -> None:
    a = Row(day="2024-10-04", principal="a", class_="loop", finished=1, queue_ms=2)
    b = Row(day="2024-10-04", principal="b", class_="loop", finished=3, run_ms=4, rejected=5)
    assert a.plus(b) == Row(
        day="2024-10-04",
        principal="a",
        class_="loop",
        finished=4,
        rejected=5,
        queue_ms=2,
        run_ms=4,
    )


# --- what is written ------------------------------------------------------------------------------


def test_only_what_has_changed_is_taken_and_once() -> None:
    c = Counted()
    c.end("uid:1")
    c.end("uid:2")
    assert c.table.take(whole=False) == (c.table.rows(), False)
    assert c.table.take(whole=False) is None
    c.end("uid:2")
    rows, whole = c.table.take(whole=False) or ([], True)
    assert [(row.principal, row.output_tok, whole) for row in rows] == [("uid:2", 2, False)]
    assert c.table.take(whole=True) == (c.table.rows(), True)


def test_what_was_lost_is_taken_again_and_whole() -> None:
    c = Counted()
    c.end("uid:1")
    c.table.take(whole=False)
    c.end("uid:2")
    c.table.lost()
    c.end("uid:3")
    assert c.table.take(whole=False) == (c.table.rows(), True)
    assert c.table.take(whole=False) is None


def test_what_is_forgotten_must_leave_the_disk_too() -> None:
    c = Counted(days=1)
    c.end(day=0)
    c.table.take(whole=False)
    c.end(day=1)
    assert c.table.take(whole=False) == (c.table.rows(), True)


def test_a_table_in_memory_remembers_no_changes() -> None:
    c = Counted()
    c.table.stored = False
    c.end()
    assert c.table.take(whole=False) is None


def test_rows_that_were_taken_stay_as_they_were() -> None:
    c = Counted()
    c.end()
    rows, _ = c.table.take(whole=True) or ([], True)
    c.end()
    assert [row.finished for row in rows] == [1]


def test_restoring_takes_the_last_word_and_is_no_change() -> None:
    c = Counted(days=2)
    for tok in (5, 7):
        c.table.restore(Row(day="2024-10-04", principal="uid:1", class_="loop", output_tok=tok))
    assert c.rows() == {("2024-10-04", "uid:1", "loop"): 7}
    assert c.table.take(whole=False) is None
    c.end(output_tok=1)
    assert c.rows() == {("2024-10-04", "uid:1", "loop"): 8}
    for day in ("2024-10-05", "2024-10-06"):
        c.table.restore(Row(day=day, principal="uid:1", class_="loop"))
    c.table.shrink()
    assert len(c.rows()) == 2


def test_what_is_restored_is_bounded_on_the_way_and_gone_through_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Counted(days=4, max_rows=10)
    shrink, times, most = c.table.shrink, [], 0

    def counted() -> None:
        times.append(1)
        shrink()

    monkeypatch.setattr(c.table, "shrink", counted)
    for n in range(1000):
        day = utc_day(n // 100 * MS_PER_DAY)
        c.table.restore(Row(day=day, principal=f"uid:{n}", class_="loop", output_tok=1))
        most = max(most, c.table.n_rows)
    assert most <= 2 * 10 + 1
    assert len(times) < 120
    shrink()
    assert len(c.rows()) <= 10
    assert {day for day, _, _ in c.rows()} == {utc_day(n * MS_PER_DAY) for n in range(6, 10)}


def test_each_end_is_told_to_who_writes_it_down() -> None:
    c, told = Counted(), []
    c.table.on_change = lambda: told.append(c.table.take(whole=False))
    c.end()
    c.end()
    assert [len(rows) for rows, _ in told] == [1, 1]
    c.table.stored = False
    c.end()
    assert len(told) == 2


def test_a_row_survives_being_written() -> None:
    c = Counted()
    c.end(prompt_tok=2**53)
    (row,) = c.table.rows()
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row) == row
    assert b'"class":"loop"' in msgspec.json.encode(row)


def test_a_row_as_clients_read_it() -> None:
    wire = wire_row(
        Row(day="2024-10-04", principal="p", class_="c", finished=2, prompt_tok=3, run_ms=4)
    )
    assert (wire.day, wire.principal, wire.class_) == ("2024-10-04", "p", "c")
    assert wire.requests == {"finished": 2}
    assert (wire.prompt_tok, wire.output_tok, wire.queue_ms, wire.run_ms) == (3, 0, 0, 4)
