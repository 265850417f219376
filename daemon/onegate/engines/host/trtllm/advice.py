"""Whether steps that read prompts are as short as a class wants them, and what would make them so.

The engine takes the size of its steps as it starts, and starting takes minutes: so they are
measured in service, by the engine's own statistics, and the number is told to the operator.
"""

from statistics import median

from onegate.engines.host.trtllm.messages import Iteration

# Steps of either kind before anything is said, and that are looked at.
_ENOUGH = 32
_LEAST_TOK = 16


class StepAdvice:
    """Says once what `engine.max_step_tok` should be; `target_ms` None: nobody wants to know."""

    def __init__(self, *, target_ms: float | None, max_step_tok: int, max_seqs: int) -> None:
        self._target_ms = target_ms
        self._max_step_tok = max_step_tok
        self._max_seqs = max_seqs
        self._full: list[tuple[int, float]] = []
        self._without: list[float] = []

    def line(self, step: Iteration) -> str | None:
        """Note a step; the sentence, when there is one to say."""
        if self._target_ms is None or step.latency_ms is None or step.prompt_tok is None:
            return None
        if step.prompt_tok >= self._max_step_tok // 2:
            self._full.append((step.prompt_tok, step.latency_ms))
            del self._full[:-_ENOUGH]
        elif step.prompt_tok == 0 and step.answers:
            self._without.append(step.latency_ms)
            del self._without[:-_ENOUGH]
        if len(self._full) < _ENOUGH or len(self._without) < _ENOUGH:
            return None
        target_ms, self._target_ms = self._target_ms, None
        took_ms = sorted(ms for _, ms in self._full)[int(0.95 * len(self._full))]
        if took_ms <= target_ms:
            return None
        base_ms = median(self._without)
        tok_ms = median((ms - base_ms) / tok for tok, ms in self._full)
        said = f"steps that read prompts take {took_ms:.0f} ms, itl_target_ms wants {target_ms:g}"
        if base_ms >= target_ms or tok_ms <= 0:
            return f"{said}: steps without a prompt take {base_ms:.0f} ms, fewer max_seqs may help"
        better_tok = self._max_seqs + max(_LEAST_TOK, int((target_ms - base_ms) / tok_ms))
        return f"{said}: set engine.max_step_tok to {better_tok}"
