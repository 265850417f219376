"""The daemon's log: one event, one line, from a closed set of events and fields.

No field can hold the text of a prompt or of an answer: there is none for it. `detail` is for
words of our own and of the operating system. Under systemd each line carries its priority in the
form of sd-daemon(3), and the journal adds the time; on a terminal the line carries both itself.
"""

import os
import select
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import TextIO, TypedDict, Unpack

from onegate import clock

# Enough for a path or an error; a line stays readable, and journald's limit is far away.
MAX_VALUE_CHARS = 300


class Level(IntEnum):
    """Priorities of syslog(3), as the journal takes them."""

    ERROR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6
    DEBUG = 7


class Event(StrEnum):
    """Everything that is ever logged."""

    STARTING = "starting"
    LISTENING = "listening"
    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPED = "stopped"
    CONFIG_ERROR = "config_error"
    CONFIG_WARNING = "config_warning"
    CONFIG_RELOADED = "config_reloaded"
    NOTIFY_PROBLEM = "notify_problem"
    SESSION_REFUSED = "session_refused"
    SESSION_OPENED = "session_opened"
    SESSION_CLOSED = "session_closed"
    PEER_UNREADABLE = "peer_unreadable"
    REQUEST_END = "request_end"
    CLASS_PAUSED = "class_paused"
    CLASS_UNPAUSED = "class_unpaused"
    REQUEST_CANCELLED = "request_cancelled"
    ENGINE_STARTING = "engine_starting"
    ENGINE_READY = "engine_ready"
    ENGINE_EXITED = "engine_exited"
    ENGINE_STALLED = "engine_stalled"
    ENGINE_RESTARTING = "engine_restarting"
    ENGINE_STDERR = "engine_stderr"
    ENGINE_RELEASED = "engine_released"
    ENGINE_FREE = "engine_free"
    ENGINE_TAKEN_BACK = "engine_taken_back"
    POOL_CHANGED = "pool_changed"
    SEAT_QUARANTINED = "seat_quarantined"
    SEAT_FREED = "seat_freed"
    POISON = "poison"
    USAGE_PROBLEM = "usage_problem"
    STATE_PROBLEM = "state_problem"
    EVENT_LOG_PROBLEM = "event_log_problem"
    TASK_CRASHED = "task_crashed"
    BUG = "bug"


_LEVELS: dict[Event, Level] = {
    Event.CONFIG_ERROR: Level.ERROR,
    Event.ENGINE_EXITED: Level.ERROR,
    Event.ENGINE_STALLED: Level.ERROR,
    Event.POISON: Level.ERROR,
    Event.TASK_CRASHED: Level.ERROR,
    Event.BUG: Level.ERROR,
    Event.CONFIG_WARNING: Level.WARNING,
    Event.NOTIFY_PROBLEM: Level.WARNING,
    Event.SESSION_REFUSED: Level.WARNING,
    Event.PEER_UNREADABLE: Level.WARNING,
    Event.ENGINE_RESTARTING: Level.WARNING,
    Event.SEAT_QUARANTINED: Level.WARNING,
    Event.USAGE_PROBLEM: Level.WARNING,
    Event.STATE_PROBLEM: Level.WARNING,
    Event.EVENT_LOG_PROBLEM: Level.WARNING,
    Event.STARTING: Level.NOTICE,
    Event.SERVING: Level.NOTICE,
    Event.DRAINING: Level.NOTICE,
    Event.DRAINED: Level.NOTICE,
    Event.STOPPED: Level.NOTICE,
    Event.CONFIG_RELOADED: Level.NOTICE,
    Event.CLASS_PAUSED: Level.NOTICE,
    Event.CLASS_UNPAUSED: Level.NOTICE,
    Event.REQUEST_CANCELLED: Level.NOTICE,
    Event.ENGINE_READY: Level.NOTICE,
    Event.ENGINE_RELEASED: Level.NOTICE,
    Event.ENGINE_FREE: Level.NOTICE,
    Event.ENGINE_TAKEN_BACK: Level.NOTICE,
    Event.SESSION_OPENED: Level.DEBUG,
    Event.SESSION_CLOSED: Level.DEBUG,
}


