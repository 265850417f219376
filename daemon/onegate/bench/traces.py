"""Recorded request traces: when real requests came, and how long they were."""

import csv
import io
from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec import Struct

from onegate.bench.files import Unreadable, read_text

MAX_TRACE_BYTES = 256 * 1024 * 1024
MAX_TOK = 100_000_000
# More than anybody corrects in one sitting.
_MOST_SHOWN = 20
_AZURE_HEAD = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
# A trace of requests that all came at once has no time to scale.
_LEAST_SPAN_S = 1e-6


class Row(Struct, frozen=True, array_like=True):
    """One request; seconds from the trace's first one."""

    at_s: float
    prompt_tok: int
    output_tok: int


class Trace(Struct, frozen=True):
    """A whole trace in order of time, of at least two requests."""

    rows: list[Row]

    @property
    def span_s(self) -> float:
        return max(self.rows[-1].at_s, _LEAST_SPAN_S)

    @property
    def rate_per_s(self) -> float:
        """Mean rate as recorded."""
        return (len(self.rows) - 1) / self.span_s


class TraceError(Exception):
    """The file is no trace; one line for each thing that is wrong with it."""


class _Mooncake(Struct, frozen=True):
    timestamp: float
    input_length: int
    output_length: int


def read_trace(path: str) -> Trace:
    """An Azure LLM inference trace (CSV) or a Mooncake trace (JSON lines), by its first line.

    Raises TraceError. Mooncake's prefix hashes are not used: prompts stay unlike each other.
    """
    try:
        text = read_text(path, MAX_TRACE_BYTES)
    except Unreadable as error:
        raise TraceError(str(error)) from error
    rows: list[Row] = []
    problems: list[str] = []
    for number, found in _azure(text) if text.startswith(_AZURE_HEAD[0]) else _mooncake(text):
        if isinstance(found, str):
            problems.append(f"line {number}: {found}")
        elif not (1 <= found.prompt_tok <= MAX_TOK and 0 <= found.output_tok <= MAX_TOK):
            problems.append(f"line {number}: lengths are 1 to {MAX_TOK} tokens")
        else:
            rows.append(found)
        if len(problems) == _MOST_SHOWN:
            problems.append("and perhaps more")
            break
    if not problems and len(rows) < 2:
        problems.append("fewer than two requests")
    if problems:
        raise TraceError("\n".join(problems))
    rows.sort(key=lambda row: row.at_s)
    first_s = rows[0].at_s
    return Trace([Row(row.at_s - first_s, row.prompt_tok, max(1, row.output_tok)) for row in rows])


def _azure(text: str) -> Iterator[tuple[int, Row | str]]:
    reader = csv.reader(io.StringIO(text))
    try:
        if tuple(next(reader)) != _AZURE_HEAD:
            yield 1, f"the columns of an Azure trace are {', '.join(_AZURE_HEAD)}"
            return
        for cells in reader:
            if cells:
                yield reader.line_num, _azure_row(cells)
    except csv.Error as error:
        # What follows cannot be told apart any more.
        yield reader.line_num, f"not CSV: {error}"


def _azure_row(cells: list[str]) -> Row | str:
    try:
        at, prompt_tok, output_tok = cells
        return Row(datetime.fromisoformat(at).timestamp(), int(prompt_tok), int(output_tok))
    except (ValueError, OverflowError):
        return "not a time and two numbers of tokens"


def _mooncake(text: str) -> Iterator[tuple[int, Row | str]]:
    decoder = msgspec.json.Decoder(_Mooncake)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = decoder.decode(line)
        except msgspec.DecodeError as error:
            yield number, f"not a Mooncake request: {error}"
            continue
        yield number, Row(found.timestamp / 1000, found.input_length, found.output_length)


def stretch(
    trace: Trace, *, rate_per_s: float, begin_s: float, end_s: float, skip: float
) -> list[Row]:
    """As much of a trace as fills [`begin_s`, `end_s`), its time stretched to that mean rate.

    Bunches stay bunches. `skip`, 0 to 1, is how far into the trace it begins; it goes round.
    """
    speed = rate_per_s / trace.rate_per_s
    # Going round, the last request is followed by the first after one mean gap.
    round_s = trace.span_s + 1 / trace.rate_per_s
    first = round(skip * len(trace.rows)) % len(trace.rows)
    zero_s = trace.rows[first].at_s
    found: list[Row] = []
    turn, place = 0, first
    while True:
        row = trace.rows[place]
        at_s = begin_s + (row.at_s + turn * round_s - zero_s) / speed
        if at_s >= end_s:
            return found
        found.append(Row(at_s, row.prompt_tok, row.output_tok))
        place += 1
        if place == len(trace.rows):
            turn, place = turn + 1, 0
