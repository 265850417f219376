"""What the shell must now do; the core does nothing itself.

Effects come in the order in which they must be carried out.
"""

from dataclasses import dataclass

from onegate.admission.model import Refusal


@dataclass(frozen=True, slots=True)
class Grant:
    """The request has a permit and a seat: send it to the engine. Settle it, whatever happens."""

    rid: int


@dataclass(frozen=True, slots=True)
class Queue:
    """The request waits. Only as the answer to its arrival; `predicted_ns` from then on its first
    token is expected, where that can be said."""

    rid: int
    predicted_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request gets nothing: refused on arrival, expired while queued, or drained away.

    The core has forgotten it. `queued` tells whether it had been waiting.
    """

    rid: int
    refusal: Refusal
    queued: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """A granted request is out of time: stop it and settle its permit now."""

    rid: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop a running request, to make room for a better one or because its pool is `released`;
    `Requeued` when the engine has.

    If it finishes first, that holds, and it is settled. Not said twice before one of the two.
    """

    rid: int


@dataclass(frozen=True, slots=True)
class LoadPool:
    """Bring this pool into memory; report by `PoolChanged`.

    Comes when nothing holds a seat in any pool, once until the pool has been something else than
    `cold`, or again when the engine says nothing for too long.
    """

    model: str


Effect = Grant | Queue | Refuse | Abort | Preempt | LoadPool
