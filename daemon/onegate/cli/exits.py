"""Exit codes after sysexits.h, and for each error one sentence that says what to do."""

from enum import IntEnum

from onegate.client.errors import (
    Failed,
    NotPermitted,
    OnegateError,
    ProtocolError,
    RequestError,
    Unavailable,
)
from onegate.protocol.errors import REASONS, Reason


class Exit(IntEnum):
    """What a verb can end with. 64 to 78 are those of sysexits.h."""

    DONE = 0
    TOO_NOISY = 3  # `bench` only: the figures mean nothing
    USAGE = 64
    BAD_DATA = 65
    UNAVAILABLE = 69
    BUG = 70
    UNWRITTEN = 74  # EX_IOERR
    REFUSED = 75
    NOT_PERMITTED = 77
    BAD_CONFIG = 78
    INTERRUPTED = 130  # 128 + SIGINT
    PIPE_CLOSED = 141  # 128 + SIGPIPE: what a shell shows for any tool whose reader went away


class UsageError(Exception):
    """The arguments make no sense together; the text says what would. Ends with exit code 64."""


# Reasons whose code their class does not say: the engine is to blame, not the load.
_ENGINE = {Reason.ENGINE_UNAVAILABLE, Reason.ENGINE_FAILED, Reason.ENGINE_TIMEOUT}


def exit_of_reason(reason: Reason) -> Exit:
    """The code for a refusal or a failure with this reason."""
    if reason in _ENGINE:
        return Exit.UNAVAILABLE
    if reason == Reason.PROTOCOL:
        return Exit.BUG
    info = REASONS.get(reason)
    if info is None or info.retryable:
        return Exit.REFUSED
    return Exit.NOT_PERMITTED if info.http_status == 403 else Exit.BAD_DATA


def exit_of(error: OnegateError) -> Exit:
    """The code for an error of the client."""
    match error:
        case RequestError():
            return exit_of_reason(error.reason)
        case ProtocolError():
            return Exit.BUG
        case _:
            return Exit.UNAVAILABLE


def sentence(error: OnegateError) -> str:
    """What went wrong and what to do about it, as one sentence."""
    what = str(error).rstrip(". ")
    advice = _advice(error)
    return f"{what}; {advice}" if advice else what


def _advice(error: OnegateError) -> str:
    match error:
        case Unavailable():
            return "`onegated` starts a daemon, --socket or ONEGATE_SOCKET says where it listens"
        case ProtocolError():
            return "this is a bug: are the daemon and this command of the same version?"
        case NotPermitted():
            return "`onegate whoami` shows what you may do, and why"
        case RequestError(retry_after=float() as seconds, ticket=str()):
            wait = "with `onegate ask --wait` a place is kept until then"
            return f"try again in {seconds:.1f} s; {wait}"
        case RequestError(retry_after=float() as seconds):
            return f"try again in {seconds:.1f} s"
        case Failed(retryable=True):
            return "what was printed is at most a beginning, and asking again may help"
        case RequestError(reason=Reason.ENGINE_UNAVAILABLE):
            return "`onegate status` says why; try again later"
        case RequestError(retryable=True):
            return "try again later"
        case _:
            return ""


def error_document(error: OnegateError) -> dict[str, object]:
    """The same for `--json`: times in seconds, what is not known is null."""
    if not isinstance(error, RequestError):
        return {"error": {"reason": None, "message": str(error)}}
    return {
        "error": {
            "reason": error.reason,
            "message": error.message,
            "started": isinstance(error, Failed),
            "phase": error.phase,
            "retryable": error.retryable,
            "retry_after_s": error.retry_after,
            "ticket": error.ticket,
            "limit": error.limit,
            "used": error.used,
            "limited_by": error.limited_by,
            "path": error.path,
            "models": error.models,
            "rid": error.rid,
        }
    }
