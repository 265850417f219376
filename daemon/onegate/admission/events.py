"""What can happen to the core. The shell turns everything that happens into one of these."""

from dataclasses import dataclass

from onegate.admission.model import ClassSpec, GateLimits, PoolSpec, RequestSpec


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request has come. Answered in the same call by `Grant`, `Queue` or `Refuse`."""

    request: RequestSpec


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A queued request leaves: its client cancelled or vanished. Ignored once it is granted."""

    rid: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The engine has counted the prompt of a request in any live state.

    `cached_tok` of it, and of output that it is resumed with, need not be computed.
    """

    rid: int
    prompt_tok: int
    cached_tok: int = 0


@dataclass(frozen=True, slots=True)
class Prefilled:
    """`prefilled_tok` prompt tokens of a running request are computed (cumulative)."""

    rid: int
    prefilled_tok: int


@dataclass(frozen=True, slots=True)
class Produced:
    """A running request has produced `output_tok` tokens (cumulative); prefill is over."""

    rid: int
    output_tok: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The permit comes back, once. The seat stays charged until its `SeatFreed`.

    `output_tok` is what was generated in all; `finished` is false for every end but a natural one.
    """

    rid: int
    output_tok: int
    finished: bool


@dataclass(frozen=True, slots=True)
class SeatFreed:
    """The engine confirms that nothing of this request runs any more; may come before `Settled`.

    For a request whose permit was settled without ever reaching the engine, the shell says so.
    """

    rid: int


@dataclass(frozen=True, slots=True)
class Requeued:
    """A granted request is out of the engine and goes back to its place, with `kept_tok` of output.

    The engine lost it and its client has seen nothing, or it was stopped by `Preempt`. Its permit
    is free, and its seat too if no `SeatFreed` came before: to be said only once nothing of it runs
    any more. It keeps its arrival order and is exempt from bounds and from `ttft` expiry. Answered
    by `Refuse` when it had been aborted, or where the daemon drains and it cannot go on: its class
    is closed, or its pool not ready.
    """

    rid: int
    kept_tok: int = 0


@dataclass(frozen=True, slots=True)
class PoolChanged:
    """A pool is new, or its state or capacity is now this.

    A pool that was asked for by `LoadPool` leaves `cold`: it is told to be `loading`, then `ready`
    or `failed`; and a pool that makes room for it to be `cold`. A `failed` pool that may be tried
    again is told to be `cold`.
    """

    pool: PoolSpec


@dataclass(frozen=True, slots=True)
class ClassClosed:
    """A class starts nothing new until `until_ns`, or until opened when None.

    Newcomers are refused, unless the class lets them wait. What runs goes on; what waits stays,
    and its deadlines run.
    """

    class_: str
    until_ns: int | None


@dataclass(frozen=True, slots=True)
class ClassOpened:
    """A closed class is open again."""

    class_: str


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """New limits after a reload, of every class; what is queued stays queued.

    AssertionError when a class is missing. A safety timeout holds from the next grant on.
    """

    limits: GateLimits
    classes: tuple[ClassSpec, ...]


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """Shutdown: refuse what comes and what is queued, except what was in the engine before and can
    go on. How long that has is the shell's to say."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `next_wake_ns` named has come."""


Event = (
    Arrived
    | Withdrawn
    | Counted
    | Prefilled
    | Produced
    | Settled
    | SeatFreed
    | Requeued
    | PoolChanged
    | ClassClosed
    | ClassOpened
    | LimitsChanged
    | DrainStarted
    | Tick
)
