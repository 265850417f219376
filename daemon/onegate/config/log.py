"""`[log]`: what is recorded besides the journal."""

from typing import Annotated

from msgspec import Meta, Struct

from onegate.config.units import AbsolutePath, why

# A record is some hundred bytes, so that less would hold only seconds of a busy daemon.
EventLogBytes = Annotated[int, Meta(ge=1 << 20, le=1 << 40)]


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[log]`: the event log, from which every decision of a daemon can be replayed.

    It holds sizes, times, users and programs, and no text of prompts or answers.
    """

    events_path: Annotated[
        AbsolutePath | None,
        why(
            "where it is written, beside it the one before with `.1` at the end; `none`: nowhere. "
            "The system's service may write in /var/lib/onegate only",
            restart=True,
        ),
    ] = None
    events_max_bytes: Annotated[
        EventLogBytes,
        why("of both files together; what is older is forgotten", "bytes", restart=True),
    ] = 256 * 1024 * 1024
