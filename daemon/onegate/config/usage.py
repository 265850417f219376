"""`[usage]`: what is remembered of who used how much, and where it is kept."""

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from onegate.config.units import AbsolutePath, Count, Seconds, why

# Some 300 bytes of memory each.
MAX_USAGE_ROWS = 200_000
Rows = Annotated[int, Meta(ge=1, le=MAX_USAGE_ROWS)]


class UsageConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[usage]`: the table behind `onegate usage`, one row per user, class and day (UTC)."""

    directory: Annotated[
        AbsolutePath | None,
        why(
            "where the table is kept, and what administrators have closed: a released device, "
            "paused classes; `none`: in the directory that systemd gives, else of a user's own "
            "daemon in `onegate/` of $XDG_STATE_HOME or ~/.local/state. A daemon that was told "
            "where to listen keeps them in memory",
            restart=True,
        ),
    ] = None
    days: Annotated[
        Count, why("days with any use that are kept, the newest: a year and a bit", "days")
    ] = 400
    principals_per_day: Annotated[
        Count, why("users with rows of their own; later ones of a day are added up", "users")
    ] = 64
    max_rows: Annotated[
        Rows, why("a guard for memory: past it the users of the oldest day are added up", "rows")
    ] = 20_000
    write_every_s: Annotated[
        Seconds,
        why(
            "the shortest time between two writes, and so what a daemon that is killed may lose: "
            "what ended in that time. A machine that loses power loses what its kernel had not "
            "written, which is some 30 s by default",
            "s",
        ),
    ] = 0.5


def usage_directory(
    usage: UsageConfig, *, environ: Mapping[str, str], private: bool, handed_over: bool
) -> str | None:
    """Where the table is kept, and what administrators have closed; None: in memory.

    `private`: the daemon was told on its command line where to listen, as those that exist for one
    purpose are. `handed_over`: its socket comes from a service manager, whose directory is then the
    only one that can be meant. Two daemons of one user never share a directory by default.
    """
    if usage.directory is not None:
        return usage.directory
    if private:
        return None
    # A unit may have several, systemd.exec(5).
    given = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given.startswith("/"):
        return given
    if handed_over or environ.get("ONEGATE_SOCKET"):
        return None
    for variable, below in (("XDG_STATE_HOME", "onegate"), ("HOME", ".local/state/onegate")):
        # The base directory specification has relative values ignored.
        if (base := environ.get(variable, "")).startswith("/"):
            return os.path.join(base, below)
    return None
