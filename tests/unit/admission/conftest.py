"""The nouns of admission with plain values, of which a test names only what it is about."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.admission.book import Book
from onegate.admission.fairness import Account, Accounts
from onegate.admission.lifecycle import Move
from onegate.admission.line import NEVER_NS, Member
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    RequestSpec,
    Reservation,
)
from onegate.admission.queue import ClassQueue
from onegate.admission.records import Record, queue_cost

SECOND_NS = 10**9


@pytest.fixture
def class_spec() -> Callable[..., ClassSpec]:
    """Build a class."""

    def build(**fields: Any) -> ClassSpec:
        plain: dict[str, Any] = {
            "name": "chat",
            "rank": 0,
            "max_queued_tok": 1000,
            "per_principal_share": 0.5,
            "safety_timeout_ns": 900 * SECOND_NS,
        }
        return ClassSpec(**(plain | fields))

    return build


@pytest.fixture
def limits() -> Callable[..., GateLimits]:
    """Build the bounds over all classes."""

    def build(**fields: Any) -> GateLimits:
        plain: dict[str, Any] = {
            "max_in_flight": 64,
            "max_queued_tok": 10_000,
            "max_queued_requests": 100,
            "look_ahead": 0,
            "floor_window_ns": 30 * SECOND_NS,
            "floor_quantum_tok": 100,
        }
        return GateLimits(**(plain | fields))

    return build


@pytest.fixture
def pool_spec() -> Callable[..., PoolSpec]:
    """Build a pool; the fields are those of its capacity."""

    def build(
        model: str = "a",
        state: PoolState = PoolState.READY,
        switch_cost_ns: int | None = None,
        **fields: Any,
    ) -> PoolSpec:
        plain: dict[str, Any] = {
            "max_seqs": 2,
            "max_context_tok": 1000,
            "reservation": Reservation.GROW,
        }
        return PoolSpec(model, state, PoolCapacity(**(plain | fields)), switch_cost_ns)

    return build


@pytest.fixture
def request_spec() -> Callable[..., RequestSpec]:
    """Build a request."""

    def build(rid: int = 1, class_: str = "chat", pool: str = "a", **fields: Any) -> RequestSpec:
        plain: dict[str, Any] = {
            "principal": "alice",
            "flow": "",
            "prompt_tok": 10,
            "max_tok": 10,
            "arrived_ns": 0,
        }
        return RequestSpec(rid, pool, class_, **(plain | fields))

    return build


@pytest.fixture
def make_book(
    limits: Callable[..., GateLimits],
    class_spec: Callable[..., ClassSpec],
    pool_spec: Callable[..., PoolSpec],
) -> Callable[..., Book]:
    """Build the state of a core; the fields are those of its bounds."""

    def build(
        classes: tuple[ClassSpec, ...] = (class_spec(),),
        pools: tuple[PoolSpec, ...] = (pool_spec(),),
        **fields: Any,
    ) -> Book:
        return Book(limits(**fields), classes, pools)

    return build


@pytest.fixture
def account() -> Account:
    """Whom a request is charged to, where a test is not about that."""
    return Accounts().enter("alice", "")


@pytest.fixture
def wait() -> Callable[[Book, RequestSpec], Record]:
    """Let a request wait; its rid is its place in the order of arrival."""

    def place(book: Book, spec: RequestSpec) -> Record:
        pool, queue = book.pools[spec.pool], book.queues[spec.class_]
        record = _record(queue, spec, pool.excused_ns(spec.arrived_ns))
        tok = queue_cost(pool.capacity, spec.prompt_tok, spec.max_tok)
        start_by_ns = min(spec.ttft_deadline_ns or NEVER_NS, spec.deadline_ns or NEVER_NS)
        book.records[spec.rid] = record
        queue.add(Member(spec.rid, spec.rid, record.account, tok, start_by_ns), spec.pool)
        book.queued += 1
        return record

    return place


@pytest.fixture
def seat() -> Callable[[Book, RequestSpec], Record]:
    """Let a request have a permit and a seat."""

    def place(book: Book, spec: RequestSpec) -> Record:
        pool, queue = book.pools[spec.pool], book.queues[spec.class_]
        record = book.records[spec.rid] = _record(queue, spec, 0)
        record.move(Move.GRANT)
        pool.ledger.charge(
            spec.rid,
            rank=queue.spec.rank,
            kv_tok=record.kv_tok(pool.capacity),
            prompt_tok=spec.prompt_tok,
        )
        book.in_flight += 1
        queue.running += 1
        return record

    return place


@pytest.fixture
def settle() -> Callable[[Book, Record], None]:
    """Let a request that had a seat be over; the engine has not confirmed."""

    def end(book: Book, record: Record) -> None:
        queue = book.queues[record.spec.class_]
        record.move(Move.SETTLE)
        queue.accounts.leave(record.account)
        book.pools[record.spec.pool].ledger.quarantine(record.rid)
        book.in_flight -= 1
        queue.running -= 1

    return end


def _record(queue: ClassQueue, spec: RequestSpec, excused_ns: int) -> Record:
    account = queue.accounts.enter(spec.principal, spec.flow)
    return Record(spec, spec.rid, spec.prompt_tok, excused_ns, account, spec.max_tok)
