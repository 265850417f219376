"""How a request ended: one outcome for metrics and logs, one reason for the client.

The two are separate axes: an outcome is a label of few values, a reason is what the client reads.
"""

from dataclasses import dataclass
from enum import StrEnum

from onegate.protocol.errors import REASONS, LimitedBy, Reason


class Outcome(StrEnum):
    """Every request ends as exactly one of these."""

    FINISHED = "finished"
    REJECTED = "rejected"
    EXPIRED = "expired"
    DISPLACED = "displaced"
    CANCELLED = "cancelled"
    DISCONNECTED = "disconnected"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a request ends other than by finishing, with all that its `Failed` will say."""

    outcome: Outcome
    reason: Reason
    message: str
    retryable: bool | None = None
    retry_after_ms: int | None = None
    ticket: str | None = None
    limit: int | None = None
    used: int | None = None
    limited_by: LimitedBy | None = None
    path: str | None = None
    models: tuple[str, ...] | None = None

    @property
    def can_retry(self) -> bool:
        """`retryable` of the wire: the reason's default unless this ending says otherwise."""
        return REASONS[self.reason].retryable if self.retryable is None else self.retryable


class RequestEnded(Exception):
    """A request ends here; carries the `Ending`. Raised inside a request's own task only."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message)
        self.ending = ending


DISCONNECTED = Ending(Outcome.DISCONNECTED, Reason.CANCELLED, "the client closed its connection")
CANCELLED = Ending(Outcome.CANCELLED, Reason.CANCELLED, "cancelled by the client")
CANCELLED_BY_ADMIN = Ending(Outcome.CANCELLED, Reason.CANCELLED, "cancelled by an administrator")
SLOW_READER = Ending(
    Outcome.ABORTED,
    Reason.SLOW_READER,
    "the client reads too slowly and its buffer is full: read faster or ask for fewer streams",
)
DRAINED = Ending(
    Outcome.ABORTED, Reason.SHUTTING_DOWN, "the daemon is shutting down and could not wait longer"
)
