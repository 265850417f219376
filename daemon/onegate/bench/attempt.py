"""One attempt as it goes on: what is written down, and when its caller has had enough."""

from collections.abc import Callable

from onegate.bench.record import Record
from onegate.bench.scenario import Leave, Phase


class Attempt:
    """See `base.Watch`. `leave` is called once, in the phase in which the caller goes away.

    `now_ns` counts from the start of the window.
    """

    def __init__(
        self,
        record: Record,
        now_ns: Callable[[], int],
        leave: Callable[[], None],
        *,
        phase: Phase | None = None,
        rule: Leave | None = None,
    ) -> None:
        self._record = record
        self._now_ns = now_ns
        self._leave = leave
        self._phase = phase
        self._after_tok = rule.after_tok if rule is not None else 0
        self._started = False
        self._seen_tok = 0
        self._shown_tok = 0

    @property
    def reached(self) -> Phase | None:
        """The phase that the attempt is in, as far as the target tells; None: it waits."""
        if self._seen_tok:
            return "decode"
        return "prefill" if self._started else None

    def started(self, queue_ms: float | None) -> None:
        self._started = True
        self._record.started_ns = self._now_ns()
        self._record.queue_ms = queue_ms
        if self._phase == "prefill":
            self._leave()

    def piece(self, n_tok: int, *, visible: bool) -> None:
        self._seen_tok += n_tok
        if visible:
            self._record.pieces_ns.append(self._now_ns())
            self._record.pieces_tok.append(self._seen_tok - self._shown_tok)
            self._shown_tok = self._seen_tok
        if self._phase == "decode" and self._seen_tok >= self._after_tok:
            self._leave()
        if self._phase == "prefill" and not self._started:
            self._leave()  # such a target tells no start: that it has passed is all there is
