"""Files that a person names: regular ones, and no more of them than can be held."""

import os
import stat


class Unreadable(Exception):
    """Why a file cannot be used, as the end of a sentence that begins with its name."""


def read_regular(path: str, most_bytes: int) -> bytes:
    """All of a file. Raises Unreadable.

    What is read twice, or may never end, is no file: pipes and devices are refused unread.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable("is no regular file: write what it has to one first")
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Unreadable("cannot be read: its path holds a zero byte") from error
    if len(data) > most_bytes:
        raise Unreadable(f"is longer than {most_bytes} bytes")
    return data


def _at_once(path: str, flags: int) -> int:
    """A pipe that nobody writes to would wait for ever where it is opened."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_text(path: str, most_bytes: int) -> str:
    """The same as text, without a byte order mark. Raises Unreadable."""
    try:
        return read_regular(path, most_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable("is not UTF-8") from error
