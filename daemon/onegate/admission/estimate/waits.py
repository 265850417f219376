"""When a seat comes free, from how long the answers that hold the seats have gone on.

True lengths are hidden from the core. A mean length misjudges who is about to end; what can be said
is the probability that an answer which has come so far ends within so many further tokens.
"""

from bisect import bisect_left
from collections.abc import Sequence

from onegate.admission.estimate.survival import LONGEST_TOK, Survival

# A running request: (tokens made, tokens that it may still make, curve of its like or None).
Running = tuple[int, int, Survival | None]


def _grid() -> tuple[int, ...]:
    steps = [0]
    while steps[-1] < LONGEST_TOK:
        steps.append(max(steps[-1] + 1, round(steps[-1] * 1.0625)))
    return tuple(steps)


# Steps ahead that are looked at: exact to 16, then 6 % apart, which is finer than any curve.
_STEPS = _grid()


def expected_seat_ns(running: Sequence[Running], n: int, step_ns: float) -> float | None:
    """The expected time until the n-th of these seats comes free (n from 1), to 6 %.

    Of N seats the n-th comes free when n/(N + 1) of what can end has ended, on average: where the
    sum of the probabilities reaches n·N/(N + 1). Grows with `n`. None beyond N, and where half of
    the requests or fewer than `n` have a curve that reaches their age: a limit of its own says when
    a request must have ended, not when it is expected to.
    """
    if step_ns <= 0.0 or n < 1:
        return None
    # Asked once, not once for every time that is looked at: P(it has come so far).
    alive = [None if curve is None else curve.alive(age_tok) for age_tok, _, curve in running]
    known = len(alive) - alive.count(None)
    if known < n or 2 * known < len(running):
        return None
    wanted = n * len(running) / (len(running) + 1)

    def ended(more_tok: int) -> float:
        """How many of these will have ended after so many steps, on average."""
        total = 0.0
        for (age_tok, left_tok, curve), so_far in zip(running, alive, strict=True):
            if left_tok <= more_tok:
                total += 1.0
            elif curve is not None and so_far is not None:
                total += 1.0 - curve.alive_later(age_tok + more_tok) / so_far
        return total

    i = bisect_left(_STEPS, wanted, key=ended)
    return _STEPS[i] * step_ns if i < len(_STEPS) else None
