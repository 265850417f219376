"""What a step costs, found from steps of known sizes by least squares.

time = steps · step_ns + steps of more than one token · many_ns + steps · sequences · seq_ns
     + prompt tokens · prompt_tok_ns + pairs of them · attend_ns
     + tokens before those that are made · read_ns
"""

from collections.abc import Sequence
from typing import NamedTuple

from tests.sim.figures import median


class Costs(NamedTuple):
    """Nanoseconds, named as in `engine.Machine`."""

    step_ns: float
    many_ns: float
    mixed_ns: float
    change_ns: float
    seq_ns: float
    prompt_tok_ns: float
    attend_ns: float
    read_ns: float

    def of(self, shape: "Shape") -> float:
        """What that should take."""
        return sum(cost * size for cost, size in zip(self, shape, strict=True))

    def times(self, pace: float) -> "Costs":
        """The same on a machine that takes so many times as long."""
        return Costs(*(cost * pace for cost in self))


class Shape(NamedTuple):
    """What was run, in the order of `Costs`."""

    steps: float
    many: float
    mixed: float
    change: float
    seqs: float
    prompt_tok: float
    attended: float
    read_tok: float


class Row(NamedTuple):
    """One measurement."""

    shape: Shape
    took_ns: float


def decoding(seqs: int, read_tok: float, *, change: bool = False) -> Shape:
    """One step in which everybody makes a token, with so many before it in all; `change`: the step
    before was another."""
    return Shape(1, seqs > 1, 0, change, seqs, 0, 0, read_tok)


def reading(prompt_tok: int, step_tok: int) -> Shape:
    """A prompt with nobody beside; if it is several steps, it is whole ones."""
    steps = -(-prompt_tok // step_tok)
    return Shape(steps, steps, 0, 1, steps, prompt_tok, prompt_tok**2 / 2, 0)


def mixed(prompt_tok: int, seqs: int, read_tok: float) -> Shape:
    """One step with a whole prompt, in which so many others make a token."""
    return Shape(1, 1, 1, 1, seqs + 1, prompt_tok, prompt_tok**2 / 2, read_tok)


def middle(found: Sequence[Row]) -> list[Row]:
    """Of rows that measure the same, the one in the middle: a machine is busy at times."""
    shapes = dict.fromkeys(row.shape for row in found)
    return [
        Row(shape, median(row.took_ns for row in found if row.shape == shape)) for shape in shapes
    ]


def fit(found: Sequence[Row]) -> Costs:
    """The costs, by least squares of relative errors; none is negative."""
    free = list(range(len(Costs._fields)))
    while True:
        normal = [
            [sum(row.shape[i] * row.shape[j] / row.took_ns**2 for row in found) for j in free]
            for i in free
        ]
        right = [sum(row.shape[i] / row.took_ns for row in found) for i in free]
        solved = solve(normal, right)
        if min(solved) >= 0:
            costs = [0.0] * len(Costs._fields)
            for place, cost in zip(free, solved, strict=True):
                costs[place] = cost
            return Costs(*costs)
        # The one that is furthest below, by what it takes off, not by its unit.
        mean = [sum(row.shape[i] for row in found) for i in free]
        del free[min(range(len(free)), key=lambda place: solved[place] * mean[place])]


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots; the matrix is small and not singular."""
    size = len(right)
    lines = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda line: abs(lines[line][column]))
        lines[column], lines[pivot] = lines[pivot], lines[column]
        for line in range(size):
            if line != column:
                factor = lines[line][column] / lines[column][column]
                pairs = zip(lines[line], lines[column], strict=True)
                lines[line] = [a - factor * b for a, b in pairs]
    return [lines[line][size] / lines[line][line] for line in range(size)]


def pace(found: Sequence[Row], costs: Costs) -> float:
    """How many times as long as the costs say these took."""
    return median(row.took_ns / costs.of(row.shape) for row in found)
