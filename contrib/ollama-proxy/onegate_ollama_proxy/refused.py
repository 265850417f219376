"""The refusals that this proxy makes by itself, without the gate."""

from onegate.protocol.errors import Reason, reason_info
from onegate_ollama_proxy.answer import No
from onegate_ollama_proxy.bound import Full
from onegate_ollama_proxy.upstream import UpstreamDown, UpstreamError, UpstreamStuck

# There is room again when any of a few dozen small transfers ends.
_BUSY_RETRY_MS = 2000


class Refused(Exception):
    """A request that is not answered, before anything of an answer has been said."""

    def __init__(self, no: No) -> None:
        super().__init__(no.sentence)
        self.no = no


def no(reason: Reason, sentence: str, *, path: str | None = None) -> No:
    """A `No` with the status that all front ends give to `reason`."""
    info = reason_info(reason)
    return No(
        reason=reason,
        status=info.http_status,
        sentence=sentence,
        retryable=info.retryable,
        path=path,
    )


def no_of_upstream(error: UpstreamError) -> No:
    """What an Ollama that does not do its part means for whoever asked."""
    match error:
        case UpstreamDown():
            return no(Reason.ENGINE_UNAVAILABLE, str(error))
        case UpstreamStuck():
            return no(Reason.ENGINE_TIMEOUT, str(error))
        case _:
            return no(Reason.ENGINE_FAILED, str(error))


def no_of_full(error: Full) -> No:
    """Too much of one kind at a time."""
    return No(
        reason=Reason.PEER_QUOTA,
        status=429,
        sentence=f"{error}: try again when one of them has ended",
        retryable=True,
        retry_after_ms=_BUSY_RETRY_MS,
    )
