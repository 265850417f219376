"""What a server's errors mean, whether they come as a status or inside a stream."""

import re

from onegate.engines.base import (
    EngineBroke,
    EngineError,
    EngineMalformed,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
)
from onegate.engines.http.dialect import Overlong
from onegate.engines.http.documents import document, short
from onegate.engines.openai.shapes import ErrorAnswer, ErrorBody

_BUSY = (429, 503)
_MAX_TOK = 1_000_000_000
# vLLM's sentence, which holds the numbers that its fields do not.
_CONTEXT = re.compile(r"maximum context length (?:is|of) (\d{1,9}) tokens")
_ASKED = re.compile(r"(?:requested|has|contains at least|contains) (\d{1,9}) (?:\w+ )?tokens")
_PROMPT = re.compile(r"(?:has|contains at least|contains) (\d{1,9}) input tokens")


def refusal_of(status: int, body: bytes, retry_after_ms: float | None) -> EngineError:
    """An answer other than 200. The request is not in the server any more."""
    if status in (401, 403):
        return EngineUnavailable(
            f"the server does not let this daemon in ({status}): correct api_key_file"
        )
    said = _said(body)
    if status in _BUSY:
        return EngineUnavailable(
            f"the engine is busy ({status}): {_text(said)}", retry_after_ms=retry_after_ms
        )
    if (large := _too_large(said)) is not None:
        return large
    if status == 404:
        return EngineRefused(f"the engine does not know it: {_text(said)}", path="model")
    if status == 501:
        return EngineRefused(f"the engine cannot: {_text(said)}", unsupported=True)
    if 400 <= status < 500:
        return EngineRefused(f"the engine refuses: {_text(said)}", path=_path(said.param))
    return EngineBroke(f"the engine failed ({status}): {_text(said)}")


def error_of(error: ErrorBody | str, *, began: bool) -> EngineError:
    """An error inside a stream. Before the first piece of an answer it is a refusal: a burst of
    requests makes vLLM say 200 first and that it is full afterwards."""
    said = error if isinstance(error, ErrorBody) else ErrorBody(message=error)
    if began:
        return EngineBroke(f"the engine failed in mid-answer: {_text(said)}")
    number = str(said.code)
    code = int(number) if number.isascii() and number.isdigit() and len(number) == 3 else 0
    if code in _BUSY or said.type in ("unavailable_error", "Service Unavailable"):
        return EngineUnavailable(f"the engine is busy: {_text(said)}")
    if (large := _too_large(said)) is not None:
        return large
    if 400 <= code < 500:
        return EngineRefused(f"the engine refuses: {_text(said)}", path=_path(said.param))
    return EngineBroke(f"the engine failed: {_text(said)}")


def _said(body: bytes) -> ErrorBody:
    try:
        answer = document(body, ErrorAnswer)
    except EngineMalformed:
        # A proxy's page, or a word: quoted as it is.
        return ErrorBody(message=short(body))
    if isinstance(answer.error, ErrorBody):
        return answer.error
    detail = answer.detail
    text = answer.error or answer.message or (detail if isinstance(detail, str) else None)
    return ErrorBody(message=text or short(body))


def _too_large(said: ErrorBody) -> EngineTooLarge | None:
    if said.n_prompt_tokens is not None and said.n_ctx is not None:
        return EngineTooLarge(
            need_tok=max(said.n_prompt_tokens, said.n_ctx + 1), limit_tok=said.n_ctx
        )
    if (limit := _CONTEXT.search(said.message or "")) is None:
        return None
    limit_tok = int(limit[1])
    asked = [int(found) for found in _ASKED.findall(said.message or "")]
    need_tok = min(max([*asked, limit_tok + 1]), _MAX_TOK)
    if (prompt := _PROMPT.search(said.message or "")) is not None:
        return Overlong(need_tok=need_tok, limit_tok=limit_tok, prompt_tok=int(prompt[1]))
    return EngineTooLarge(need_tok=need_tok, limit_tok=limit_tok)


def _text(said: ErrorBody) -> str:
    return short(said.message or said.type or "") or "it does not say why"


def _path(param: str | None) -> str | None:
    return f"params.{param}" if param and param.isidentifier() and len(param) < 64 else None
