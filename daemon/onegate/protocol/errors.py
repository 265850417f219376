"""The closed set of reasons, and what each means to whoever gets one.

A reason is data on the wire. A bug is an exception that ends the session; nothing in between.
`REASONS` is the one table from which HTTP front ends and clients derive status codes, retry
behaviour and exit codes.
"""

from dataclasses import dataclass

from onegate.protocol.enums import OpenEnum


class Reason(OpenEnum):
    """Why a request or a connection did not get what it asked for."""

    CLASS_FULL = "class_full"
    TOKENS_FULL = "tokens_full"
    BYTES_FULL = "bytes_full"
    PEER_QUOTA = "peer_quota"
    WONT_MEET_DEADLINE = "wont_meet_deadline"
    TTFT_DEADLINE_EXCEEDED = "ttft_deadline_exceeded"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    DISPLACED = "displaced"
    PAUSED = "paused"
    WRONG_MODEL = "wrong_model"
    CLASS_NOT_ALLOWED = "class_not_allowed"
    TOO_LARGE = "too_large"
    INVALID = "invalid"
    UNSUPPORTED = "unsupported"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_FAILED = "engine_failed"
    BOUNDARY_REFUSED = "boundary_refused"
    DEGRADED_REFUSED = "degraded_refused"
    SHUTTING_DOWN = "shutting_down"
    CANCELLED = "cancelled"
    SLOW_READER = "slow_reader"
    ENGINE_TIMEOUT = "engine_timeout"
    RELEASED = "released"
    PROTOCOL = "protocol"
    PERMISSION = "permission"


class Phase(OpenEnum):
    """How far a request had come when it ended; `handshake` is before any request."""

    HANDSHAKE = "handshake"
    ARRIVAL = "arrival"
    QUEUED = "queued"
    GRANTED = "granted"
    PREFILL = "prefill"
    DECODE = "decode"


class LimitedBy(OpenEnum):
    """The one limit that keeps the next queued request from starting."""

    SEATS = "seats"
    KV = "kv"
    STEP_TOK = "step_tok"
    IN_FLIGHT = "in_flight"
    FLOOR = "floor"
    ITL = "itl"
    LOADING = "loading"
    CLOSED = "closed"


class NoticeCode(OpenEnum):
    """What can be noteworthy about an answer that was given."""

    ENGINE_RESTARTED = "engine_restarted"
    CAPACITY_CHANGED = "capacity_changed"
    ENGINE_DOWN = "engine_down"
    USAGE_UNWRITTEN = "usage_unwritten"
    CLOSED_UNWRITTEN = "closed_unwritten"
    STATE_DAMAGED = "state_damaged"
    CLASS_LOWERED = "class_lowered"
    ENGINE_QUEUEING = "engine_queueing"
    FOREIGN_LOAD = "foreign_load"
    COLD_LOAD = "cold_load"
    BOUNDARY = "boundary"
    OFFLOAD = "offload"


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """What one reason means.

    `http_status` and `openai_type` are for HTTP dialects. `retryable` is the default of
    `Failed.retryable`: can the same request succeed later? (A poison request's `engine_failed`
    overrides it with no.) `backpressure` reasons mean "not now": front ends answer them with a
    `Retry-After`, the command line with exit code 75.
    """

    http_status: int
    openai_type: str
    retryable: bool
    backpressure: bool = False


_BUSY = ReasonInfo(429, "rate_limit_error", retryable=True, backpressure=True)
_AWAY = ReasonInfo(503, "server_error", retryable=True, backpressure=True)
_LATE = ReasonInfo(504, "timeout_error", retryable=True)
_BAD = ReasonInfo(400, "invalid_request_error", retryable=False)
_DENIED = ReasonInfo(403, "permission_error", retryable=False)

REASONS: dict[Reason, ReasonInfo] = {
    Reason.CLASS_FULL: _BUSY,
    Reason.TOKENS_FULL: _BUSY,
    Reason.BYTES_FULL: _BUSY,
    Reason.PEER_QUOTA: _BUSY,
    Reason.WONT_MEET_DEADLINE: _BUSY,
    Reason.DISPLACED: _BUSY,
    Reason.TTFT_DEADLINE_EXCEEDED: _LATE,
    Reason.DEADLINE_EXCEEDED: _LATE,
    Reason.PAUSED: _AWAY,
    Reason.RELEASED: _AWAY,
    Reason.SHUTTING_DOWN: _AWAY,
    Reason.ENGINE_UNAVAILABLE: _AWAY,
    Reason.ENGINE_FAILED: ReasonInfo(502, "server_error", retryable=True),
    Reason.ENGINE_TIMEOUT: ReasonInfo(504, "server_error", retryable=True),
    Reason.WRONG_MODEL: ReasonInfo(404, "not_found_error", retryable=False),
    Reason.TOO_LARGE: _BAD,
    Reason.INVALID: _BAD,
    Reason.UNSUPPORTED: ReasonInfo(501, "invalid_request_error", retryable=False),
    Reason.PROTOCOL: _BAD,
    Reason.CLASS_NOT_ALLOWED: _DENIED,
    Reason.PERMISSION: _DENIED,
    Reason.BOUNDARY_REFUSED: _DENIED,
    Reason.DEGRADED_REFUSED: ReasonInfo(503, "server_error", retryable=True),
    Reason.CANCELLED: ReasonInfo(499, "cancelled", retryable=True),
    Reason.SLOW_READER: ReasonInfo(499, "cancelled", retryable=True),
}

# What a client makes of a reason that a newer daemon has and it has not; `Failed.retryable` knows.
UNKNOWN_REASON = ReasonInfo(500, "server_error", retryable=False)


def reason_info(reason: Reason) -> ReasonInfo:
    """What `reason` means; never fails, also for one that this version does not know."""
    return REASONS.get(reason, UNKNOWN_REASON)


class WireError(Exception):
    """Base of what framing and the connection raise; nothing else escapes them."""


class RemoteProtocolError(WireError):
    """The peer broke the protocol. The connection is over; the text names the offence."""


class LocalProtocolError(WireError):
    """We broke the protocol: a bug on this side."""


class FrameTooLarge(LocalProtocolError):
    """A message is longer than the peer takes. Nothing was sent; the connection goes on."""
