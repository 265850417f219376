"""When an engine that is alive counts as dead: it has work and makes no progress."""

_NS_PER_S = 1_000_000_000
# Of the predicted time to compute the prompts that are inside.
_PREFILL_FACTOR = 4
# A load may hold the interpreter for minutes; its end is seen by the end of the process.
LOADING_SILENCE_S = 600.0
_SMOOTHING = 0.3


class StallRule:
    """Told what happens, asked by the clock. Progress is the host's step count moving.

    The limit is `floor_s`, or four times what the prompts inside are predicted to take, at the
    prefill rate seen so far. Heartbeats only show that the process lives: their absence for as
    long is a stall too, their presence proves nothing.
    """

    def __init__(self, floor_s: float, now_ns: int) -> None:
        self._floor_ns = int(floor_s * _NS_PER_S)
        self._progress_ns = now_ns
        self._heard_ns = now_ns
        self._steps = 0
        self._prefilling: dict[int, tuple[int, int]] = {}
        self._inside: set[int] = set()
        self._tok_per_ns: float | None = None

    def entered(self, id: int, now_ns: int) -> None:
        """A request is on its way into the engine."""
        if not self._inside:
            self._progress_ns = now_ns
        self._inside.add(id)

    def accepted(self, id: int, prompt_tok: int, now_ns: int) -> None:
        """Its prompt is this long."""
        self._prefilling[id] = (prompt_tok, now_ns)

    def first_token(self, id: int, now_ns: int) -> None:
        """Its prompt is computed; teaches the prefill rate. Later tokens change nothing."""
        prompt_tok, since_ns = self._prefilling.pop(id, (0, now_ns))
        if prompt_tok and now_ns > since_ns:
            rate = prompt_tok / (now_ns - since_ns)
            known = self._tok_per_ns
            self._tok_per_ns = rate if known is None else known + _SMOOTHING * (rate - known)

    def left(self, id: int) -> None:
        """Its seat is free."""
        self._inside.discard(id)
        self._prefilling.pop(id, None)

    def heard(self, now_ns: int, steps: int) -> None:
        """Anything came from the host; `steps` is its count so far."""
        self._heard_ns = now_ns
        if steps > self._steps:
            self._steps = steps
            self._progress_ns = now_ns

    def limit_ns(self) -> int:
        """How long no progress is no stall yet."""
        prompt_tok = sum(tok for tok, _ in self._prefilling.values())
        if self._tok_per_ns is None or not prompt_tok:
            return self._floor_ns
        return max(self._floor_ns, int(_PREFILL_FACTOR * prompt_tok / self._tok_per_ns))

    def stalled(self, now_ns: int, *, loading: bool) -> str | None:
        """What is wrong, or None. `loading`: no pool is ready, and silence is not suspicious."""
        limit_ns = self.limit_ns()
        silence_ns = int(LOADING_SILENCE_S * _NS_PER_S) if loading else limit_ns
        if now_ns - self._heard_ns > silence_ns:
            return f"not a sign of life for {(now_ns - self._heard_ns) / _NS_PER_S:.0f} s"
        if self._inside and now_ns - self._progress_ns > limit_ns:
            return (
                f"no step for {(now_ns - self._progress_ns) / _NS_PER_S:.0f} s "
                f"with {len(self._inside)} requests inside"
            )
        return None
