"""Refusals in words and numbers, with a hint where there is one to give."""

from dataclasses import replace

from onegate.admission.book import Book
from onegate.admission.deadlines import Kind
from onegate.admission.lifecycle import State
from onegate.admission.model import PoolState, Refusal, Refused, RequestSpec
from onegate.admission.queue import Backpressure
from onegate.admission.records import Pool, Record
from onegate.admission.tickets import EARLY_NS

NS_PER_MS = 1_000_000
# When to come back after a shutdown: spread out by place in line, not by chance.
DRAIN_BASE_NS = 1_000_000_000
DRAIN_STEP_NS = 20_000_000
DRAIN_STEPS = 200


def drain_hint_ns(place: int) -> int:
    """When the one at this place in line comes back after a shutdown."""
    return DRAIN_BASE_NS + place % DRAIN_STEPS * DRAIN_STEP_NS


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
    spec: RequestSpec,
    full: Backpressure,
    tok: int,
    now_ns: int,
    *,
    commit: bool = True,
) -> Refusal:
    """The refusal of a request of `tok` tokens that cannot wait, or not any longer.

    With `commit` a promise is given, if one can be.
    """
    queue = book.queues[spec.class_]
    refusal = Refusal(
        full.reason,
        _words(spec, full, tok),
        limit=full.limit,
        used=full.used,
        limited_by=book.limited_by(book.pools[spec.pool]),
    )
    known = None
    if full.reason is not Refused.TOO_LARGE:  # which no promise helps, and which uses none up
        known = book.tickets.presented(spec, now_ns)
    if known is not None and now_ns < known.due_ns - EARLY_NS:
        # Too early: the promise holds, and nobody is pushed back by asking again.
        return replace(refusal, retry_after_ns=known.due_ns - now_ns, ticket=known.name)
    if not commit:
        forecast = book.tickets.forecast(queue, spec.principal, full, tok, now_ns)
        hint_ns = None if forecast is None else forecast.due_ns - now_ns
        return replace(refusal, retry_after_ns=hint_ns)
    if known is not None:
        book.tickets.use(known)
    hint_ns, ticket = book.tickets.issue(spec, queue, full, tok, now_ns)
    if hint_ns is None and full.reason is Refused.WONT_MEET_DEADLINE:
        hint_ns = max(0, full.used - full.limit) * NS_PER_MS
    return replace(refusal, retry_after_ns=hint_ns, ticket=ticket)


def _words(spec: RequestSpec, full: Backpressure, tok: int) -> str:
    match full.reason:
        case Refused.TOO_LARGE:
            return (
                f"this request is {tok} tokens, and at most {full.limit} may wait in class "
                f"{spec.class_}: it can only be taken when it can start at once"
            )
        case Refused.WONT_MEET_DEADLINE:
            return (
                f"it would take about {full.used} ms, and its time ends in {full.limit} ms: "
                "come back later, or allow more"
            )
        case Refused.DISPLACED:
            return "it had to make room for a higher class: come back later"
        case _ if full.excess_tok <= 0:
            return "the room that there is was promised to those who were refused before"
        case _:
            whose = "of yours " if full.reason is Refused.PEER_QUOTA else ""
            return (
                f"{full.used} {full.unit} {whose}are waiting, {full.limit} is the most, and this "
                f"request is {tok} tokens: come back later"
            )


def displaced(book: Book, record: Record, tok: int, now_ns: int) -> Refusal:
    """The refusal of one that leaves its place to a better class."""
    used_tok, limit_tok = book.queued_tok, book.limits.max_queued_tok
    full = Backpressure(Refused.DISPLACED, "tokens", limit_tok, used_tok, tok)
    return for_room(book, record.spec, full, tok, now_ns)


def drained(place: int) -> Refusal:
    """The refusal of what waits when a shutdown begins, or comes back then and cannot go on."""
    return Refusal(
        Refused.SHUTTING_DOWN, "the daemon is shutting down", retry_after_ns=drain_hint_ns(place)
    )


def expiry(kind: Kind, record: Record, pool: Pool) -> Refusal:
    """The refusal of a request that ran out of time where it is now."""
    where = "waiting" if record.state is State.QUEUED else "running"
    if record.state is State.QUEUED and pool.spec.state is PoolState.FAILED:
        where += f": the engine cannot serve model {pool.spec.model} now"
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
