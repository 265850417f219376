"""What the core remembers of a request and of a pool while they live."""

from dataclasses import dataclass, field

from onegate.admission.ledger import PoolLedger
from onegate.admission.lifecycle import Move, State, after
from onegate.admission.model import (
    PoolCapacity,
    PoolSpec,
    PoolState,
    Refusal,
    RequestSpec,
    Reservation,
)


def rounded(tok: int, block_tok: int) -> int:
    """Whole blocks: the engine's cache has no smaller unit."""
    return -(-tok // block_tok) * block_tok


def kv_cost(capacity: PoolCapacity, prompt_tok: int, output_tok: int) -> int:
    """KV tokens to charge for a request that may produce `output_tok`.

    A slot has a context of its own, so there a pool of tokens means nothing. Where the engine
    grows reservations the whole is charged too, until output lengths are learned.
    """
    if capacity.reservation is Reservation.PER_SLOT:
        return 0
    return rounded(prompt_tok + output_tok, capacity.block_tok)


def queue_cost(capacity: PoolCapacity, prompt_tok: int, max_tok: int) -> int:
    """Tokens that a waiting request counts in its class's queue: prompt and reserved output.

    At least one, so that nothing waits for free.
    """
    if capacity.reservation is Reservation.PER_SLOT:
        return max(1, prompt_tok)
    return max(1, prompt_tok + max_tok)


@dataclass(slots=True)
class Record:
    """One request from its arrival until its permit and its seat are both free.

    `computed_tok` of the prompt are known to be computed in this run. `exempt` requests have been
    in the engine before: bounds and ttft do not apply to them again. `aborted` is what an `Abort`
    said. `prepaid_tok` are left of the quantum that a grant by the floor began with.
    """

    spec: RequestSpec
    seq: int
    prompt_tok: int
    unready_before_ns: int
    state: State = State.QUEUED
    computed_tok: int = 0
    output_tok: int = 0
    safety_ns: int | None = None
    exempt: bool = False
    aborted: Refusal | None = None
    by_floor: bool = False
    prepaid_tok: int = 0

    @property
    def rid(self) -> int:
        """The request's number."""
        return self.spec.rid

    @property
    def held(self) -> bool:
        """Does it hold a permit?"""
        return self.state is State.GRANTED or self.state is State.RUNNING

    def move(self, move: Move) -> None:
        """Change state by the table; raises `IllegalMove`."""
        self.state = after(self.state, move, self.spec.rid)

    def kv_tok(self, capacity: PoolCapacity) -> int:
        """What its seat holds of the cache.

        After the settle only what was computed, but where the engine reserves in full it keeps
        the whole until it confirms.
        """
        output_tok = max(self.spec.max_tok, self.output_tok)
        if self.state is State.SETTLED and capacity.reservation is Reservation.GROW:
            output_tok = self.output_tok
        return kv_cost(capacity, self.prompt_tok, output_tok)


@dataclass(slots=True)
class Pool:
    """One model: its limits, what is charged against them, and how long it was not ready.

    `load_asked_ns` is when the shell was asked to load it, until the engine has done so or failed.
    `away_since_ns` is when it went away after it had `served` somebody, or failed to load.
    `in_turn` says that it was asked for, and then loaded, by the floor of a class.
    """

    spec: PoolSpec
    ledger: PoolLedger = field(default_factory=PoolLedger)
    load_asked_ns: int | None = None
    in_turn: bool = False
    ready_since_ns: int = 0
    away_since_ns: int = 0
    served: bool = False
    _unready_since_ns: int | None = None
    _unready_ns: int = 0

    def __post_init__(self) -> None:
        if not self.ready:
            # Only differences of the unready time are used, so any beginning will do.
            self._unready_since_ns = 0

    @property
    def ready(self) -> bool:
        """Can it take work now?"""
        return self.spec.state is PoolState.READY

    @property
    def capacity(self) -> PoolCapacity:
        """Its limits as of now."""
        return self.spec.capacity

    def become(self, spec: PoolSpec, now_ns: int) -> None:
        """The engine says that this is the pool now."""
        was_ready = self.ready
        self.spec = spec
        if self.ready and not was_ready:
            self._unready_ns = self.unready_ns(now_ns)
            self._unready_since_ns = None
            self.ready_since_ns = now_ns
        elif was_ready and not self.ready:
            self._unready_since_ns = now_ns
        if spec.state is PoolState.FAILED or (was_ready and not self.ready):
            self.in_turn = False
        if not self.ready and (self.served or spec.state is PoolState.FAILED):
            self.away_since_ns = now_ns
            self.served = False
        if spec.state not in (PoolState.COLD, PoolState.LOADING):
            self.load_asked_ns = None

    def ask_load(self, now_ns: int, *, in_turn: bool) -> None:
        """The shell is asked to load it."""
        self.load_asked_ns = now_ns
        self.in_turn = in_turn

    def unready_ns(self, now_ns: int) -> int:
        """For how long in all it could not take work, from an arbitrary beginning."""
        if self._unready_since_ns is None:
            return self._unready_ns
        return self._unready_ns + now_ns - self._unready_since_ns

    @property
    def unready_settled_ns(self) -> int | None:
        """The same while it is ready, None while the time is still growing."""
        return self._unready_ns if self._unready_since_ns is None else None
