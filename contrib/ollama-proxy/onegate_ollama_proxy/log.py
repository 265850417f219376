"""What the proxy writes to its standard error: one line for each event, nothing of any content.

No prompt, no answer, no header's value: a line about a request says who asked for what path, how it
ended and how long it took.
"""

import os
import select
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import TextIO

from onegate.clock import wall_ms

MAX_VALUE_CHARS = 200


class Level(IntEnum):
    """The journal's numbers."""

    ERROR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6


class Log:
    """Lines to one text stream. One that fails, or that nobody reads, stops nothing: `lost` counts
    the lines, and the next one that gets through says so."""

    def __init__(self, stream: TextIO, *, journal: bool = False) -> None:
        self._stream = stream
        self._journal = journal
        self._poll: select.poll | None = None
        self.lost = 0

    @classmethod
    def for_stream(cls, stream: TextIO, environ: Mapping[str, str]) -> "Log":
        """For the journal where the stream leads there, as systemd.exec(5) has it told."""
        stat = os.fstat(stream.fileno())
        log = cls(stream, journal=environ.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}")
        log._poll = select.poll()
        log._poll.register(stream.fileno(), select.POLLOUT)
        return log

    def line(self, level: Level, event: str, **fields: str | int | None) -> None:
        """One line. A field that is None is left out of it."""
        said = {name.rstrip("_"): value for name, value in fields.items() if value is not None}
        if self.lost:
            said["lost_lines"] = self.lost
        text = " ".join([event, *(f"{name}={_value(value)}" for name, value in said.items())])
        if self._journal:
            line = f"<{level.value}>{text}\n"
        else:
            now = datetime.fromtimestamp(wall_ms() / 1000, UTC)
            line = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03}Z {level.name} {text}\n"
        try:
            # A pipe that is full would stop the event loop.
            if self._poll is not None and not self._poll.poll(0):
                self.lost += 1
                return
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream has been closed
            self.lost += 1
        else:
            self.lost = 0


def _value(value: str | int) -> str:
    """A value in one word, or in quotes; what could end the line or drive a terminal is escaped."""
    text = str(value)
    if len(text) > MAX_VALUE_CHARS:
        text = text[: MAX_VALUE_CHARS - 3] + "..."
    if text and all(c.isalnum() or c in "_.:/@+-%," for c in text):
        return text
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else ascii(char)[1:-1]
