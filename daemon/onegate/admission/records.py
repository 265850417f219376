"""What the core remembers of a request and of a pool while they live."""

from dataclasses import dataclass, field

from onegate.admission.estimate.lengths import Lengths
from onegate.admission.estimate.pace import Pace
from onegate.admission.estimate.survival import Survival
from onegate.admission.fairness import Account
from onegate.admission.ledger import PoolLedger
from onegate.admission.lifecycle import Move, State, after
from onegate.admission.model import (
    PoolCapacity,
    PoolSpec,
    PoolState,
    Refusal,
    RequestSpec,
    Reservation,
    Resume,
)
from onegate.admission.rate import WindowSum


def rounded(tok: int, block_tok: int) -> int:
    """Whole blocks: the engine's cache has no smaller unit."""
    return -(-tok // block_tok) * block_tok


def kv_cost(capacity: PoolCapacity, prompt_tok: int, output_tok: int) -> int:
    """KV tokens to charge for a request that may produce `output_tok`.

    A slot has a context of its own, so there a pool of tokens means nothing.
    """
    if capacity.reservation is Reservation.PER_SLOT:
        return 0
    return rounded(prompt_tok + output_tok, capacity.block_tok)


def queue_cost(capacity: PoolCapacity, prompt_tok: int, output_tok: int) -> int:
    """Tokens that a waiting request counts in its class's queue: prompt and reserved output.

    At least one, so that nothing waits for free.
    """
    if capacity.reservation is Reservation.PER_SLOT:
        return max(1, prompt_tok)
    return max(1, prompt_tok + output_tok)


# Until it is measured: prefill is compute-bound, decoding a small batch reads all weights for each
# of its tokens.
USUAL_WEIGHT = 0.1
WEIGHED_TOK = 256
WEIGH_EVERY_NS = 1_000_000_000

# Where an engine grows what it reserves: this part of the answers of the like is reserved ahead.
GROW_QUANTILE = 0.9


def reserved_output(capacity: PoolCapacity, spec: RequestSpec, curve: Survival | None) -> int:
    """The output tokens to reserve: all that it may make, or, where the engine grows reservations,
    what nine of ten answers of its flow do not exceed; before their lengths are known, what is
    likely of one that has no bound of its own."""
    if capacity.reservation is not Reservation.GROW:
        return spec.max_tok
    usual_tok = None if curve is None else curve.quantile(GROW_QUANTILE)
    if usual_tok is None:
        usual_tok = spec.likely_tok
    return spec.max_tok if usual_tok is None else max(1, min(spec.max_tok, usual_tok))


@dataclass(slots=True)
class Record:
    """One request from its arrival until its permit and its seat are both free.

    `computed_tok` of prompt and kept output are known to be computed in this run. `exempt` requests
    have been in the engine before: bounds and ttft do not apply to them again. `aborted` is what an
    `Abort` said. `prepaid_tok` are left of the quantum that a grant by the floor began with.
    `reserved_tok` of output its seat is charged, `charged_tok` its flow. `kept_tok` of output it
    goes on from. `again_tok` of work had to be done more than once because it was stopped, for
    `lost_tok` tokens the last time; `pledged_tok` are taken for it from its class until it is known
    what the stop costs. `settled_ns`: since when its seat waits for the engine's word.
    `predicted_ns` from its arrival on its first token was expected.
    """

    spec: RequestSpec
    seq: int
    prompt_tok: int
    excused_before_ns: int
    account: Account
    reserved_tok: int
    state: State = State.QUEUED
    computed_tok: int = 0
    output_tok: int = 0
    charged_tok: int = 0
    kept_tok: int = 0
    again_tok: float = 0.0
    lost_tok: int = 0
    pledged_tok: float = 0.0
    predicted_ns: int | None = None
    safety_ns: int | None = None
    settled_ns: int | None = None
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
        state = self.state
        return state is State.RUNNING or state is State.GRANTED or state is State.PREEMPTING

    @property
    def prefill_tok(self) -> int:
        """What must be computed before its next token: the prompt, and output that it kept."""
        return self.prompt_tok + self.kept_tok

    @property
    def made_tok(self) -> int:
        """The output of this run."""
        return max(0, self.output_tok - self.kept_tok)

    @property
    def can_stop(self) -> bool:
        """Can it be stopped without anybody seeing it in the answer?"""
        match self.spec.resume:
            case Resume.EXACT | Resume.RESTART:
                return True
            case Resume.UNSEEN:
                return not self.output_tok
            case _:
                return False

    def move(self, move: Move) -> None:
        """Change state by the table; raises `IllegalMove`."""
        self.state = after(self.state, move, self.spec.rid)

    def kv_tok(self, capacity: PoolCapacity) -> int:
        """What its seat holds of the cache.

        After the settle only what was computed, but where the engine reserves in full it keeps
        the whole until it confirms.
        """
        output_tok = max(self.reserved_tok, self.output_tok)
        if self.state is State.SETTLED and capacity.reservation is Reservation.GROW:
            output_tok = self.output_tok
        return kv_cost(capacity, self.prompt_tok, output_tok)


@dataclass(slots=True)
class Pool:
    """One model: its limits, what is charged against them, and how long it was not ready.

    `load_asked_ns` is when the shell was asked to load it, until the engine has done so or failed.
    `away_since_ns` is when it went away after it had `served` somebody, or failed to load.
    `in_turn` says that it was asked for, and then loaded, by the floor of a class. `kept` are the
    ranks for which requests were stopped: a seat each, which the floor of a class does not take;
    `stopping` of these are not free yet.
    """

    spec: PoolSpec
    ledger: PoolLedger = field(default_factory=PoolLedger)
    pace: Pace = field(default_factory=Pace)
    lengths: Lengths = field(default_factory=Lengths)
    load_asked_ns: int | None = None
    in_turn: bool = False
    ready_since_ns: int = 0
    away_since_ns: int = 0
    served: bool = False
    kept: list[int] = field(default_factory=list)
    stopping: int = 0
    _computed: WindowSum | None = None
    _weight: float = USUAL_WEIGHT
    _weigh_ns: int = 0
    _excused_since_ns: int | None = None
    _excused_ns: int = 0
    _loading_since_ns: int | None = None

    def __post_init__(self) -> None:
        if self.excused:
            # Only differences of the excused time are used, so any beginning will do.
            self._excused_since_ns = 0
        if self.spec.state is PoolState.LOADING:
            self._loading_since_ns = 0  # nobody knows, and nobody is refused for it

    @property
    def ready(self) -> bool:
        """Can it take work now?"""
        return self.spec.state is PoolState.READY

    @property
    def excused(self) -> bool:
        """Does a default ttft stand still? While it is loaded, or cold, or lent; who waits for one
        that has failed waits for nobody knows what."""
        return self.spec.state not in (PoolState.READY, PoolState.FAILED)

    @property
    def capacity(self) -> PoolCapacity:
        """Its limits as of now."""
        return self.spec.capacity

    def curve(self, spec: RequestSpec) -> Survival | None:
        """How long the answers of such a request are; None while nobody knows."""
        return self.lengths.of(spec.class_, spec.principal, spec.flow)

    def become(self, spec: PoolSpec, now_ns: int) -> None:
        """The engine says that this is the pool now."""
        was_ready, was_excused = self.ready, self.excused
        if spec.state is not PoolState.LOADING:
            self._loading_since_ns = None
        elif self._loading_since_ns is None:
            self._loading_since_ns = now_ns
        if spec.identity != self.spec.identity:
            self.pace.forget()
            self.lengths.forget()
        self.spec = spec
        if was_excused and not self.excused:
            self._excused_ns = self.excused_ns(now_ns)
            self._excused_since_ns = None
        elif self.excused and not was_excused:
            self._excused_since_ns = now_ns
        if self.ready and not was_ready:
            self.ready_since_ns = now_ns
        if spec.state is PoolState.FAILED or (was_ready and not self.ready):
            self.in_turn = False
        if not self.ready and (self.served or spec.state is PoolState.FAILED):
            self.away_since_ns = now_ns
            self.served = False
        if spec.state not in (PoolState.COLD, PoolState.LOADING):
            self.load_asked_ns = None

    @property
    def weight(self) -> float:
        """What computing a prompt token costs beside making an output token, as things are."""
        return self._weight

    def weigh(self, now_ns: int) -> bool:
        """Learn the weight anew, if that was not done just now; returns whether it was."""
        if now_ns < self._weigh_ns:
            return False
        self._weigh_ns = now_ns + WEIGH_EVERY_NS
        seqs = max(1, self.ledger.seats)
        step_ns = self.pace.step_ns(decode_seqs=seqs, prefill_tok=0, now_ns=now_ns)
        more_ns = self.pace.step_ns(decode_seqs=seqs, prefill_tok=WEIGHED_TOK, now_ns=now_ns)
        if step_ns and more_ns is not None:
            self._weight = min(1.0, max(0.0, (more_ns - step_ns) / WEIGHED_TOK * seqs / step_ns))
        return True

    def turnover(self, class_: str, prompt_tok: float, now_ns: int) -> float | None:
        """Answers of a class a nanosecond with all seats taken, to prompts of `prompt_tok` tokens;
        None: unknown."""
        seats = self.capacity.max_seqs
        curve = self.lengths.of(class_, "", "")
        step_ns = self.pace.step_ns(decode_seqs=seats, prefill_tok=0, now_ns=now_ns)
        usual_tok = None if curve is None else curve.mean_left(0, self.capacity.max_context_tok)
        if not usual_tok or not step_ns:
            return None
        return seats / (step_ns * (usual_tok + self.weight * prompt_tok))

    def computed_in(self, window_ns: int, tok: int, now_ns: int) -> int:
        """So many more tokens were computed; returns how many within the window."""
        if self._computed is None or self._computed.window_ns != window_ns:
            self._computed = WindowSum(window_ns)
        self._computed.add(tok, now_ns)
        return self._computed.value(now_ns)

    def take_kept(self, rank: int) -> None:
        """A request of this rank starts: in a seat that was made free for it, if there is one."""
        able = [kept for kept in self.kept if kept >= rank]
        if able:
            self.kept.remove(min(able))

    def ask_load(self, now_ns: int, *, in_turn: bool) -> None:
        """The shell is asked to load it."""
        self.load_asked_ns = now_ns
        self.in_turn = in_turn

    def excused_ns(self, now_ns: int) -> int:
        """For how long in all it was excused, from an arbitrary beginning."""
        if self._excused_since_ns is None:
            return self._excused_ns
        return self._excused_ns + now_ns - self._excused_since_ns

    def loading_ns(self, now_ns: int) -> int:
        """For how long it has been loading, of its own or asked to; 0 if it is not."""
        since_ns = self.load_asked_ns
        if since_ns is None:
            since_ns = self._loading_since_ns
        return 0 if since_ns is None else now_ns - since_ns

    @property
    def excused_settled_ns(self) -> int | None:
        """The same where it is not excused now, None while the time is still growing."""
        return self._excused_ns if self._excused_since_ns is None else None
