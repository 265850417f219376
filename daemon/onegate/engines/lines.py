"""What a child process writes, line by line."""

import asyncio
from collections.abc import Callable

_MAX_LINE_BYTES = 4096


class LineSplitter(asyncio.Protocol):
    """Hands each line to `log`, without its end and without control characters.

    A line of any length is bounded: what goes beyond 4 KiB is cut into further lines. `last` is the
    latest line with text in it, for the sentence that says why the process ended.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._rest = b""
        self.last = ""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._emit(line)
        while len(self._rest) > _MAX_LINE_BYTES:
            self._emit(self._rest[:_MAX_LINE_BYTES])
            self._rest = self._rest[_MAX_LINE_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest:
            self._emit(self._rest)
            self._rest = b""

    def _emit(self, line: bytes) -> None:
        for at in range(0, len(line), _MAX_LINE_BYTES):
            text = line[at : at + _MAX_LINE_BYTES].decode("utf-8", "replace")
            text = "".join(char if char.isprintable() else " " for char in text).strip()
            if text:
                self.last = text
                self._log(text)
