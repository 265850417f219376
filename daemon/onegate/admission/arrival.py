"""What becomes of a newcomer that cannot start at once: may it wait, and is it worth its while?

The guards of refusing by prediction: never where nothing runs; never for a pool that is not ready,
but for a client's own deadline that ends before the load can; by a class's default only for the
wait that others cause; after so many such refusals in a row one is let in to see; and what is not
known never refuses anybody.
"""

from dataclasses import dataclass

from onegate.admission.book import Book
from onegate.admission.model import Refused, RequestSpec
from onegate.admission.predict import Prediction
from onegate.admission.queue import Backpressure, ClassQueue
from onegate.admission.records import Record
from onegate.admission.tickets import EARLY_NS, LOW_WATER, Ticket

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Room:
    """It may wait, and these have to leave for it. `ticket` is the promise that it came with, and
    `promised` says that it is kept now."""

    displaced: tuple[int, ...] = ()
    ticket: Ticket | None = None
    promised: bool = False


def room(book: Book, spec: RequestSpec, tok: int, now_ns: int) -> Room | Backpressure:
    """Whether such a newcomer of `tok` tokens finds room among those who wait."""
    ticket = book.tickets.presented(spec, now_ns)
    due = ticket is not None and now_ns >= ticket.due_ns - EARLY_NS
    more = book.limits.ticket_grace if due else 0.0
    found = book.room(spec.class_, spec.principal, tok, more)
    if isinstance(found, Backpressure):
        return found
    queue = book.queues[spec.class_]
    limit_tok = queue.spec.max_queued_tok
    if not due and queue.queued_tok >= LOW_WATER * limit_tok:
        if book.tickets.are_out(spec.class_, now_ns):
            return _promised(queue)
    return Room(found, ticket, due)


def too_late(
    book: Book, record: Record, prediction: Prediction | None, found: Room, now_ns: int
) -> Backpressure | None:
    """Whether one that would wait is better told now that it will not be in time."""
    spec = record.spec
    queue, pool = book.queues[spec.class_], book.pools[spec.pool]
    if prediction is None or not pool.ledger.seats:
        return None
    first_ns = prediction.wait_ns + (prediction.prefill_ns if spec.ttft_is_own else 0)
    whole_ns = prediction.first_ns + prediction.decode_ns
    grace = book.limits.ticket_grace if found.promised else 0.0
    for deadline_ns, needed_ns in ((spec.ttft_deadline_ns, first_ns), (spec.deadline_ns, whole_ns)):
        if deadline_ns is None:
            continue
        left_ns = deadline_ns - now_ns
        surely_ns = round(needed_ns * queue.foresight.factor)
        if surely_ns > left_ns * (1 + grace):
            return _or_probe(book, queue, surely_ns, left_ns, now_ns)
        if not found.promised and needed_ns > LOW_WATER * left_ns:
            if book.tickets.are_out(spec.class_, now_ns):
                return _promised(queue)
    if not found.promised and queue.made_late(record.rid, now_ns, queue.foresight.factor):
        return _promised(queue)
    queue.too_late_in_row = 0
    return None


def _promised(queue: ClassQueue) -> Backpressure:
    """There is room, and it is for those who were refused before."""
    limit_tok = queue.spec.max_queued_tok
    return Backpressure(Refused.TOKENS_FULL, "tokens", limit_tok, queue.queued_tok, 0.0)


def _or_probe(
    book: Book, queue: ClassQueue, needed_ns: int, left_ns: int, now_ns: int
) -> Backpressure | None:
    """It would be late, unless the forecast is wrong: now and then one is let in to see."""
    if queue.too_late_in_row >= book.limits.probe_after:
        queue.too_late_in_row = 0
        return None
    queue.too_late_in_row += 1
    rate = queue.tok_per_ns(now_ns) or 0.0
    return Backpressure(
        Refused.WONT_MEET_DEADLINE,
        "ms",
        left_ns // NS_PER_MS,
        needed_ns // NS_PER_MS,
        (needed_ns - left_ns) * rate,
    )


def load_too_late(book: Book, spec: RequestSpec, now_ns: int) -> Backpressure | None:
    """A client's own deadline that ends before the model can be in memory."""
    pool = book.pools[spec.pool]
    load_ns = pool.spec.switch_cost_ns
    if pool.ready or load_ns is None or not spec.ttft_is_own or spec.ttft_deadline_ns is None:
        return None
    needed_ns = load_ns - pool.loading_ns(now_ns)
    allowed_ns = spec.ttft_deadline_ns - now_ns
    if needed_ns <= allowed_ns:
        return None
    return Backpressure(
        Refused.WONT_MEET_DEADLINE, "ms", allowed_ns // NS_PER_MS, needed_ns // NS_PER_MS, 0.0
    )
