"""What clients have not read yet, of all connections together.

One connection may leave a few megabytes unread. Without a bound on their sum, the number of
connections would decide how much memory the daemon takes.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

# Less than this is what any busy connection has for a moment, and is not looked at.
NOTED_BYTES = 16 * 1024


class Reader(Protocol):
    """A connection that is written to."""

    @property
    def principal(self) -> str:
        """Whom its bytes are counted for."""

    @property
    def unread_bytes(self) -> int:
        """What waits in its buffer now."""

    def give_up(self) -> None:
        """End it at once, and let go of what it has not read."""


class Unread:
    """The bytes that wait for readers, by reader, under a bound for each principal and one in all.

    Above a bound the connection with the most goes, not the one that was written to last: a user's
    program that reads is not cut for one that does not.
    """

    def __init__(self, limits_bytes: Callable[[], tuple[int, int]]) -> None:
        """`limits_bytes()` are the bound in all and that for each principal."""
        self._limits_bytes = limits_bytes
        self._noted: dict[Reader, tuple[str, int]] = {}
        self._by_principal: Counter[str] = Counter()
        self.total_bytes = 0

    def grew(self, reader: Reader) -> None:
        """This reader has been written to; gives up whoever is too much."""
        self._note(reader)
        while (crowd := self._too_much(reader.principal)) is not None:
            self._look_again()
            if self._too_much(reader.principal) is None:
                return
            most = max(crowd, key=lambda each: self._noted.get(each, ("", 0))[1])
            self.forget(most)
            most.give_up()

    def forget(self, reader: Reader) -> None:
        """The connection is over."""
        principal, n_bytes = self._noted.pop(reader, ("", 0))
        self.total_bytes -= n_bytes
        self._by_principal[principal] -= n_bytes
        if not self._by_principal[principal]:
            del self._by_principal[principal]

    def _too_much(self, principal: str) -> list[Reader] | None:
        """Those of whom one has to go; None where everything is within its bound."""
        in_all_bytes, each_bytes = self._limits_bytes()
        if self._by_principal[principal] > each_bytes:
            return [each for each, (whose, _) in self._noted.items() if whose == principal]
        return list(self._noted) if self.total_bytes > in_all_bytes else None

    def _look_again(self) -> None:
        """Nobody says when a buffer has emptied, so the figures may be too high."""
        for reader in tuple(self._noted):
            self._note(reader)

    def _note(self, reader: Reader) -> None:
        self.forget(reader)
        n_bytes = reader.unread_bytes
        if n_bytes >= NOTED_BYTES:
            principal = reader.principal
            self._noted[reader] = (principal, n_bytes)
            self.total_bytes += n_bytes
            self._by_principal[principal] += n_bytes
