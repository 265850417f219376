"""How these routes say no: an object with a type and a code."""

import msgspec

from onegate.protocol.errors import Reason, reason_info
from onegate_ollama_proxy.answer import No, Refusal

# Where the API has a code of its own, programs look for it.
_CODES = {
    Reason.TOO_LARGE: "context_length_exceeded",
    Reason.WRONG_MODEL: "model_not_found",
    Reason.UNSUPPORTED: "unsupported_parameter",
}


def error(no: No) -> bytes:
    """The document."""
    return msgspec.json.encode(
        {
            "error": {
                "message": no.sentence,
                "type": reason_info(no.reason).openai_type,
                "param": no.path,
                "code": _CODES.get(no.reason, str(no.reason)),
            }
        }
    )


def refusal(no: No) -> Refusal:
    """An answer that has not begun. The API has no 501: libraries take all from 500 on for a server
    that is broken, and what it cannot do is a bad request."""
    return Refusal(400 if no.reason is Reason.UNSUPPORTED else no.status, error(no))


def event(no: No) -> bytes:
    """The end of a stream that has; clients raise for it, and no `[DONE]` follows."""
    return b"data: " + error(no) + b"\n\n"
