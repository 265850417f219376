"""The three standard streams, usable whatever the caller closed or set the locale to."""

import io
import os
import sys
from typing import TextIO


class OutputError(Exception):
    """Standard output takes nothing more: the reader went away, the disk is full, it is closed."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"cannot write: {cause.strerror or cause}")
        self.reader_left = isinstance(cause, BrokenPipeError)


class Output(io.TextIOWrapper):
    """Standard output, whose failures are told from every other OSError.

    A reader that went away is an OutputError too: the library that prints tables and help would
    answer a BrokenPipeError itself, by an exit with a code of its own.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputError(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputError(error) from error


def prepare() -> None:
    """Open what is closed, and take any bytes.

    A closed input is empty; closed errors go nowhere; a closed output cannot be written to, so
    that it is a failure only of a verb that has something to say.
    """
    # In this order: the lowest number that is free is the one that is missing.
    stdin: io.TextIOWrapper | None = sys.stdin  # type: ignore[assignment]
    binary = stdin.detach() if stdin is not None else open(_null(os.O_RDONLY), "rb")
    # Bytes that are not UTF-8 arrive as lone surrogates, as they do in arguments.
    sys.stdin = io.TextIOWrapper(binary, encoding="utf-8", errors="surrogateescape")
    # A locale without UTF-8 shows question marks instead of ending in an exception.
    stdout: io.TextIOWrapper | None = sys.stdout  # type: ignore[assignment]
    if stdout is not None:
        encoding, lines = stdout.encoding, stdout.line_buffering
        raw = stdout.detach()
        sys.stdout = Output(raw, encoding=encoding, errors="replace", line_buffering=lines)
    else:
        unwritable = open(_null(os.O_RDONLY), "wb")
        sys.stdout = Output(unwritable, encoding="utf-8", errors="replace")
    stderr: io.TextIOWrapper | None = sys.stderr  # type: ignore[assignment]
    if stderr is not None:
        stderr.reconfigure(errors="replace")
    else:
        sys.stderr = open(_null(os.O_WRONLY), "w", encoding="utf-8", errors="replace")


def silence(stream: TextIO) -> None:
    """Forget what `stream` could not take: it must not fail once more at the exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def not_utf8(text: str) -> bool:
    """Whether bytes of a stream or an argument were no UTF-8."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _null(flags: int) -> int:
    number = os.open(os.devnull, flags)
    os.set_inheritable(number, True)  # what is started from here inherits a usable stream
    return number
