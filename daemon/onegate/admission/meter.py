"""What was computed, and for whom: all that moves when the engine tells of tokens."""

from onegate.admission.book import Book
from onegate.admission.lifecycle import Move, State
from onegate.admission.protect import again_tok, likely_again_tok
from onegate.admission.records import Pool, Record, queue_cost


def counted(book: Book, record: Record, prompt_tok: int, cached_tok: int) -> None:
    """The engine has counted the prompt, and has this much of it in its cache."""
    spec = record.spec
    pool = book.pools[spec.pool]
    estimated_tok, record.prompt_tok = record.prompt_tok, prompt_tok
    if record.state is State.QUEUED:
        tok = queue_cost(pool.capacity, prompt_tok, record.reserved_tok)
        book.queues[spec.class_].adjust(record.rid, tok)
        return
    if record.rid not in pool.ledger:
        return
    pool.ledger.adjust(record.rid, kv_tok=record.kv_tok(pool.capacity))
    # What is in the cache is not computed, and what was lost to a stop may not be lost.
    cached_tok = min(cached_tok, record.prefill_tok)
    saved_tok = min(cached_tok, record.lost_tok)
    if saved_tok:
        record.lost_tok = 0
        _redo(book, record, -pool.weight * saved_tok)
    if record.held and not record.exempt:  # its prompt was charged as estimated, and in full
        found_tok = max(0, min(cached_tok, prompt_tok) - record.computed_tok)
        _correct(book, record, prompt_tok - found_tok - estimated_tok)
    record.computed_tok = max(record.computed_tok, cached_tok)
    if pool.ledger.unprefilled_of(record.rid):
        left_tok = max(0, record.prefill_tok - record.computed_tok)
        pool.ledger.leave_unprefilled(record.rid, left_tok)
        pool.pace.granted(record.rid, left_tok, book.now_ns)


def _correct(book: Book, record: Record, tok: int) -> None:
    """Its flow was charged so much too little, or, if negative, too much."""
    accounts = book.queues[record.spec.class_].accounts
    if tok > 0:
        accounts.charge(record.account, tok)
    else:
        accounts.credit(record.account, -tok)


def prefilled(book: Book, record: Record, prefilled_tok: int) -> None:
    """So much of what comes before its next token is computed, in all."""
    record.move(Move.START)
    prefilled_tok = min(prefilled_tok, record.prefill_tok)
    if prefilled_tok > record.computed_tok:
        pace = book.pools[record.spec.pool].pace
        pace.prefilled(record.rid, prefilled_tok - record.computed_tok, book.now_ns)
    computed(book, record, prefilled_tok, record.output_tok)


def produced(book: Book, record: Record, output_tok: int) -> bool:
    """It has made so much output in all; returns whether it may have to be stopped now: it outgrew
    what was reserved for it, or the quantum of its floor is used."""
    record.move(Move.START)
    grown = output_tok - record.output_tok
    if grown < 0:  # begun from the start, and the word of it was lost
        record.output_tok = 0
        grown = output_tok
    if not record.output_tok:
        waited(book, record)
    book.pools[record.spec.pool].pace.produced(record.rid, grown, book.now_ns)
    outgrown, was_prepaid = output_tok > record.reserved_tok, record.prepaid_tok > 0
    computed(book, record, record.prefill_tok, output_tok)
    return outgrown or (was_prepaid and not record.prepaid_tok)


def computed(book: Book, record: Record, prefilled_tok: int, output_tok: int) -> None:
    """The engine has computed so much before the next token and so much output, in all."""
    filled_tok = max(0, prefilled_tok - record.computed_tok)
    made_tok = output_tok - record.output_tok
    grown = filled_tok + made_tok
    record.computed_tok = max(prefilled_tok, record.computed_tok)
    record.output_tok = output_tok
    spec = record.spec
    pool, queue = book.pools[spec.pool], book.queues[spec.class_]
    if output_tok > record.charged_tok:
        queue.accounts.charge(record.account, output_tok - record.charged_tok)
        record.charged_tok = output_tok
    if record.rid in pool.ledger:
        left_tok = max(0, record.prefill_tok - record.computed_tok)
        if left_tok < pool.ledger.unprefilled_of(record.rid):
            pool.ledger.leave_unprefilled(record.rid, left_tok)
        if output_tok > record.reserved_tok and record.held:
            _grow(pool, record)
    if pool.weigh(book.now_ns):
        _learn_turnover(book, pool)
    book.allowances[spec.class_].earn(pool.weight * filled_tok + made_tok)
    window_tok = pool.computed_in(book.limits.floor_window_ns, grown, book.now_ns)
    for class_, floor in book.floors.items():
        if book.waits(class_, spec.pool):
            floor.earn(grown, window_tok)
    own = book.floors.get(spec.class_)
    if own is not None and record.by_floor and book.better_waits(spec.class_, spec.pool):
        prepaid_tok = min(record.prepaid_tok, grown)
        record.prepaid_tok -= prepaid_tok
        own.spend(grown - prepaid_tok)
    elif own is not None:
        own.count(grown, window_tok)


def _learn_turnover(book: Book, pool: Pool) -> None:
    for class_, queue in book.queues.items():
        turnover = pool.turnover(class_, queue.prompt_tok, book.now_ns)
        if turnover is None:
            queue.turnover.pop(pool.spec.model, None)
        else:
            queue.turnover[pool.spec.model] = turnover


def pledge(book: Book, record: Record) -> None:
    """It is asked to stop: what that probably costs is taken from its class at once, so that the
    next one that is looked at finds it gone."""
    record.pledged_tok = likely_again_tok(book.pools[record.spec.pool], record)
    book.allowances[record.spec.class_].spend(record.pledged_tok)


def redeem(book: Book, record: Record) -> None:
    """It has stopped, or was done before."""
    book.allowances[record.spec.class_].spend(-record.pledged_tok)
    record.pledged_tok = 0.0


def lost(book: Book, record: Record) -> None:
    """It was stopped, and what it has is to be computed again, as far as no cache has it."""
    record.lost_tok = record.computed_tok + record.made_tok
    _redo(book, record, again_tok(book.pools[record.spec.pool], record))


def _redo(book: Book, record: Record, tok: float) -> None:
    record.again_tok += tok
    book.allowances[record.spec.class_].spend(tok)


def _grow(pool: Pool, record: Record) -> None:
    """The answer is longer than usual: reserve the next block."""
    record.reserved_tok = min(record.spec.max_tok, record.output_tok + pool.capacity.block_tok)
    pool.ledger.adjust(record.rid, kv_tok=record.kv_tok(pool.capacity))


def waited(book: Book, record: Record) -> None:
    """Its first token has come, or it gave up: it waited so long, or at least so long."""
    if record.predicted_ns is not None and not record.exempt:
        foresight = book.queues[record.spec.class_].foresight
        foresight.learn(record.predicted_ns, book.now_ns - record.spec.arrived_ns)


def learn(pool: Pool, record: Record, finished: bool) -> None:
    """How long this answer was; one that was cut was at least so long."""
    spec = record.spec
    ended = finished and record.output_tok < spec.max_tok
    if record.output_tok or ended:
        pool.lengths.ended(
            spec.class_, spec.principal, spec.flow, record.output_tok, finished=ended
        )
