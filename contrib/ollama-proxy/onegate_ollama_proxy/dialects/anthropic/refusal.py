"""How `/v1/messages` says no."""

import msgspec

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.answer import No, Refusal

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error(no: No) -> bytes:
    """The document."""
    kind = _TYPES.get(_status(no), "api_error")
    return msgspec.json.encode(
        {"type": "error", "error": {"type": kind, "message": no.sentence}, "request_id": None}
    )


def refusal(no: No) -> Refusal:
    """An answer that has not begun."""
    return Refusal(_status(no), error(no))


def event(no: No) -> bytes:
    """The end of a stream that has."""
    return b"event: error\ndata: " + error(no) + b"\n\n"


def _status(no: No) -> int:
    """This API has no 501: what it cannot do is a bad request."""
    return 400 if no.reason is Reason.UNSUPPORTED else no.status
