"""Which answers a request may get, in which order: the transition table, as data.

Each request has an exchange of its own, named by its id. It is WAITING until the daemon says
something final (refusals and one-shot replies) or `Started`; RUNNING and PAUSED alternate; OVER
frees the id. `Cancel` opens no exchange, and `Settle` ends a lease's: their `Ack`s stand beside
the table, because they also answer for ids that have no exchange any more.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from onegate.protocol.messages import (
    Ack,
    CancelAny,
    Capacity,
    CapacityReport,
    Chunk,
    ClientMessage,
    Counted,
    CountTokens,
    DaemonMessage,
    Done,
    Embed,
    Embeddings,
    Failed,
    Generate,
    GetStatus,
    GetUsage,
    Lease,
    Load,
    Metrics,
    MetricsReport,
    Pause,
    Paused,
    Queued,
    ReleaseEngine,
    Resumed,
    Started,
    StatusReport,
    Unload,
    Unpause,
    UsageReport,
    Whoami,
    WhoamiReport,
)


class State(Enum):
    """How far one exchange has come."""

    WAITING = auto()
    RUNNING = auto()
    PAUSED = auto()
    OVER = auto()


Table = Mapping[tuple[State, type], State]

_W, _R, _P, _O = State.WAITING, State.RUNNING, State.PAUSED, State.OVER

GENERATION: Table = MappingProxyType(
    {
        (_W, Queued): _W,
        (_W, Started): _R,
        (_W, Failed): _O,
        (_R, Chunk): _R,
        (_R, Paused): _P,
        (_R, Done): _O,
        (_R, Failed): _O,
        (_P, Queued): _P,
        (_P, Resumed): _R,
        (_P, Done): _O,  # finished in the very step in which it was preempted
        (_P, Failed): _O,
    }
)
EMBEDDING: Table = MappingProxyType(
    {
        (_W, Started): _R,
        (_W, Failed): _O,
        (_R, Embeddings): _O,
        (_R, Failed): _O,
    }
)
LEASE: Table = MappingProxyType(
    {
        (_W, Queued): _W,
        (_W, Started): _R,
        (_W, Failed): _O,
        (_R, Ack): _O,  # of `settle`
        (_R, Failed): _O,  # the safety timeout, or a cancellation
    }
)


def _reply(answer: type) -> Table:
    return MappingProxyType({(_W, answer): _O, (_W, Failed): _O})


EXCHANGES: Mapping[type[ClientMessage], Table] = MappingProxyType(
    {
        Generate: GENERATION,
        Embed: EMBEDDING,
        Lease: LEASE,
        CountTokens: _reply(Counted),
        Capacity: _reply(CapacityReport),
        GetStatus: _reply(StatusReport),
        Whoami: _reply(WhoamiReport),
        Metrics: _reply(MetricsReport),
        GetUsage: _reply(UsageReport),
        Load: _reply(Ack),
        Unload: _reply(Ack),
        Pause: _reply(Ack),
        Unpause: _reply(Ack),
        CancelAny: _reply(Ack),
        ReleaseEngine: _reply(Ack),
    }
)

CANCEL = "cancel"
SETTLE = "settle"


def stands_beside(message: DaemonMessage) -> bool:
    """Whether `message` concerns an id without moving its exchange, and needs none to exist."""
    if not isinstance(message, Ack):
        return False
    return message.verb == CANCEL or (message.verb == SETTLE and not message.applied)


def after(kind: type[ClientMessage], state: State, message: DaemonMessage) -> State | None:
    """The state that `message` brings an exchange to; None where it has no place in it."""
    if isinstance(message, Ack) and message.verb != _acked_verb(kind):
        return None
    return EXCHANGES[kind].get((state, type(message)))


def belongs(kind: type[ClientMessage], message: DaemonMessage) -> bool:
    """Whether such an exchange can have `message` in it, in whatever state."""
    return any(after(kind, state, message) is not None for state in State)


def ends(kind: type[ClientMessage], message: DaemonMessage) -> bool:
    """Whether `message` is an end of such an exchange, in whatever state."""
    return any(after(kind, state, message) is State.OVER for state in State)


def _acked_verb(kind: type[ClientMessage]) -> str:
    return SETTLE if kind is Lease else str(kind.__struct_config__.tag)
