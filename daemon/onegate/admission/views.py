"""What the core says about itself: standings, verdicts, the whole view."""

from onegate.admission.arrival import room
from onegate.admission.book import Book
from onegate.admission.lifecycle import State
from onegate.admission.line import Member
from onegate.admission.model import (
    Binding,
    ClassView,
    PoolView,
    RequestSpec,
    Standing,
    Verdict,
    View,
)
from onegate.admission.queue import Backpressure
from onegate.admission.records import Record, queue_cost, reserved_output
from onegate.admission.refusals import at_door, for_room


def _ahead(book: Book, class_: str, pool: str, place: int) -> dict[str, int]:
    """Per open class, how many wait for the pool before that place in its class's queue."""
    *better, own = (queue.spec.name for queue in book.up_to(class_))
    ahead = {
        name: book.queues[name].waiting_for(pool) for name in better if name not in book.closed
    }
    ahead[own] = place
    return {name: count for name, count in ahead.items() if count}


def standing(book: Book, rid: int, now_ns: int) -> Standing | None:
    """Where a queued request stands; None once it does not wait any more."""
    record = book.records.get(rid)
    if record is None or record.state is not State.QUEUED:
        return None
    spec = record.spec
    place = book.queues[spec.class_].ahead(rid)
    ahead = _ahead(book, spec.class_, spec.pool, place)
    closed = spec.class_ in book.closed
    opens_ns = book.closed.get(spec.class_)
    return Standing(
        position=1 + sum(ahead.values()),
        ahead=ahead,
        limited_by=Binding.CLOSED if closed else book.limited_by(book.pools[spec.pool]),
        expected_wait_ns=book.expected_wait_ns(spec.class_, spec.pool, place, now_ns),
        opens_in_ns=None if opens_ns is None else max(0, opens_ns - now_ns),
    )


def ask(
    book: Book,
    *,
    pool: str,
    class_: str,
    principal: str,
    prompt_tok: int,
    max_tok: int,
    now_ns: int,
) -> Verdict:
    """What would happen to such a request; changes nothing."""
    refusal = at_door(book, class_, pool, prompt_tok, max_tok, place=0, now_ns=now_ns)
    if refusal is not None:
        return Verdict(0, refusal=refusal)
    pool_ = book.pools[pool]
    spec = RequestSpec(_ASKED, pool, class_, principal, "", prompt_tok, max_tok, now_ns)
    reserved_tok = reserved_output(pool_.capacity, spec, pool_.curve(spec))
    tok = queue_cost(pool_.capacity, prompt_tok, reserved_tok)
    found = room(book, spec, tok, now_ns)
    starts, binding, place = _if_it_waited(book, spec, tok, reserved_tok)
    if starts:
        return Verdict(0)
    position = 1 + sum(_ahead(book, class_, pool, place).values())
    if isinstance(found, Backpressure):
        no = for_room(book, spec, found, tok, now_ns, commit=False)
        return Verdict(position, limited_by=binding, refusal=no)
    return Verdict(
        position,
        limited_by=binding,
        expected_wait_ns=book.expected_wait_ns(class_, pool, place, now_ns),
    )


# No request has this rid, and none has arrived later.
_ASKED = -1
_LAST_SEQ = 1 << 62


def _if_it_waited(
    book: Book, spec: RequestSpec, tok: int, reserved_tok: int
) -> tuple[bool, Binding | None, int]:
    """Whether this request would start if it waited, what limits it, and how many of its class
    would be before it.

    It waits for the length of this call.
    """
    queue, pool = book.queues[spec.class_], book.pools[spec.pool]
    account = queue.accounts.enter(spec.principal, spec.flow)
    record = Record(spec, _LAST_SEQ, spec.prompt_tok, 0, account, reserved_tok)
    book.records[_ASKED] = record
    queue.add(Member(_ASKED, _LAST_SEQ, account, tok), spec.pool)
    try:
        binding = Binding.CLOSED if spec.class_ in book.closed else book.limited_by(pool)
        chosen = book.next_to_start()
        return chosen is not None and chosen.record is record, binding, queue.ahead(_ASKED)
    finally:
        queue.remove(_ASKED, spec.pool)
        queue.accounts.leave(account)
        del book.records[_ASKED]


def view(book: Book, now_ns: int) -> View:
    """The whole core for status and metrics."""
    bindings = [book.limited_by(pool) for pool in book.pools.values()]
    return View(
        in_flight=book.in_flight,
        queued=book.queued,
        queued_tok=book.queued_tok,
        limited_by=next((binding for binding in bindings if binding is not None), None),
        classes=tuple(
            ClassView(
                name=class_,
                rank=queue.spec.rank,
                queued=len(queue),
                queued_tok=queue.queued_tok,
                max_queued_tok=queue.spec.max_queued_tok,
                running=queue.running,
                expected_wait_ns=_wait_of_newcomer(book, class_, now_ns),
                closed=class_ in book.closed,
                opens_at_ns=book.closed.get(class_),
            )
            for class_, queue in book.queues.items()
        ),
        pools=tuple(
            PoolView(
                model=model,
                state=pool.spec.state,
                seats=pool.capacity.max_seqs,
                seats_used=pool.ledger.seats,
                seats_quarantined=pool.ledger.quarantined,
                kv_tok=pool.capacity.kv_tok,
                kv_tok_used=pool.ledger.kv_tok,
                unprefilled_tok=pool.ledger.unprefilled_tok,
                released_until_ns=pool.spec.released_until_ns,
                pace=pool.pace.view(now_ns),
            )
            for model, pool in book.pools.items()
        ),
        draining=book.draining,
    )


def _wait_of_newcomer(book: Book, class_: str, now_ns: int) -> int | None:
    """The shortest that a small newcomer of the class may wait, over all pools; None if unknown.

    Nothing, where nobody waits before it and the smallest request could start.
    """
    waits = []
    for pool in book.pools:
        place = book.queues[class_].waiting_for(pool)
        if not _ahead(book, class_, pool, place) and class_ not in book.closed:
            if book.in_the_way(class_, pool, 1, 1) is None:
                return 0
        wait_ns = book.expected_wait_ns(class_, pool, place, now_ns)
        if wait_ns is not None:
            waits.append(wait_ns)
    return min(waits, default=None)
