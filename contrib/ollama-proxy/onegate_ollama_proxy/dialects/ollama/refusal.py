"""How Ollama's API says no: one line of JSON with a text in it, which every client shows."""

import msgspec

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.answer import No, Refusal

# What clients look for in the text, by the field that is at fault.
_KNOWN_WORDS = {
    "tools": "does not support tools",
    "think": "does not support thinking",
    "suffix": "does not support insert",
}


def error_line(no: No) -> bytes:
    """The end of a stream or document that did not finish."""
    return msgspec.json.encode({"error": _sentence(no)}) + b"\n"


def refusal(no: No) -> Refusal:
    """An answer that has not begun. Ollama has no 501: what it cannot do is a bad request."""
    status = 400 if no.reason is Reason.UNSUPPORTED else no.status
    return Refusal(status, error_line(no).rstrip(b"\n"))


def _sentence(no: No) -> str:
    words = _KNOWN_WORDS.get(no.path or "") if no.reason is Reason.UNSUPPORTED else None
    return no.sentence if words is None else f"the model {words}: {no.sentence}"
