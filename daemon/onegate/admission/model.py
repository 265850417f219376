"""The nouns of admission: what the core knows about limits, classes, pools and requests.

Everything here is immutable. Tokens are `_tok`, times are nanoseconds of one monotonic clock that
the caller passes in; the core never reads a clock.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reservation(StrEnum):
    """How the engine reserves KV cache, and so what a request is charged before it runs."""

    FULL = "full"
    GROW = "grow"
    PER_SLOT = "per_slot"


class Resume(StrEnum):
    """What becomes of a request that is stopped to make room.

    `exact`: it goes on from the tokens that it has. `restart`: it begins anew, at any moment,
    since nobody sees output before the end. `unseen`: it begins anew, unless it has shown output.
    `never`: it is not stopped.
    """

    EXACT = "exact"
    RESTART = "restart"
    UNSEEN = "unseen"
    NEVER = "never"


class PoolState(StrEnum):
    """Whether a pool can take work. A `cold` pool is loaded when a request for it comes first."""

    COLD = "cold"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """A pool's limits in its own units; None is "the engine does not say": no bound from here."""

    max_seqs: int
    max_context_tok: int
    reservation: Reservation
    kv_tok: int | None = None
    max_step_tok: int | None = None
    block_tok: int = 1


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """One class. Rank 0 is served first; `floor_share` of all tokens is its own while it waits.

    A class that `preempts` may have running requests of worse, `preemptible` classes stopped when
    it finds no room; each of these lets it wait for its `preempt_grace_ns` first. While a class
    with an `itl_target_ns` has requests in the engine, worse ones are given only as many seats as
    leave its steps that short.
    """

    name: str
    rank: int
    max_queued_tok: int
    per_principal_share: float
    safety_timeout_ns: int
    floor_share: float = 0.0
    waits_when_closed: bool = False
    preempts: bool = False
    preemptible: bool = False
    preempt_grace_ns: int = 0
    itl_target_ns: int | None = None

    @property
    def stops_at_once(self) -> bool:
        """May its running requests be stopped without anybody's having to wait for that? These also
        wait until a device that is lent to something else is back."""
        return self.preemptible and not self.preempt_grace_ns


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Bounds over all classes.

    `max_queued_tok` and `max_queued_requests` (only a memory guard) count what waits at the
    newcomer's own rank or a better one. `floor_quantum_tok` is what a grant by the floor begins
    with; `floor_window_ns` is how long work for a pool that is not loaded lets the same class's
    work for a loaded one go first. Nobody is stopped for a request that probably starts within
    `preempt_delta_ns` anyway; of the tokens that a class has computed, `recompute_share` may be
    computed again. After `probe_after` refusals by prediction in a row one request is let in to
    see. For who comes with a ticket all bounds are wider by `ticket_grace`. With `displaces` who
    waits below leaves for a newcomer that the bounds would keep out.
    """

    max_in_flight: int
    max_queued_tok: int
    max_queued_requests: int
    look_ahead: int
    floor_window_ns: int
    floor_quantum_tok: int
    preempt_delta_ns: int = 250_000_000
    recompute_share: float = 0.15
    probe_after: int = 8
    ticket_grace: float = 0.25
    displaces: bool = True


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """A request as it arrives.

    `prompt_tok` is an estimate unless `counted`. `ttft_deadline_ns` bounds queue plus prefill when
    it is the client's own (`ttft_is_own`); a class's default bounds only the wait that others
    cause, so it stops at the grant and stands still while the pool is cold, loading or lent.
    `deadline_ns` bounds the whole request. A `lease` never shows tokens: it runs until settled.
    `prompt_bytes` is what a `ticket`, the promise of an earlier refusal, is held against, because
    the estimate of `prompt_tok` may have moved since. `likely_tok` of `max_tok` are expected as
    long as nothing is known of its like, where the caller named no bound; None: all of them.
    """

    rid: int
    pool: str
    class_: str
    principal: str
    flow: str
    prompt_tok: int
    max_tok: int
    arrived_ns: int
    counted: bool = False
    ttft_deadline_ns: int | None = None
    ttft_is_own: bool = False
    deadline_ns: int | None = None
    lease: bool = False
    resume: Resume = Resume.NEVER
    prompt_bytes: int = 0
    ticket: str | None = None
    likely_tok: int | None = None


class Refused(StrEnum):
    """Why the core says no; each value is a reason of the wire protocol."""

    CLASS_FULL = "class_full"
    TOKENS_FULL = "tokens_full"
    PEER_QUOTA = "peer_quota"
    WONT_MEET_DEADLINE = "wont_meet_deadline"
    DISPLACED = "displaced"
    TOO_LARGE = "too_large"
    PAUSED = "paused"
    RELEASED = "released"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    SHUTTING_DOWN = "shutting_down"
    TTFT_DEADLINE_EXCEEDED = "ttft_deadline_exceeded"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    ENGINE_TIMEOUT = "engine_timeout"


class Binding(StrEnum):
    """The limit that keeps the next queued request from starting."""

    SEATS = "seats"
    KV = "kv"
    STEP_TOK = "step_tok"
    IN_FLIGHT = "in_flight"
    FLOOR = "floor"
    ITL = "itl"
    LOADING = "loading"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A typed no. `limit` and `used` are in the unit of the reason (tokens or requests; for
    `wont_meet_deadline` milliseconds: what is left and what is predicted).

    `ticket` is a promise: the same request with it finds room after `retry_after_ns`.
    """

    reason: Refused
    message: str
    limit: int | None = None
    used: int | None = None
    retry_after_ns: int | None = None
    limited_by: Binding | None = None
    ticket: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a queued request stands.

    `position` counts from 1, which is next by rank; `ahead` are the requests before it, per class.
    """

    position: int
    ahead: dict[str, int]
    limited_by: Binding | None
    expected_wait_ns: int | None = None
    opens_in_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What would happen to such a request now: a refusal, or start (position 0), or queue (from 1).

    With a refusal, `position` is where it would have stood had there been room, 0 at the door.
    """

    position: int
    limited_by: Binding | None = None
    expected_wait_ns: int | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class ClassView:
    """A class as status shows it."""

    name: str
    rank: int
    queued: int
    queued_tok: int
    max_queued_tok: int
    running: int
    expected_wait_ns: int | None
    closed: bool
    opens_at_ns: int | None


