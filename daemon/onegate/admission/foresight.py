"""How far predictions can be trusted, learned from how they came out."""

from bisect import bisect_left, insort
from collections import deque

# So many of the last are remembered, and so many must be known; until then a wait is taken to be
# half of what it seems, because nobody is to be refused for what is not known.
FORECASTS = 64
LEAST_FORECASTS = 16
UNKNOWN_FACTOR = 0.5
# Whoever is let in is in time with this probability, at least.
SURE = 0.9
MOST = 2.0
# Shorter waits are decided by a step more or less.
LEAST_NS = 50_000_000


class Foresight:
    """How true the predictions of one class have been: actual time to the first token ÷ predicted.

    Those who gave up are in it with the time that they waited, or it would be learned from those
    alone who were lucky.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def learn(self, predicted_ns: int, actual_ns: int) -> None:
        """A first token has come, or somebody has waited so long and left."""
        if predicted_ns < LEAST_NS:
            return
        ratio = actual_ns / predicted_ns
        self._recent.append(ratio)
        insort(self._sorted, ratio)
        if len(self._recent) > FORECASTS:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]

    @property
    def factor(self) -> float:
        """By how much a prediction is to be multiplied, so that few wait longer than that."""
        if len(self._sorted) < LEAST_FORECASTS:
            return UNKNOWN_FACTOR
        return min(MOST, self._sorted[int(len(self._sorted) * SURE)])
