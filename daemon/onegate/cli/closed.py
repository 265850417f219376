"""What administrators have closed, in words."""

from datetime import datetime

from onegate.cli.terminal import complain
from onegate.protocol.messages import Notice
from onegate.protocol.status import ClassStatus, PoolStatus


def released(pool: PoolStatus) -> str:
    """`released until 2030-01-31 07:00:00`, of a pool that is."""
    return f"released {_until(pool.released_until_ms)}"


def paused(class_: ClassStatus) -> str:
    """`paused until 2030-01-31 07:00:00`, of a class that is."""
    return f"paused {_until(class_.paused_until_ms)}"


def _until(until_ms: int | None) -> str:
    if until_ms is None:
        return "until it is ended by hand"
    try:
        # To the nearest second: a time of a clock that runs on comes back a millisecond off.
        return f"until {datetime.fromtimestamp(round(until_ms / 1000)):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # beyond the calendar's end
        return "for longer than there are dates"


def warn(notice: Notice) -> None:
    """What does not hold all the same of what was done."""
    complain(notice.detail)
