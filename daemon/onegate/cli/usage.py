"""`onegate usage`: who used how much, by day."""

import re
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onegate.cli.exits import UsageError
from onegate.cli.options import Json, Socket
from onegate.cli.status import UNKNOWN, span
from onegate.cli.terminal import console, say, say_json, visible
from onegate.cli.whoami import rations
from onegate.client.sync import Client
from onegate.clock import wall_ms
from onegate.protocol import messages as m

if TYPE_CHECKING:
    from rich.table import Table

_S_PER_DAY = 86_400


def usage(
    *,
    since: Annotated[
        str,
        Parameter(help="How far back: 7d is today and the six days before it; all is everything."),
    ] = "7d",
    json: Json = False,
    socket: Socket = None,
) -> None:
    """Show requests, tokens and times per user, class and day (UTC).

    You see your own rows, an administrator everybody's. A request counts on the day on which it
    ended. Of the prompts, what the engine had in its cache is `cached` (only what you put there
    yourself), and what it computed once more because a request was stopped, or it died, is `again`.
    Waiting and running are summed over the requests, so ten that ran for a minute side by side are
    ten minutes. The rows outlive the daemon; one that is killed loses what ended in its last moment
    (usage.write_every_s, half a second by default).

    **Examples**

    ```
    onegate usage
    onegate usage --since 30d --json
    ```
    """
    beginning = first_moment(since, wall_ms() / 1000)
    with Client(socket, app="onegate usage") as gate:
        report = gate.usage(since=beginning)
    if json:
        say_json(report)
        return
    if report.rows:
        console().print(table(report.rows))
    else:
        say("nothing was used in that time" if report.everybody else "you used nothing then")
    for line in rations(report.daily):
        say(f"today, {line}")
    if not report.everybody and report.rows:
        say("These are your own rows; an administrator sees everybody's.")
    if not report.stored:
        say("They are kept in memory: a restart of the daemon forgets them.")


def first_moment(since: str, now_s: float) -> float | None:
    """A Unix time in the first day that is asked for, None for everything. Raises UsageError."""
    if since == "all":
        return None
    days = re.fullmatch(r"([1-9][0-9]{0,4})d", since)
    if days is None:
        raise UsageError(f"--since {since!r} is no number of days: try 7d, 30d or all")
    return max(0.0, now_s - (int(days[1]) - 1) * _S_PER_DAY)


def table(rows: list[m.UsageRow]) -> "Table":
    """One line per row."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("day", "user", "class"):
        made.add_column(name, overflow="fold")
    for name in (
        *("finished", "refused", "other ends", "prompt tok", "cached", "again", "output tok"),
        *("waited", "ran"),
    ):
        made.add_column(name, justify="right")
    for row in rows:
        ends = dict(row.requests)
        cells = [
            *(row.day, row.principal, row.class_),
            *(ends.pop("finished", 0), ends.pop("rejected", 0), other_ends(ends)),
            *(row.prompt_tok, cached(row), row.recomputed_tok, row.output_tok),
            *(span(row.queue_ms / 1000), span(row.run_ms / 1000)),
        ]
        made.add_row(*(visible(str(cell)) for cell in cells))
    return made


def cached(row: m.UsageRow) -> str:
    """How many prompt tokens the engine had in its cache: `400`, `-` where it does not say, and
    `400 of 900` where it said so of 900 alone."""
    if row.cached_tok is None:
        return UNKNOWN
    if row.told_tok == row.prompt_tok:
        return str(row.cached_tok)
    return f"{row.cached_tok} of {row.told_tok}"


def other_ends(ends: dict[str, int]) -> str:
    """`3 (cancelled 2, failed 1)`, or `0`."""
    total = sum(ends.values())
    named = ", ".join(f"{outcome} {count}" for outcome, count in sorted(ends.items()))
    return f"{total} ({named})" if total else "0"
