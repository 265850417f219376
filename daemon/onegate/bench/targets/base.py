"""The one interface between the driver and whatever answers."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct


class Ask(Struct, frozen=True, kw_only=True):
    """One attempt of one request. `client` numbers the caller within the generator.

    With `follow` the watch has to hear of the start; else the target may leave it out, which spares
    it the messages about waiting. With `own_connection` the attempt has one to itself, closed when
    it is over or given up; elsewhere giving up cancels the request and the client's connection
    stays.
    """

    text: str
    output_tok: int
    client: int
    class_: str | None = None
    ttft_timeout_ms: int | None = None
    timeout_ms: int | None = None
    ticket: str | None = None
    follow: bool = False
    own_connection: bool = False


class Usage(Struct, frozen=True):
    """Tokens as the target counted them, and how long it says to have let wait; None: not said."""

    prompt_tok: int | None = None
    output_tok: int | None = None
    queue_ms: float | None = None


class Facts(Struct, frozen=True, kw_only=True):
    """What a target says of itself."""

    model: str
    engine: str = ""
    context_tok: int | None = None
    seats: int | None = None


class Watch(Protocol):
    """Hears of one attempt as it goes on."""

    def started(self, queue_ms: float | None) -> None:
        """It has its permit or seat."""

    def piece(self, n_tok: int, *, visible: bool) -> None:
        """Output came; `visible` where there is text or the like in it."""


class TargetError(Exception):
    """The target cannot be measured at all; one sentence that says what to do."""


class Refused(Exception):
    """No, before it started. `retry_after_ms` and `ticket` where the target gives them."""

    def __init__(
        self, reason: str, *, retry_after_ms: float | None = None, ticket: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_ms = retry_after_ms
        self.ticket = ticket


class Expired(Exception):
    """A deadline ran out; the text is the reason."""


class Broke(Exception):
    """It failed; the text is the reason."""


class Target(Protocol):
    """Something that answers prompts. All its methods run on one event loop."""

    async def open(self) -> Facts:
        """Connect and wait until it can answer. Raises TargetError."""

    async def count(self, text: str) -> int:
        """Tokens of the prompt that `text` makes. Raises TargetError."""

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        """One attempt. Raises Refused, Expired, Broke. Being cancelled gives the request up."""

    async def aclose(self) -> None:
        """Leave nothing behind; safe to call twice."""


Log = Callable[[str], None]