class Fields(TypedDict, total=False):
    """Everything that a line can say. None is left out of the line."""

    rid: str | None
    uid: int | None
    pid: int | None
    class_: str | None
    ceiling: str | None
    principal: str | None
    unit: str | None
    outcome: str | None
    reason: str | None
    queue_ms: int | None
    ttft_ms: int | None
    e2e_ms: int | None
    predicted_ms: int | None
    prompt_tok: int | None
    cached_tok: int | None
    recomputed_tok: int | None
    out_tok: int | None
    discarded_tok: int | None
    engine: str | None
    model: str | None
    pool: str | None
    seat: str | None
    state: str | None
    seats: int | None
    path: str | None
    until_ms: int | None
    wait_ms: int | None
    count: int | None
    exit_code: int | None
    signal: str | None
    version: str | None
    task: str | None
    detail: str | None


class Log:
    """Lines to one text stream. A stream that fails does not stop the daemon: `lost` counts the
    lines, and the next one that gets through says so."""

    def __init__(self, stream: TextIO, *, journal: bool, level: Level = Level.INFO) -> None:
        self._stream = stream
        self._journal = journal
        self._level = level
        self._poll: select.poll | None = None
        self.lost = 0

    @classmethod
    def for_stream(
        cls, stream: TextIO, environ: Mapping[str, str], *, level: Level = Level.INFO
    ) -> "Log":
        """For the journal where the stream leads there, as systemd.exec(5) has it told."""
        stat = os.fstat(stream.fileno())
        journal = environ.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"
        log = cls(stream, journal=journal, level=level)
        log._poll = select.poll()
        log._poll.register(stream.fileno(), select.POLLOUT)
        return log

    def event(self, event: Event, **fields: Unpack[Fields]) -> None:
        """One line. Raises TypeError for a field that is not in `Fields`."""
        if unknown := fields.keys() - Fields.__annotations__.keys():
            raise TypeError(f"a log line has no field {', '.join(sorted(unknown))}")
        level = _LEVELS.get(event, Level.INFO)
        if level > self._level:
            return
        self._write(level, event, fields)

    def request_end(
        self,
        *,
        rid: str,
        uid: int,
        class_: str,
        outcome: str,
        reason: str | None,
        queue_ms: int | None,
        ttft_ms: int | None,
        e2e_ms: int,
        predicted_ms: int | None,
        prompt_tok: int | None,
        cached_tok: int | None,
        recomputed_tok: int | None,
        out_tok: int,
        discarded_tok: int | None,
    ) -> None:
        """The one line about a request, at its end. A figure that is not known is None.

        `predicted_ms` is what `ttft_ms` was predicted to be when it came, if it had to wait.
        """
        self.event(
            Event.REQUEST_END,
            rid=rid,
            uid=uid,
            class_=class_,
            outcome=outcome,
            reason=reason,
            queue_ms=queue_ms,
            ttft_ms=ttft_ms,
            e2e_ms=e2e_ms,
            predicted_ms=predicted_ms,
            prompt_tok=prompt_tok,
            cached_tok=cached_tok,
            recomputed_tok=recomputed_tok,
            out_tok=out_tok,
            discarded_tok=discarded_tok,
        )

    def _write(self, level: Level, event: Event, fields: Fields) -> None:
        words = [
            f"{key.rstrip('_')}={_value(value)}"
            for key, value in fields.items()
            if value is not None
        ]
        if self.lost:
            words.append(f"lost_lines={self.lost}")
        text = " ".join([event.value, *words])
        if self._journal:
            line = f"<{level.value}>{text}\n"
        else:
            now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
            line = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03}Z {level.name} {text}\n"
        try:
            if not self._takes_more():
                self.lost += 1
                return
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream has been closed
            self.lost += 1
        else:
            self.lost = 0

    def _takes_more(self) -> bool:
        """Whether a line can be written without waiting for whoever reads the stream: a pager that
        nobody scrolls must not stop the daemon. A pipe that is ready takes PIPE_BUF bytes at once,
        and no line is longer."""
        return self._poll is None or bool(self._poll.poll(0))


def _value(value: object) -> str:
    """A value in one word, or in quotes; whatever could end the line or drive a terminal is
    written out as an escape."""
    text = str(value)
    if len(text) > MAX_VALUE_CHARS:
        text = text[: MAX_VALUE_CHARS - 3] + "..."
    if text and all(c.isalnum() or c in "_.:/@+-%," for c in text):
        return text
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return ascii(char)[1:-1]
