"""When a request runs out of time.

Two promises: `ttft` bounds queue and prefill, `deadline` the whole request. A client's own ttft is
taken literally. A class's default bounds only the wait that others cause: it ends with the grant
and stands still while the pool is loaded or lent, so that a slow or cold box still answers. While
the pool has failed it goes on, or a person would wait for an engine that is gone.
"""

from onegate.admission.book import Book
from onegate.admission.deadlines import Key, Kind
from onegate.admission.lifecycle import State
from onegate.admission.records import Record


def due_ns(book: Book, key: Key) -> int | None:
    """When `key` is due as things are, or None."""
    kind, name = key
    if isinstance(name, str):
        match kind:
            case Kind.SWITCH:
                return book.switch_wake_ns
            case Kind.PREEMPT:
                return book.preempt_wake_ns
            case _:
                return book.closed.get(name)
    record = book.records.get(name)
    if record is None or record.aborted is not None or record.state is State.SETTLED:
        return None
    match kind:
        case Kind.WHOLE:
            return record.spec.deadline_ns
        case Kind.SAFETY:
            return record.safety_ns
        case _:
            return _ttft_ns(book, record)


def _ttft_ns(book: Book, record: Record) -> int | None:
    spec = record.spec
    if spec.ttft_deadline_ns is None or record.exempt:
        return None
    if spec.ttft_is_own:
        # Until the first token; a lease never shows one, so there until the grant.
        done = record.output_tok > 0 or (spec.lease and record.held)
        return None if done else spec.ttft_deadline_ns
    if record.state is not State.QUEUED:
        return None
    excused_ns = book.pools[spec.pool].excused_settled_ns
    if excused_ns is None:
        return None
    return spec.ttft_deadline_ns + excused_ns - record.excused_before_ns
