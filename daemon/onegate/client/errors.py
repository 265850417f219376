"""Everything a client raises. Times are seconds here; the wire has milliseconds.

OnegateError
├── Unavailable        no daemon there, the connection broke, or no answer came in time
├── ProtocolError      one side broke the protocol: a bug, not a condition
└── RequestError       the daemon answered, and the answer is no
    ├── Rejected       refused before it started; nothing was generated
    │   ├── WrongModel       the daemon has no such model; `models` are those there are
    │   ├── InvalidRequest   a field is wrong (`path`), or the request is too large
    │   ├── Unsupported      this daemon or its engine cannot do that
    │   └── NotPermitted     not for this peer
    └── Failed         ended after it had started; part of the answer may have arrived
"""

from onegate.protocol import messages as m
from onegate.protocol.errors import LimitedBy, Phase, Reason


class OnegateError(Exception):
    """Base of all errors of this package's clients."""


class Unavailable(OnegateError):
    """There is no daemon, the connection broke, or no answer came in time."""


class ProtocolError(OnegateError):
    """The daemon did not understand this library, or the other way round."""


class RequestError(OnegateError):
    """The daemon said no, with a reason from the closed set.

    `retry_after` is in seconds, None where the daemon could not compute one; `ticket` is the
    promise that goes with it. `limit` and `used` are in the unit of the reason: tokens for
    `tokens_full` and `too_large`, requests for `class_full` and `peer_quota`, bytes for
    `bytes_full`. `path` names the offending field.
    """

    def __init__(self, answer: m.Failed) -> None:
        super().__init__(answer.message)
        self.reason: Reason = answer.reason
        self.message: str = answer.message
        self.phase: Phase = answer.phase
        self.retryable: bool = answer.retryable
        self.retry_after: float | None = (
            None if answer.retry_after_ms is None else answer.retry_after_ms / 1000
        )
        self.ticket: str | None = answer.ticket
        self.limit: int | None = answer.limit
        self.used: int | None = answer.used
        self.limited_by: LimitedBy | None = answer.limited_by
        self.confidence: float | None = answer.confidence
        self.path: str | None = answer.path
        self.models: list[str] = list(answer.models or ())
        self.rid: str | None = answer.rid

    def __str__(self) -> str:
        where = f" (at {self.path})" if self.path and self.path not in self.message else ""
        return f"{self.reason}: {self.message}{where}"


class Rejected(RequestError):
    """Refused before it started: nothing was generated, and asking again costs nothing."""


class WrongModel(Rejected):
    """The daemon has no such model. `models` names those there are."""


class InvalidRequest(Rejected):
    """A field is wrong, `path` says which; or the request is too large for limit `limit`."""


class Unsupported(Rejected):
    """This daemon or its engine cannot do that."""


class NotPermitted(Rejected):
    """This peer may not do that, or may not use that class."""


class Failed(RequestError):
    """Ended after it had started. What was streamed until then was the beginning of the answer."""


_REFUSALS: dict[Reason, type[Rejected]] = {
    Reason.WRONG_MODEL: WrongModel,
    Reason.INVALID: InvalidRequest,
    Reason.TOO_LARGE: InvalidRequest,
    Reason.UNSUPPORTED: Unsupported,
    Reason.PERMISSION: NotPermitted,
    Reason.CLASS_NOT_ALLOWED: NotPermitted,
    Reason.BOUNDARY_REFUSED: NotPermitted,
}


def error_of(answer: m.Failed, *, started: bool) -> OnegateError:
    """The exception for `answer`. `started`: the daemon had said that the request runs."""
    if answer.reason is Reason.PROTOCOL:
        return ProtocolError(answer.message)
    if started:
        return Failed(answer)
    return _REFUSALS.get(answer.reason, Rejected)(answer)


def invalid(message: str, path: str | None = None) -> InvalidRequest:
    """The error for what this library can see to be wrong without asking the daemon."""
    return InvalidRequest(
        m.Failed(
            reason=Reason.INVALID,
            message=message,
            retryable=False,
            phase=Phase.ARRIVAL,
            path=path,
        )
    )
