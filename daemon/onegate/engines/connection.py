"""What a daemon needs of an engine host's connection, whoever started the host."""

import socket
from typing import Protocol


class Connection(Protocol):
    """A connected host. `is_ours`: it was started here, and ends with the connection.

    `hello_s`: how long it may take to introduce itself.
    """

    sock: socket.socket

    @property
    def is_ours(self) -> bool: ...

    @property
    def hello_s(self) -> float: ...

    @property
    def last_line(self) -> str:
        """What it wrote last to its standard error, empty for nothing or where it is not ours."""

    async def follow_output(self) -> None:
        """Begin to read what it writes."""

    def exit_text(self) -> str | None:
        """How it ended, None while it runs or where that is not for us to know."""

    async def exited(self, timeout_s: float) -> bool:
        """Wait for its end, at most so long; returns whether it ended."""

    def kill(self) -> None:
        """End it at once, if it is ours."""

    async def gone(self) -> None:
        """Wait until nothing of it is left, if it is ours."""
