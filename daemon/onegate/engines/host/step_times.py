"""How long the recent steps took, and how many tokens came out of them."""

from collections import deque

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
# As many as the step-time model looks back on.
_RECENT = 512


class StepTimes:
    """A ring of the recent steps. Every figure is None before the first step."""

    def __init__(self, recent: int = _RECENT) -> None:
        self._steps: deque[tuple[int, int]] = deque(maxlen=recent)
        self.count = 0

    def add(self, duration_ns: int, output_tok: int) -> None:
        """Note one step of the engine."""
        self._steps.append((duration_ns, output_tok))
        self.count += 1

    def percentile_ms(self, share: float) -> float | None:
        """The step time that `share` of the recent steps did not exceed."""
        if not self._steps:
            return None
        ordered = sorted(duration for duration, _ in self._steps)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / _NS_PER_MS

    def tok_per_s(self) -> float | None:
        """Output tokens over the time that the recent steps took; pauses do not count."""
        busy_ns = sum(duration for duration, _ in self._steps)
        if not busy_ns:
            return None
        return sum(tokens for _, tokens in self._steps) * _NS_PER_S / busy_ns
