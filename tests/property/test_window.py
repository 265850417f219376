"""The next change of any windows against a walk through every minute, where clocks are set."""

from datetime import datetime
from zoneinfo import ZoneInfo

from hypothesis import example, given
from hypothesis import strategies as st

from onegate.config.window import DAYS, Wall, Window, is_open, next_change, parse

# Clocks that are set by an hour in either half of the world, by half an hour, at midnight, never.
ZONES = [
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana"),
    *("Africa/Cairo", "Asia/Kolkata", "UTC"),
]
# The quarter of an hour in which each of these set their clocks in 2026 is among them.
STARTS = [
    int(datetime.fromisoformat(f"2026-{day}T00:00Z").timestamp())
    for day in ("03-07", "03-27", "04-03", "04-23", "10-02", "10-23", "10-28", "10-30", "12-29")
]

windows = st.builds(
    Window,
    days=st.frozensets(st.integers(0, 6), min_size=1),
    start_min=st.integers(0, 1439),
    end_min=st.integers(1, 1440),
).filter(lambda window: window.start_min != window.end_min)


def in_zone(name: str) -> Wall:
    zone = ZoneInfo(name)
    return lambda at_s: datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)


@given(
    st.lists(windows, min_size=1, max_size=4),
    st.sampled_from(ZONES),
    st.sampled_from(STARTS),
    st.integers(0, 3 * 86_400),
)
@example([Window(frozenset({6}), 120, 180)], "Europe/Berlin", STARTS[1], 0)
def test_the_next_change_is_the_first_minute_that_differs(
    found: list[Window], zone: str, start_s: int, later_s: int
) -> None:
    wall, now_s = in_zone(zone), start_s + later_s
    now_open = is_open(found, wall(now_s))
    changes_s = next_change(found, wall, now_s)
    # All zones here are whole minutes from UTC, so nothing changes within one.
    minutes = range(now_s - now_s % 60 + 60, now_s + 4 * 86_400, 60)
    first = next((at_s for at_s in minutes if is_open(found, wall(at_s)) != now_open), None)
    if first is not None:
        assert changes_s == first
    else:
        assert changes_s is None or changes_s >= minutes.stop - 60


@given(windows)
def test_what_is_written_out_reads_the_same(window: Window) -> None:
    days = ",".join(DAYS[day] for day in sorted(window.days))
    start, end = (f"{at // 60:02}:{at % 60:02}" for at in (window.start_min, window.end_min))
    assert parse(f"{days} {start}-{end}") == window
