"""What became of one request, as its caller saw it."""

from enum import StrEnum

from msgspec import Struct, field


class Outcome(StrEnum):
    """Every request ends as exactly one of these."""

    FINISHED = "finished"
    REFUSED = "refused"
    EXPIRED = "expired"
    FAILED = "failed"
    LEFT = "left"


# Why a request was left that no caller wanted to leave: the run was over.
END_OF_RUN = "end_of_run"


class Record(Struct, array_like=True):
    """One request. Every `_ns` counts from the start of the measured window; None: did not happen.

    `sent_ns` is the first attempt's, `last_sent_ns` the last one's. `pieces_ns` are the arrivals of
    non-empty pieces of text, `pieces_tok` the tokens in each. `hinted_ns` is when the first refusal
    said to come back. A `shortened` one was scheduled longer than the target's context can hold.
    """

    cls: int
    serial: int
    scheduled_ns: int
    sent_ns: int | None = None
    last_sent_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    outcome: Outcome = Outcome.LEFT
    reason: str = ""
    pieces_ns: list[int] = field(default_factory=list)
    pieces_tok: list[int] = field(default_factory=list)
    attempts: int = 0
    hinted_ns: int | None = None
    queue_ms: float | None = None
    prompt_tok: int | None = None
    output_tok: int | None = None
    asked_prompt_tok: int = 0
    asked_output_tok: int = 0
    shortened: bool = False

    @property
    def tokens(self) -> int:
        """Output tokens: as the target counted, else as they came."""
        return sum(self.pieces_tok) if self.output_tok is None else self.output_tok

    @property
    def ttft_ms(self) -> float | None:
        return (self.pieces_ns[0] - self.scheduled_ns) / 1e6 if self.pieces_ns else None

    @property
    def e2e_ms(self) -> float | None:
        if self.outcome is not Outcome.FINISHED or self.ended_ns is None:
            return None
        return (self.ended_ns - self.scheduled_ns) / 1e6

    @property
    def tpot_ms(self) -> float | None:
        """Mean time per token after the first piece; None with fewer than two pieces."""
        after = self.tokens - (self.pieces_tok[0] if self.pieces_tok else 0)
        if self.outcome is not Outcome.FINISHED or len(self.pieces_ns) < 2 or after < 1:
            return None
        return (self.pieces_ns[-1] - self.pieces_ns[0]) / 1e6 / after

    @property
    def itl_ms(self) -> list[float]:
        """Each gap between two pieces."""
        pairs = zip(self.pieces_ns, self.pieces_ns[1:], strict=False)
        return [(later - earlier) / 1e6 for earlier, later in pairs]

    @property
    def lateness_ms(self) -> float | None:
        """How much later than scheduled the generator sent it: its own fault."""
        return None if self.sent_ns is None else (self.sent_ns - self.scheduled_ns) / 1e6

    @property
    def hint_error_ms(self) -> float | None:
        """When a retry was taken, less when the first refusal said; None where none was."""
        if self.hinted_ns is None or self.last_sent_ns is None or self.attempts < 2:
            return None
        return (self.last_sent_ns - self.hinted_ns) / 1e6 if self.taken else None

    @property
    def taken(self) -> bool:
        """Whether the last attempt was let in."""
        let_in = self.started_ns is not None or bool(self.pieces_ns)
        return let_in and self.outcome is not Outcome.REFUSED
