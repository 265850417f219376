"""Non-negative weighted least squares for y = a + b·p + c·s, kept as sums.

The sums are integers, so that adding and taking away leaves no trace however long it goes on.
"""

from itertools import combinations
from math import sqrt

# What decides where the data do not, because p or s never changed: a little weight against `a`,
# more against `c`, none against `b`. Then prefill is taken to cost by the token, and a number of
# sequences that was always the same to cost nothing of its own, as where a step reads all weights
# whatever the batch. Where s varies by a third of its mean, c is 1 % too small by this.
_AGAINST = (1e-6, 0.0, 1e-3)

Coefficients = tuple[float, float, float]


class NormalEquations:
    """The weighted sums over observations (p, s, y), and the solution."""

    def __init__(self) -> None:
        self._n = self._p = self._s = self._pp = self._ps = self._ss = 0
        self._y = self._py = self._sy = 0

    def add(self, p: int, s: int, y: int, weight: int) -> None:
        """Count an observation; with its weight negative, take it away again."""
        wp, ws = weight * p, weight * s
        self._n += weight
        self._p += wp
        self._s += ws
        self._pp += wp * p
        self._ps += wp * s
        self._ss += ws * s
        self._y += weight * y
        self._py += wp * y
        self._sy += ws * y

    def solve(self) -> Coefficients:
        """(a, b, c), all at least 0: the best of the solutions with some of them left out.

        Between what was seen the fit is what least squares make it; beyond, no coefficient being
        negative, it lies between staying the same and growing in proportion.
        """
        # Scaled to a diagonal of ones, or p in thousands would decide what counts as singular.
        unit = (sqrt(self._n), sqrt(self._pp), sqrt(self._ss))
        gram = (
            (self._n, self._p, self._s),
            (self._p, self._pp, self._ps),
            (self._s, self._ps, self._ss),
        )
        right = (self._y, self._py, self._sy)
        used = [i for i in range(3) if unit[i] > 0.0]
        matrix = [
            [gram[i][j] / (unit[i] * unit[j]) + _AGAINST[i] * (i == j) for j in used] for i in used
        ]
        target = [right[i] / unit[i] for i in used]
        best, best_gain = [0.0] * 3, 0.0
        for size in range(1, len(used) + 1):
            for chosen in combinations(range(len(used)), size):
                part = [[matrix[i][j] for j in chosen] for i in chosen]
                x = _solve(part, [target[i] for i in chosen])
                if min(x) < 0.0:
                    continue
                # At a solution, the squares explained are x·target.
                gain = sum(x[k] * target[i] for k, i in enumerate(chosen))
                if gain > best_gain:
                    best, best_gain = [0.0] * 3, gain
                    for k, i in enumerate(chosen):
                        best[used[i]] = x[k] / unit[used[i]]
        return best[0], best[1], best[2]


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Elimination in a symmetric system, which the weights against `a` and `c` keep regular."""
    n = len(right)
    for i in range(n):
        pivot = matrix[i][i]
        for j in range(i + 1, n):
            factor = matrix[j][i] / pivot
            for k in range(i, n):
                matrix[j][k] -= factor * matrix[i][k]
            right[j] -= factor * right[i]
    for i in reversed(range(n)):
        right[i] -= sum(matrix[i][k] * right[k] for k in range(i + 1, n))
        right[i] /= matrix[i][i]
    return right
