"""`onegate pause`: close a class by hand."""

import re
from datetime import datetime, timedelta
from typing import Annotated

from cyclopts import Parameter

from onegate.cli.closed import warn
from onegate.cli.exits import UsageError
from onegate.cli.options import Json, Socket
from onegate.cli.terminal import say, say_json
from onegate.client.sync import Client
from onegate.clock import wall_ms
from onegate.protocol.requests import MAX_CLOSED_MS


def pause(
    class_: Annotated[str, Parameter(name="CLASS", help="Class to close.")],
    /,
    *,
    until: Annotated[
        str | None,
        Parameter(
            help="When it opens again, at most 30 days ahead: 07:00 (the next time it is that), "
            "2030-01-31T07:00, or a span such as 90s, 30m, 2h. Default: when it is unpaused."
        ),
    ] = None,
    json: Json = False,
    socket: Socket = None,
) -> None:
    """Administrators: close a class to newcomers, for a time or until `onegate unpause`.

    What runs goes on; what waits keeps its place and its deadline; newcomers are refused with the
    time at which the class opens. That is later than --until if its run_window is closed then. A
    class stays closed over a restart of the daemon, unless that keeps its state in memory
    (usage.directory).

    **Examples**

    ```
    onegate pause batch --until 22:00
    onegate pause batch --until 2h
    ```
    """
    ends = None if until is None else moment(until, datetime.fromtimestamp(wall_ms() / 1000))
    with Client(socket, app="onegate pause") as gate:
        gate.pause(class_, until=None if ends is None else ends.timestamp(), on_notice=warn)
    if json:
        until_ms = None if ends is None else round(ends.timestamp() * 1000)
        say_json({"class": class_, "paused": True, "paused_until_ms": until_ms})
    elif ends is None:
        say(f"{class_} is paused until `onegate unpause {class_}`")
    else:
        say(f"{class_} is paused until {ends:%Y-%m-%d %H:%M:%S}")


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment(text: str, now: datetime, option: str = "--until") -> datetime:
    """The local time that `text` names, seen from `now`. Raises UsageError, naming `option`.

    A span is so many seconds, also over a night in which the clocks are changed; `07:00` is the
    next time that the clocks show it.
    """
    if span := re.fullmatch(r"([0-9]{1,6})([smhd])", text):
        # Adding to a local time would add to what the clocks show.
        ends = datetime.fromtimestamp(now.timestamp() + int(span[1]) * _UNITS_S[span[2]])
        return _ahead(f"{option} {text}", ends, now)
    try:
        if clock := re.fullmatch(r"([0-9]{1,2}):([0-9]{2})", text):
            return _next(now, int(clock[1]), int(clock[2]))
        named = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no time: try 07:00, 2030-01-31T07:00 or 2h"
        ) from None
    return _ahead(f"{option} {text}", named, now)


def _next(now: datetime, hour: int, minute: int) -> datetime:
    """The next time that clocks show that, the second of two where they are set back. Where they
    are set forward over it, it is as long after the change as it would have been without."""
    today = now.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    for day in (today, today + timedelta(days=1)):
        for shown in (day, day.replace(fold=1)):
            real = datetime.fromtimestamp(shown.timestamp())
            if real.timestamp() > now.timestamp() and (real == shown or shown.fold == 0):
                return real
    raise AssertionError("tomorrow is ahead")


def _ahead(said: str, named: datetime, now: datetime) -> datetime:
    try:
        over = named.timestamp() <= now.timestamp()
    except (ValueError, OverflowError, OSError):
        over = named.year < now.year  # at either end of the calendar, where zones reach beyond it
        if not over:
            raise UsageError(f"{said} is too far ahead") from None
    if over:
        raise UsageError(f"{said} has passed already")
    if round((named.timestamp() - now.timestamp()) * 1000) > MAX_CLOSED_MS:
        days = MAX_CLOSED_MS // 86_400_000
        raise UsageError(f"{said} is more than {days} days ahead: leave it out, and end it by hand")
    return named
