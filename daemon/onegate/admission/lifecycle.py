"""The life of a request in the core: the table, and nothing else.

A request that is asked to make room is PREEMPTING until the engine has stopped it, and then waits
again; if it finishes first, that holds. A seat has a life of its own: it is HELD from the grant on,
QUARANTINED from a settle that the engine has not confirmed, and free when the engine says so.
"""

from enum import StrEnum


class State(StrEnum):
    """Where a request is."""

    QUEUED = "queued"
    GRANTED = "granted"
    RUNNING = "running"
    PREEMPTING = "preempting"
    SETTLED = "settled"


class Move(StrEnum):
    """What can happen to it."""

    GRANT = "grant"
    START = "start"
    PREEMPT = "preempt"
    REQUEUE = "requeue"
    SETTLE = "settle"


TABLE: dict[tuple[State, Move], State] = {
    (State.QUEUED, Move.GRANT): State.GRANTED,
    (State.GRANTED, Move.START): State.RUNNING,
    (State.RUNNING, Move.START): State.RUNNING,
    (State.GRANTED, Move.PREEMPT): State.PREEMPTING,
    (State.RUNNING, Move.PREEMPT): State.PREEMPTING,
    (State.PREEMPTING, Move.START): State.PREEMPTING,
    (State.GRANTED, Move.REQUEUE): State.QUEUED,
    (State.RUNNING, Move.REQUEUE): State.QUEUED,
    (State.PREEMPTING, Move.REQUEUE): State.QUEUED,
    (State.GRANTED, Move.SETTLE): State.SETTLED,
    (State.RUNNING, Move.SETTLE): State.SETTLED,
    (State.PREEMPTING, Move.SETTLE): State.SETTLED,
}


class IllegalMove(Exception):
    """The shell did something that no request can do: a bug."""


def after(state: State, move: Move, rid: int) -> State:
    """The state after `move`; raises `IllegalMove`."""
    try:
        return TABLE[state, move]
    except KeyError:
        raise IllegalMove(f"request {rid} is {state.value} and cannot {move.value}") from None
