"""The one interface between the driver and whatever answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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


class _Hearing:
    """A watch that also ends the wait for the first output."""

    def __init__(self, watch: Watch, wait: asyncio.Timeout) -> None:
        self._watch = watch
        self._wait = wait

    def started(self, queue_ms: float | None) -> None:
        self._watch.started(queue_ms)

    def piece(self, n_tok: int, *, visible: bool) -> None:
        if not self._wait.expired():
            self._wait.reschedule(None)
        self._watch.piece(n_tok, visible=visible)


@asynccontextmanager
async def in_time(ask: Ask, watch: Watch) -> AsyncIterator[Watch]:
    """Keeps to the request's deadlines where the target does not itself; watch by what it gives.

    Raises Expired with the daemon's words for it.
    """
    whole = asyncio.timeout(_seconds(ask.timeout_ms))
    first = asyncio.timeout(_seconds(ask.ttft_timeout_ms))
    try:
        async with whole, first:
            yield _Hearing(watch, first)
    except TimeoutError as error:
        if first.expired():
            raise Expired("ttft_deadline_exceeded") from error
        if whole.expired():
            raise Expired("deadline_exceeded") from error
        raise


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def check_named(target: str, wanted: str | None, names: list[str], *, ready: bool) -> None:
    """Raises TargetError where one of a target's models is ready and none is the wanted one."""
    if ready and wanted is not None and wanted not in names:
        raise TargetError(f"{target} has no model {wanted}; it has {', '.join(names)}")
