"""The table of use on disk: a journal of rows, each with its checksum, and made small in one step.

A row is written with its whole value, so of several lines for one row the last one holds, and
reading a line twice counts nothing twice. A line that is cut short, or damaged, is passed over.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from onegate.config import MAX_USAGE_ROWS
from onegate.server import state
from onegate.server.usage import Row

NAME = "usage.jsonl"
# Longer than any row, names at their longest and every count at its highest included.
MAX_LINE_BYTES = 8192
# The largest table there may be, twice. A larger file is not ours.
MAX_FILE_BYTES = 256 * 1024 * 1024
# Lines that the journal may have beyond twice its rows before it is written anew.
SPARE_LINES = 1024
# The longest journal there may be, and the batch that made it so long: read in some seconds, where
# as many empty lines as fit into a file would keep the daemon from starting.
MAX_LINES = 3 * MAX_USAGE_ROWS + SPARE_LINES
_CHUNK_BYTES = 1 << 20


class Found(NamedTuple):
    """How reading went: lines that are no rows, and what of that no crash of ours explains, which
    can leave one line at the end that was cut short."""

    passed_over: int
    problem: str | None


class UsageFile:
    """The file in the daemon's directory. Blocks; not for the event loop.

    `n_lines` counts the lines of the file.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self.n_lines = 0

    def read(self, take: Callable[[Row], None]) -> Found:
        """Hand out every row that can be read, in order. With a `problem` the file is to be put
        aside before it is written: what it holds would be lost."""
        passed_over, cut = 0, False
        try:
            with open(state.open_file(self.path, os.O_RDONLY), "rb") as file:
                # Counted, not asked for: a file may grow while it is read.
                left_bytes = MAX_FILE_BYTES
                while line := file.readline(MAX_LINE_BYTES):
                    self.n_lines += 1
                    left_bytes -= len(line)
                    if left_bytes < 0 or self.n_lines > MAX_LINES:
                        return Found(passed_over, "it is longer than a table of use can be")
                    row = state.from_line(line, Row)
                    if row is None:
                        passed_over += 1
                        cut = not line.endswith(b"\n")
                    else:
                        take(row)
        except FileNotFoundError:
            return Found(0, None)
        except OSError as error:
            return Found(passed_over, state.why(error))
        if passed_over > cut:
            return Found(passed_over, f"{passed_over} of {self.n_lines} lines cannot be read")
        return Found(passed_over, None)

    def append(self, rows: Iterable[Row]) -> None:
        """Write behind what is there. Raises OSError, after which only `replace` is safe: half a
        line may be at the end. A file that somebody took away is an error too."""
        lines = [state.to_line(row) for row in rows]
        state.append(self.path, b"".join(lines))
        self.n_lines += len(lines)

    def replace(self, rows: list[Row]) -> None:
        """Make the file consist of these rows. Raises OSError, and then it is as it was."""
        state.replace(self.path, _pieces(rows))
        self.n_lines = len(rows)


def _pieces(rows: Iterable[Row]) -> Iterator[bytearray]:
    piece = bytearray()
    for row in rows:
        piece += state.to_line(row)
        if len(piece) >= _CHUNK_BYTES:
            yield piece
            piece = bytearray()
    yield piece
