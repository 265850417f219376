"""Times of the week, read and asked."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from onegate.config.window import DAY_S, Wall, Window, is_open, next_change, parse

ALL = frozenset(range(7))


def in_zone(name: str) -> Wall:
    zone = ZoneInfo(name)
    return lambda at_s: datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)


def at(text: str, zone: str, fold: int = 0) -> int:
    """Unix time of a local one."""
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(local.timestamp())


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("22:00-06:00", Window(ALL, 1320, 360)),
        ("9:05-17:30", Window(ALL, 545, 1050)),
        ("sat,sun 00:00-24:00", Window(frozenset({5, 6}), 0, 1440)),
        ("mon-fri 09:00-17:00", Window(frozenset(range(5)), 540, 1020)),
        ("fri-mon,wed 01:00-02:00", Window(frozenset({4, 5, 6, 0, 2}), 60, 120)),
        ("  SUN   23:59-00:00 ", Window(frozenset({6}), 1439, 0)),
    ],
)
def test_what_can_be_written(text: str, window: Window) -> None:
    assert parse(text) == window


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a time"),
        ("22-06", "expected a time"),
        ("22:00", "expected a time"),
        ("22:00-06:00 mon", "expected a time"),
        ("mon, tue 22:00-06:00", "expected a time"),
        ("24:00-06:00", "24:00 is no time of the day up to 23:59"),
        ("22:00-24:01", "24:01 is no time of the day up to 24:00"),
        ("22:60-23:00", "22:60 is no time"),
        ("99:00-06:00", "99:00 is no time"),
        ("06:00-06:00", "the whole day is 00:00-24:00"),
        ("so 22:00-06:00", "'so' is no day"),
        ("mon- 22:00-06:00", "'mon-' is no day"),
        ("mon-fri-sun 22:00-06:00", "is no day"),
        ("mon,,tue 22:00-06:00", "'' is no day"),
        ("\u0661\u0661:00-12:00", "expected a time"),
        ("x" * 200 + " 22:00-06:00", "is no day"),
    ],
)
def test_what_cannot(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "local", "inside"),
    [
        ("09:00-17:00", "2026-03-02T08:59:59", False),
        ("09:00-17:00", "2026-03-02T09:00:00", True),
        ("09:00-17:00", "2026-03-02T16:59:59", True),
        ("09:00-17:00", "2026-03-02T17:00:00", False),
        ("sat 22:00-06:00", "2026-03-07T22:00:00", True),
        ("sat 22:00-06:00", "2026-03-08T05:59:59", True),
        ("sat 22:00-06:00", "2026-03-08T06:00:00", False),
        ("sat 22:00-06:00", "2026-03-07T05:00:00", False),  # Friday's night
        ("sun 22:00-06:00", "2026-03-09T05:00:00", True),  # a week has no end
        ("sun 00:00-24:00", "2026-03-08T23:59:59", True),
        ("sun 00:00-24:00", "2026-03-09T00:00:00", False),
    ],
)
def test_inside_and_outside(text: str, local: str, inside: bool) -> None:
    assert parse(text).shows(datetime.fromisoformat(local)) is inside


def test_one_of_several_is_enough() -> None:
    windows = [parse("22:00-06:00"), parse("sat,sun 00:00-24:00")]
    assert is_open(windows, datetime(2026, 3, 7, 12))
    assert not is_open(windows, datetime(2026, 3, 6, 12))
    assert is_open(windows, datetime(2026, 3, 6, 23))


def test_no_window_is_always_open() -> None:
    assert is_open([], datetime(2026, 3, 7, 12))
    assert next_change([], in_zone("UTC"), 0) is None


def test_a_window_that_is_everything_never_changes() -> None:
    assert next_change([parse("00:00-24:00")], in_zone("Europe/Berlin"), 1_790_000_000) is None


def test_windows_that_touch_are_one() -> None:
    windows = [parse("22:00-24:00"), parse("00:00-06:00")]
    now = at("2026-03-02T23:00", "UTC")
    assert next_change(windows, in_zone("UTC"), now) == at("2026-03-03T06:00", "UTC")


def test_the_next_of_a_week() -> None:
    wall, windows = in_zone("UTC"), [parse("sat 22:00-06:00")]
    opens, closes = at("2026-03-07T22:00", "UTC"), at("2026-03-08T06:00", "UTC")
    assert next_change(windows, wall, at("2026-03-02T12:34:56", "UTC")) == opens
    assert next_change(windows, wall, opens - 1) == opens
    assert next_change(windows, wall, opens) == closes
    assert next_change(windows, wall, closes) == opens + 7 * DAY_S


BERLIN = "Europe/Berlin"  # forward on 2026-03-29 at 02:00, back on 2026-10-25 at 03:00


def test_what_the_clocks_pass_over_is_left_out() -> None:
    wall = in_zone(BERLIN)
    windows = [parse("02:15-02:45")]
    passed = at("2026-03-28T12:00", BERLIN)
    assert next_change(windows, wall, passed) == at("2026-03-30T02:15", BERLIN)
    # What would end within it ends when the clocks are set.
    night = [parse("22:00-02:30")]
    assert next_change(night, wall, passed) == at("2026-03-28T22:00", BERLIN)
    assert next_change(night, wall, passed + 11 * 3600) == at("2026-03-29T03:00", BERLIN)


def test_a_whole_week_is_waited_for_what_is_passed_over() -> None:
    windows = [parse("sun 02:15-02:45")]
    start = at("2026-03-22T03:00", BERLIN)
    assert next_change(windows, in_zone(BERLIN), start) == at("2026-04-05T02:15", BERLIN)


def test_what_the_clocks_show_twice_counts_twice() -> None:
    wall, windows = in_zone(BERLIN), [parse("02:15-02:45")]
    edges, now = [], at("2026-10-25T00:00", BERLIN)
    for _ in range(4):
        changes = next_change(windows, wall, now)
        assert changes is not None
        edges.append(changes)
        now = changes
    assert edges == [
        at("2026-10-25T02:15", BERLIN),
        at("2026-10-25T02:45", BERLIN),
        at("2026-10-25T02:15", BERLIN, fold=1),
        at("2026-10-25T02:45", BERLIN, fold=1),
    ]


def test_clocks_that_are_set_back_open_again_what_had_closed() -> None:
    wall, windows = in_zone(BERLIN), [parse("22:00-02:30")]
    closes = at("2026-10-25T02:30", BERLIN)
    reopens = at("2026-10-25T02:00", BERLIN, fold=1)
    assert next_change(windows, wall, closes - 3600) == closes
    assert next_change(windows, wall, closes) == reopens
    assert next_change(windows, wall, reopens) == at("2026-10-25T02:30", BERLIN, fold=1)
