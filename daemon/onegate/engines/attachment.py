"""A connection to an engine host that the service manager runs: never signalled, only left."""

import socket

from onegate.engines.stall import LOADING_SILENCE_S


class Attachment:
    """Connected to the host at `path`, without waiting. Raises OSError from `Attachment(...)`.

    See `connection.Connection`. What the host writes is in its own journal, and its end is the
    service manager's to see; a connection that ends is all that is known here.
    """

    is_ours = False
    # It may be in the middle of a load, or serve another daemon, which is not over sooner.
    hello_s = LOADING_SILENCE_S
    last_line = ""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A backlog that is full would keep a blocking connect waiting.
        self.sock.setblocking(False)
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise

    async def follow_output(self) -> None:
        """There is none to follow."""

    def exit_text(self) -> str | None:
        """Nobody knows here."""
        return None

    async def exited(self, timeout_s: float) -> bool:
        """Nobody knows here."""
        return False

    def kill(self) -> None:
        """It is not ours to end."""

    async def gone(self) -> None:
        """Nothing of it is ours."""
