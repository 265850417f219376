"""One request in the simulator: what it asks for, how long its answer is, what became of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from onegate.admission.model import Refusal, RequestSpec, Resume


@dataclass(slots=True, eq=False)
class Job:
    """`output_tok` is the true length, `who` its owner. `made_tok` is the output that counts now:
    what a restart throws away is taken off. `peak_tok` is the furthest position ever computed, and
    what is computed below it is computed again. Times in nanoseconds, None until they come.
    """

    spec: RequestSpec
    output_tok: int
    who: str
    on_end: Callable[["Job"], None] | None = None
    granted_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    ended_ns: int | None = None
    refusal: Refusal | None = None
    finished: bool = False
    run: int | None = None
    made_tok: int = 0
    kept_tok: int = 0
    computed_tok: int = 0
    peak_tok: int = 0
    lost_tok: int = 0
    again_tok: int = 0
    decoded_tok: int = 0
    preempted: int = 0
    tok: int = 0
    gaps_ns: list[int] = field(default_factory=list)

    @property
    def rid(self) -> int:
        """The request's number."""
        return self.spec.rid

    @property
    def class_(self) -> str:
        """Its class."""
        return self.spec.class_

    @property
    def pool(self) -> str:
        """Its model."""
        return self.spec.pool

    @property
    def arrived_ns(self) -> int:
        """When it came."""
        return self.spec.arrived_ns

    @property
    def ttft_ns(self) -> int | None:
        """From arrival to the first token."""
        return None if self.first_ns is None else self.first_ns - self.spec.arrived_ns

    @property
    def in_time(self) -> bool:
        """Was its first token there by its deadline? True of one that has none."""
        deadline_ns = self.spec.ttft_deadline_ns
        return deadline_ns is None or (self.first_ns is not None and self.first_ns <= deadline_ns)

    def compute(self, tok: int, made: int) -> None:
        """`tok` prompt tokens and `made` new ones have been computed for it."""
        self.tok += tok + made
        self.decoded_tok += made
        begin_tok, end_tok = self.computed_tok, self.computed_tok + tok + made
        self.again_tok += max(0, min(end_tok, self.peak_tok) - begin_tok)
        self.computed_tok = end_tok
        self.peak_tok = max(self.peak_tok, end_tok)

    def lose(self) -> int:
        """It is stopped; returns how much of its output the next run goes on from."""
        self.preempted += 1
        if self.spec.resume is not Resume.EXACT:
            self.lost_tok += self.made_tok
            self.made_tok = 0
        self.kept_tok = self.made_tok
        self.run = None
        return self.kept_tok
