"""How fast one pool computes, seen from outside: a `StepModel` fed by the tokens of one request.

No engine need show its steps. Of the requests that decode one is the probe: between two of its
tokens there was a step, in which the others had one too and some prompts went forward.
"""

from dataclasses import dataclass

from onegate.admission.estimate.step_model import StepModel
from onegate.admission.model import StepView

# What comes so soon after a token of the probe is told in the same pass of the loop: it belongs to
# the step that has just ended, or several steps were told at once. No step is that short.
BURST_NS = 300_000
# A silent prefill is credited at its first token. Until then steps are averaged, or those that
# computed it would look slow for nothing, but not more than so many: some wait at the engine.
MOST_STEPS = 32


@dataclass(slots=True)
class _Gap:
    """What happened since a token of the probe (None: since its next one), until `took_ns` later.

    `tok` of the probe were produced, as many as there were steps, while `seqs` requests decoded,
    and `prefill_tok` of the pool were computed.
    """

    since_ns: int | None
    seqs: int
    tok: int = 0
    prefill_tok: int = 0
    took_ns: int = 0


class Pace:
    """The pace of one pool. The core tells what it sees; times in nanoseconds never go back."""

    def __init__(self) -> None:
        # Prompt tokens still to be computed, by request; those that decode, oldest first.
        self._filling: dict[int, int] = {}
        self._decoding: dict[int, None] = {}
        self._probe: int | None = None
        # A request that came to an idle engine: (rid, prompt tokens, when).
        self._alone: tuple[int, int, int] | None = None
        # Whether the engine tells of prefill before the first token.
        self._tells = False
        self._model = StepModel()
        # The gap that is open, and the one before, of which the same pass may still tell.
        self._gap = _Gap(None, 0)
        self._ended = _Gap(None, 0)

    # --- what the core sees ---------------------------------------------------------------------

    def granted(self, rid: int, prompt_tok: int, now_ns: int) -> None:
        """A request goes to the engine, with so many prompt tokens to compute (not the cached)."""
        # With nothing else at the engine its prompt begins now. Else nobody knows when it does.
        idle = not self._filling and not self._decoding
        self._alone = (rid, prompt_tok, now_ns) if idle else None
        self._filling[rid] = max(0, prompt_tok)

    def prefilled(self, rid: int, tok: int, now_ns: int) -> None:
        """So many more of its prompt tokens are computed, and it has no output yet."""
        if rid in self._filling:
            self._tells = True
            self._filling[rid] = max(0, self._filling[rid] - tok)
            self._credit(tok, now_ns)

    def produced(self, rid: int, tok: int, now_ns: int) -> None:
        """It has produced so many more tokens; the first of them ends its prefill.

        Two comparisons for all but the probe and first tokens.
        """
        if rid == self._probe:
            self._probed(tok, now_ns)
        elif rid in self._filling:
            self._first(rid, now_ns)

    def left(self, rid: int, now_ns: int) -> None:
        """It is out of the engine, or about to be: settled, its seat free, or queued again."""
        self._filling.pop(rid, None)
        self._decoding.pop(rid, None)
        if rid == self._probe:
            self._commit(now_ns)
            self._probe = next(iter(self._decoding), None)
            self._start(None)

    def forget(self) -> None:
        """The model or its engine is another one now; what runs may go on."""
        self._alone = None
        self._tells = False
        self._model = StepModel()
        self._start(None)

    # --- what is known --------------------------------------------------------------------------

    def view(self, now_ns: int) -> StepView | None:
        """What was learned; None while that is too little, or too old."""
        return self._model.view(now_ns)

    def step_ns(self, decode_seqs: int, prefill_tok: int, now_ns: int) -> float | None:
        """The time of a step with so many sequences and prompt tokens."""
        return self._model.step_ns(prefill_tok=prefill_tok, decode_seqs=decode_seqs, now_ns=now_ns)

    def prefill_ns(self, tok: int, now_ns: int) -> float | None:
        """The time to compute `tok` prompt tokens beside those that decode now."""
        return self._model.prefill_ns(tok, len(self._decoding), now_ns)

    # --- the gap between two tokens of the probe ------------------------------------------------

    def _first(self, rid: int, now_ns: int) -> None:
        rest_tok = self._filling.pop(rid)
        self._credit(rest_tok, now_ns)
        if self._alone is not None and self._alone[0] == rid:
            _, prompt_tok, since_ns = self._alone
            self._alone = None
            if prompt_tok > 0:
                self._model.add(
                    now_ns - since_ns, prefill_tok=prompt_tok, decode_seqs=0, now_ns=now_ns
                )
        self._decoding[rid] = None
        if self._probe is None:
            self._probe = rid
            self._start(now_ns)

    def _probed(self, tok: int, now_ns: int) -> None:
        gap = self._gap
        if gap.since_ns is None:
            self._start(now_ns)
        elif now_ns - gap.since_ns < BURST_NS:
            self._ended.tok += tok
        else:
            gap.tok += tok
            silent = bool(self._filling) and not self._tells
            if gap.tok <= 0 or (silent and gap.tok < MOST_STEPS):
                return
            gap.took_ns = now_ns - gap.since_ns
            self._commit(now_ns)
            self._ended, self._gap = gap, _Gap(now_ns, len(self._decoding))

    def _credit(self, tok: int, now_ns: int) -> None:
        """Prompt tokens were computed: in the step that ended in this very pass, or in this one."""
        gap = self._gap
        if gap.since_ns is not None and now_ns - gap.since_ns < BURST_NS:
            gap = self._ended
        gap.prefill_tok += tok

    def _commit(self, now_ns: int) -> None:
        """The gap that ended is complete: all is told that belongs to its last step."""
        gap = self._ended
        if gap.tok > 0:
            self._model.add(
                gap.took_ns // gap.tok,
                prefill_tok=round(gap.prefill_tok / gap.tok),
                decode_seqs=gap.seqs,
                now_ns=now_ns,
            )

    def _start(self, now_ns: int | None) -> None:
        """Measure from here, or from the probe's next token; what ended before counts no more."""
        self._gap = _Gap(now_ns, len(self._decoding))
        self._ended = _Gap(None, 0)
