"""Refusals in words and numbers, with a hint where there is one to give."""

from dataclasses import replace

from onegate.admission.book import Book
from onegate.admission.deadlines import Kind
from onegate.admission.hints import drain_hint_ns, retry_after_ns
from onegate.admission.lifecycle import State
from onegate.admission.model import Refusal, Refused, RequestSpec
from onegate.admission.queue import Backpressure
from onegate.admission.records import Record


def overdue(spec: RequestSpec, now_ns: int) -> Refusal | None:
    """The refusal of a request whose time is over as it arrives."""
    if spec.deadline_ns is not None and spec.deadline_ns <= now_ns:
        return Refusal(Refused.DEADLINE_EXCEEDED, "the deadline had passed on arrival")
    if spec.ttft_deadline_ns is not None and spec.ttft_deadline_ns <= now_ns:
        return Refusal(Refused.TTFT_DEADLINE_EXCEEDED, "the ttft deadline had passed on arrival")
    return None


def at_door(
    book: Book,
    class_: str,
    pool: str,
    prompt_tok: int,
    max_tok: int,
    *,
    place: int,
    now_ns: int,
) -> Refusal | None:
    """What refuses a newcomer whatever waits; `place` spreads those who meet a shutdown."""
    refusal = book.door(class_, pool, prompt_tok, max_tok)
    if refusal is None:
        return None
    if refusal.reason is Refused.SHUTTING_DOWN:
        return replace(refusal, retry_after_ns=drain_hint_ns(place))
    if refusal.reason is Refused.PAUSED:
        opens_ns = book.closed[class_]
        if opens_ns is not None:
            return replace(refusal, retry_after_ns=max(0, opens_ns - now_ns))
    if refusal.reason is Refused.RELEASED:
        back_ns = book.pools[pool].spec.released_until_ns
        if back_ns is not None:
            return replace(refusal, retry_after_ns=max(0, back_ns - now_ns))
    return refusal


def for_room(
    book: Book,
    class_: str,
    pool: str,
    full: Backpressure,
    tok: int,
    now_ns: int,
    *,
    commit: bool = True,
) -> Refusal:
    """The refusal of a newcomer of `tok` tokens that could wait nowhere.

    With `commit` the class's drain clock moves on.
    """
    if full.reason is Refused.TOO_LARGE:
        message = (
            f"this request is {tok} tokens, and at most {full.limit} may wait in class {class_}: "
            "it can only be taken when it can start at once"
        )
    else:
        whose = "of yours " if full.reason is Refused.PEER_QUOTA else ""
        message = (
            f"{full.used} {full.unit} {whose}are waiting, {full.limit} is the most, and this "
            f"request is {tok} tokens: come back later"
        )
    return Refusal(
        full.reason,
        message,
        limit=full.limit,
        used=full.used,
        retry_after_ns=retry_after_ns(book.queues[class_], full, tok, now_ns, commit=commit),
        limited_by=book.limited_by(book.pools[pool]),
    )


def drained(place: int) -> Refusal:
    """The refusal of what waits when a shutdown begins, or comes back to wait after that."""
    return Refusal(
        Refused.SHUTTING_DOWN, "the daemon is shutting down", retry_after_ns=drain_hint_ns(place)
    )


def expiry(kind: Kind, record: Record) -> Refusal:
    """The refusal of a request that ran out of time where it is now."""
    where = "waiting" if record.state is State.QUEUED else "running"
    match kind:
        case Kind.TTFT:
            return Refusal(
                Refused.TTFT_DEADLINE_EXCEEDED, f"no first token within ttft_timeout, still {where}"
            )
        case Kind.SAFETY:
            return Refusal(
                Refused.ENGINE_TIMEOUT, "the engine did not finish within the safety timeout"
            )
        case _:
            return Refusal(Refused.DEADLINE_EXCEEDED, f"not done within timeout, still {where}")
