"""What Ollama's errors mean."""

import re

from onegate.engines.base import (
    EngineBroke,
    EngineError,
    EngineMalformed,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
)
from onegate.engines.http.documents import document, short
from onegate.engines.ollama.shapes import ErrorAnswer

_NUMBERS = re.compile(r"\((\d{1,9}) tokens\).{0,40}context size \((\d{1,9}) tokens\)")
_MISSING = re.compile(r"""model ['"]([^'"]{1,300})['"] not found""")


def context_exceeded(text: str) -> EngineError | None:
    """The error for a prompt that does not fit, with both numbers where they are said; None for
    a text that says something else."""
    if (found := _NUMBERS.search(text)) is not None:
        return EngineTooLarge(need_tok=int(found[1]) + 1, limit_tok=int(found[2]))
    if "context length" in text and "exceed" in text:
        return EngineRefused(f"the prompt does not fit: {short(text)}", path="messages")
    return None


def refusal(status: int, body: bytes) -> EngineError:
    """An answer that is not 200. What is nobody's fault and may pass is EngineUnavailable."""
    text = _text(body)
    if (too_large := context_exceeded(text)) is not None:
        return too_large
    said = short(text) or "nothing more"
    match status:
        case 404 if (missing := _MISSING.search(text)) is not None:
            name = short(missing[1])
            return EngineUnavailable(f"Ollama has no model {name}: type ollama pull {name}")
        case 404:
            return EngineMalformed(f"this is no Ollama, or another path leads to it: {said}")
        case 400:
            return EngineRefused(said, unsupported="does not support" in text)
        case 413:
            return EngineRefused(f"the request is too long for Ollama: {said}")
        case 401 | 403:
            return EngineUnavailable(f"Ollama refuses: {said}")
        case 429 | 503:
            return EngineUnavailable(f"Ollama is busy: {said}")
        case 500 if "requires more system memory" in text or "out of memory" in text:
            return EngineUnavailable(f"Ollama cannot load the model: {said}")
        case _:
            return EngineBroke(f"Ollama answered {status}: {said}")


def _text(body: bytes) -> str:
    try:
        return document(body, ErrorAnswer).error
    except EngineMalformed:
        return short(body)  # a proxy's page, or the web framework's plain text
