"""From what a client of the gate raises to a `No`: the sentence that a person is shown."""

import math

from onegate.client.errors import OnegateError, ProtocolError, RequestError, Unavailable
from onegate.protocol.errors import Reason, reason_info
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.refused import Refused, no

# A daemon that is being started anew is back within that; nobody has measured anything then.
_AWAY_RETRY_MS = 2000


def no_of(error: OnegateError | BadAsk | Refused, class_: str | None = None) -> No:
    """Why there is no answer, in words for whoever sits at the client. `class_`: the one in which
    it was asked."""
    match error:
        case Refused():
            return error.no
        case BadAsk():
            return no(error.reason, error.sentence, path=error.path)
        case RequestError():
            return _refused(error, class_)
        case Unavailable():
            return No(
                reason=Reason.ENGINE_UNAVAILABLE,
                status=503,
                sentence=f"onegate is not there: {error}",
                retryable=True,
                retry_after_ms=_AWAY_RETRY_MS,
            )
        case ProtocolError():
            return no(Reason.ENGINE_FAILED, f"onegate and its Ollama proxy do not fit: {error}")
    return no(Reason.ENGINE_FAILED, str(error))


def _refused(error: RequestError, class_: str | None) -> No:
    info = reason_info(error.reason)
    retry_ms = None if error.retry_after is None else round(error.retry_after * 1000)
    sentence = error.message
    if info.backpressure:
        where = "" if class_ is None else f" for class {class_}"
        sentence = f"not now{where} ({error.reason}): {error.message}"
        if retry_ms is not None:
            sentence += f"; come back in {whole_seconds(retry_ms)} s"
    return No(
        reason=error.reason,
        status=info.http_status,
        sentence=sentence,
        retryable=error.retryable,
        retry_after_ms=retry_ms,
        path=error.path,
    )


def whole_seconds(milliseconds: int) -> int:
    """Rounded up, and at least one: to come back a moment early is to be refused again."""
    return max(1, math.ceil(milliseconds / 1000))


def retry_headers(no: No) -> dict[str, str]:
    """What tells a client when to come back, or that it need not."""
    if no.retry_after_ms is not None:
        return {
            "Retry-After": str(whole_seconds(no.retry_after_ms)),
            "retry-after-ms": str(no.retry_after_ms),
        }
    # OpenAI's clients try most errors again by themselves; they ask this header first.
    return {} if no.retryable else {"x-should-retry": "false"}
