"""When a request that waits will have its first token, as far as that can be said.

The wait: what stands before it, over the rate at which its class is served; where the queue is too
young to have a rate, the time until so many seats are expected to be free, less those that it may
have freed. Then its own prefill, at the measured pace. What is not known counts as nothing: a
request is refused only for what is known.
"""

from dataclasses import dataclass

from onegate.admission.book import Book
from onegate.admission.estimate.waits import Running, expected_seat_ns
from onegate.admission.model import Binding
from onegate.admission.preempt import may_stop
from onegate.admission.records import Pool, Record


@dataclass(frozen=True, slots=True)
class Prediction:
    """Nanoseconds from now: until it starts, for its prompt, and for the answer after that."""

    wait_ns: int
    prefill_ns: int = 0
    decode_ns: int = 0

    @property
    def first_ns(self) -> int:
        """Until the first token."""
        return self.wait_ns + self.prefill_ns


def predict(book: Book, record: Record, now_ns: int) -> Prediction | None:
    """Of a request that waits in a pool that is ready; None while nobody knows the wait."""
    spec, pool = record.spec, book.pools[record.spec.pool]
    queue = book.queues[spec.class_]
    place = queue.at_latest(record.rid)
    wait_ns = book.expected_wait_ns(spec.class_, spec.pool, place, now_ns)
    if wait_ns is None:
        wait_ns = _by_seats(book, pool, record, place, now_ns)
    if wait_ns is None:
        return None
    ahead_tok = pool.ledger.unprefilled_up_to(queue.spec.rank)
    prefill_ns = pool.pace.prefill_ns(ahead_tok + record.prefill_tok, now_ns)
    return Prediction(wait_ns, round(prefill_ns or 0), _decode_ns(pool, record, now_ns))


def _by_seats(book: Book, pool: Pool, record: Record, place: int, now_ns: int) -> int | None:
    """Until the seat is free that it gets behind `place` others of its class and all better."""
    queue = book.queues[record.spec.class_]
    if queue.spec.name in book.closed:
        return None
    better = [q for q in book.up_to(queue.spec.name)[:-1] if q.spec.name not in book.closed]
    turn = 1 + place + sum(q.waiting_for(pool.spec.model) for q in better)
    held = [book.records[rid] for rid in pool.ledger if book.records[rid].held]
    if queue.spec.preempts and book.limited_by(pool) in (Binding.SEATS, Binding.IN_FLIGHT):
        turn -= sum(may_stop(book, r, queue.spec.rank, 0) for r in held)
    if turn <= 0:
        return 0
    step_ns = pool.pace.step_ns(decode_seqs=len(held), prefill_tok=0, now_ns=now_ns)
    if step_ns is None:
        return None
    running: list[Running] = [
        (r.output_tok, max(0, r.spec.max_tok - r.output_tok), pool.curve(r.spec)) for r in held
    ]
    # More turns than seats: the seats come around again.
    rounds, turn = divmod(turn - 1, max(1, len(running)))
    seat_ns = expected_seat_ns(running, turn + 1, step_ns)
    if seat_ns is None:
        return None
    if rounds:
        all_ns = expected_seat_ns(running, len(running), step_ns)
        if all_ns is None:
            return None
        seat_ns += rounds * all_ns
    return round(seat_ns)


def _decode_ns(pool: Pool, record: Record, now_ns: int) -> int:
    """For an answer of the usual length, at the pace of a full pool."""
    curve = pool.curve(record.spec)
    usual_tok = None if curve is None else curve.quantile(0.5)
    step_ns = pool.pace.step_ns(decode_seqs=pool.capacity.max_seqs, prefill_tok=0, now_ns=now_ns)
    if usual_tok is None or step_ns is None:
        return 0
    return round(min(usual_tok, record.spec.max_tok) * step_ns)