@dataclass(frozen=True, slots=True)
class StepView:
    """What was learned of how long a pool's steps take.

    A step takes `step_ns`, and more: `prefill_ns` for each prompt token in it (None: not known),
    `decode_ns` for each sequence that decodes. `error` is the median of |predicted - seen| / seen,
    None until it is known. Learned of `steps` steps, the last of them `age_ns` ago.
    """

    step_ns: float
    prefill_ns: float | None
    decode_ns: float
    error: float | None
    steps: int
    age_ns: int


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as status shows it; `kv_tok_used` is what the ledger has charged. `pace` None: too
    little is known of its steps, or nothing new for too long."""

    model: str
    state: PoolState
    seats: int
    seats_used: int
    seats_quarantined: int
    kv_tok: int | None
    kv_tok_used: int
    unprefilled_tok: int
    released_until_ns: int | None = None
    pace: StepView | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The whole core as status shows it."""

    in_flight: int
    queued: int
    queued_tok: int
    limited_by: Binding | None
    classes: tuple[ClassView, ...]
    pools: tuple[PoolView, ...]
    draining: bool = False


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool when it becomes known; `switch_cost_ns` is what loading it costs.

    `released_until_ns`: while `released`, when it is taken back; None where nobody has said.
    `keeps_prefix`: what it has computed for a request that is stopped is probably there when it
    comes back. What was learned of a pool holds for one `identity`.
    """

    model: str
    state: PoolState
    capacity: PoolCapacity
    switch_cost_ns: int | None = None
    released_until_ns: int | None = None
    keeps_prefix: bool = False
    identity: str | None = None
